"""A support bundle: what was collected, without secrets, and a manifest of where it came from.

Everything is text, is redacted, and has an upper size; what could not be had is in the manifest
with the reason.
"""

import io
import json
import tarfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, Final

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
    text: bytes = b""
    cause: str = ""
    cut: bool = False
    redacted: int = 0


def piece(name: str, origin: str, text: str, left: int = MOST_OF_ALL) -> Piece:
    """Return a piece that is fit to be given away. left: bytes that fit into the bundle."""
    clean, count = redact(text)
    encoded = clean.encode(errors="backslashreplace")
    if min(len(encoded), MOST_BYTES) > left:
        return Piece(name, origin, cause=f"the bundle would exceed {MOST_OF_ALL} bytes")
    kept = encoded[-MOST_BYTES:].decode(errors="ignore").encode()
    return Piece(name, origin, kept, cut=len(encoded) > MOST_BYTES, redacted=count)


def write(pieces: Sequence[Piece], version: str, made: float, to: IO[bytes]) -> None:
    """Write a tar.gz. made: seconds since the epoch. Raises OSError."""
    there = [one for one in pieces if not one.cause]
    manifest = {
        "made": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(made)),
        "gpumanager": version,
        "files": [
            {
                "name": one.name,
                "origin": one.origin,
                "bytes": len(one.text),
                "cut": one.cut,
                "redacted": one.redacted,
            }
            for one in there
        ],
        "missing": [
            {"name": one.name, "origin": one.origin, "cause": redact(one.cause)[0]}
            for one in pieces
            if one.cause
        ],
    }
    first = Piece("manifest.json", "", json.dumps(manifest, indent=2).encode())
    with tarfile.open(fileobj=to, mode="w:gz") as archive:
        for one in (first, *there):
            entry = tarfile.TarInfo(f"{ROOT}/{one.name}")
            entry.size, entry.mtime, entry.mode = len(one.text), int(made), 0o600
            archive.addfile(entry, io.BytesIO(one.text))
