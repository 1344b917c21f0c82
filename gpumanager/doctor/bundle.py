"""A support bundle: what was collected, without secrets, and a manifest of where it came from.

Everything is text, is redacted, and has an upper size; what could not be had is in the manifest
with the reason.
"""

import io
import json
import tarfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import IO, Any, Final

from gpumanager.doctor.redact import redact

MOST_BYTES: Final = 4 << 20
"""Of one file; of a longer one the end is kept."""
MOST_OF_ALL: Final = 48 << 20
ROOT: Final = "gpumanager-bundle"


@dataclass(frozen=True, slots=True)
class Piece:
    """One file of it. origin: a path, a command or a URL. cause: why there is no text.

    cut: it was longer. redacted: how many secrets were taken out.
    """

    name: str
    origin: str
    text: str = ""
    cause: str = ""
    cut: bool = False
    redacted: int = 0

    @property
    def size(self) -> int:
        return len(self.text.encode())


def piece(name: str, origin: str, text: str) -> Piece:
    """Return a piece that is fit to be given away."""
    clean, count = redact(text)
    encoded = clean.encode(errors="backslashreplace")
    cut = len(encoded) > MOST_BYTES
    if cut:
        clean = encoded[-MOST_BYTES:].decode(errors="ignore")
    return Piece(name, origin, clean, cut=cut, redacted=count)


def within(pieces: Iterable[Piece], most: int = MOST_OF_ALL) -> tuple[Piece, ...]:
    """Return the first that fit; those that do not are left out, with the reason."""
    found, left = [], most
    for one in pieces:
        if one.size > left:
            found.append(Piece(one.name, one.origin, cause=f"the bundle would exceed {most} bytes"))
            continue
        left -= one.size
        found.append(one)
    return tuple(found)


def manifest(pieces: Sequence[Piece], version: str, made: float) -> dict[str, Any]:
    """Return the manifest. made: seconds since the epoch."""
    return {
        "made": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(made)),
        "gpumanager": version,
        "files": [
            {
                "name": one.name,
                "origin": one.origin,
                "bytes": one.size,
                "cut": one.cut,
                "redacted": one.redacted,
            }
            for one in pieces
            if not one.cause
        ],
        "missing": [
            {"name": one.name, "origin": one.origin, "cause": redact(one.cause)[0]}
            for one in pieces
            if one.cause
        ],
    }


def write(pieces: Sequence[Piece], version: str, made: float, to: IO[bytes]) -> None:
    """Write a tar.gz; raises OSError."""
    said = json.dumps(manifest(pieces, version, made), indent=2)
    files = [("manifest.json", said), *((one.name, one.text) for one in pieces if not one.cause)]
    with tarfile.open(fileobj=to, mode="w:gz") as archive:
        for name, text in files:
            content = text.encode(errors="backslashreplace")
            entry = tarfile.TarInfo(f"{ROOT}/{name}")
            entry.size, entry.mtime, entry.mode = len(content), int(made), 0o600
            archive.addfile(entry, io.BytesIO(content))
