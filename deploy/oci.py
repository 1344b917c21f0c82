"""Images as the OCI's image layout has them, in one tar archive, made of folders.

The same folders and time give the same bytes: names are sorted, owners are root, and every file is
of the time that is said. `ctr image import`, `skopeo copy oci-archive:…`, `podman load` and newer
`docker load` read it.
"""

import gzip
import hashlib
import io
import json
import os
import tarfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

MEDIA: Final = "application/vnd.oci.image"
LEVEL: Final = 6
"""Of gzip."""


@dataclass(frozen=True, slots=True)
class Layer:
    """blob: gzipped tar; diff: the digest of the tar."""

    blob: bytes
    diff: str


@dataclass(slots=True)
class Archive:
    """An image's parts as they are added; epoch: seconds, the time of all that is in it."""

    name: str
    epoch: int
    config: Mapping[str, Any]
    _blobs: dict[str, bytes] = field(default_factory=dict)
    _manifests: list[dict[str, Any]] = field(default_factory=list)

    def add(self, architecture: str, folders: Sequence[Path]) -> str:
        """The image for one architecture, a layer for each folder; the digest of its manifest."""
        layers = [layer_of(folder, self.epoch) for folder in folders]
        config = {
            "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.epoch)),
            "architecture": architecture,
            "os": "linux",
            "config": self.config,
            "rootfs": {"type": "layers", "diff_ids": [one.diff for one in layers]},
        }
        manifest = {
            "schemaVersion": 2,
            "mediaType": f"{MEDIA}.manifest.v1+json",
            "config": self._blob(_json(config), "config.v1+json"),
            "layers": [self._blob(one.blob, "layer.v1.tar+gzip") for one in layers],
        }
        described = self._blob(_json(manifest), "manifest.v1+json")
        self._manifests.append(
            {**described, "platform": {"architecture": architecture, "os": "linux"}}
        )
        return str(described["digest"])

    def write(self, archive: Path) -> None:
        """All of them under one name."""
        index = {
            "schemaVersion": 2,
            "mediaType": f"{MEDIA}.index.v1+json",
            "manifests": self._manifests,
        }
        named = {
            "io.containerd.image.name": self.name,
            "org.opencontainers.image.ref.name": self.name.rpartition(":")[2],
        }
        top = {**self._blob(_json(index), "index.v1+json"), "annotations": named}
        files = {
            "oci-layout": _json({"imageLayoutVersion": "1.0.0"}),
            "index.json": _json({"schemaVersion": 2, "manifests": [top]}),
            **{f"blobs/sha256/{digest}": blob for digest, blob in sorted(self._blobs.items())},
        }
        with tarfile.open(archive, "w") as tar:
            for name, content in files.items():
                tar.addfile(_entry(name, self.epoch, len(content)), io.BytesIO(content))

    def _blob(self, content: bytes, kind: str) -> dict[str, Any]:
        """Keep it; what describes it."""
        digest = hashlib.sha256(content).hexdigest()
        self._blobs[digest] = content
        return {
            "mediaType": f"{MEDIA}.{kind}",
            "digest": f"sha256:{digest}",
            "size": len(content),
        }


def layer_of(folder: Path, epoch: int) -> Layer:
    """All that is below it."""
    plain = tar_of(folder, epoch)
    blob = gzip.compress(plain, LEVEL, mtime=0)
    return Layer(blob, f"sha256:{hashlib.sha256(plain).hexdigest()}")


def tar_of(folder: Path, epoch: int, prefix: str = "") -> bytes:
    """A tar that says nothing of who made it and when."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in _below(folder):
            name = f"{prefix}{path.relative_to(folder)}"
            entry = _owned(tar.gettarinfo(str(path), name), epoch)
            if entry.islnk():  # a file of two names is in it twice
                entry.type, entry.linkname = tarfile.REGTYPE, ""
                entry.size = path.stat().st_size
            if entry.isreg():
                with path.open("rb") as content:
                    tar.addfile(entry, content)
            else:
                tar.addfile(entry)
    return made.getvalue()


def _below(folder: Path) -> Iterator[Path]:
    for place, folders, files in os.walk(folder):
        folders.sort()
        yield from (Path(place, name) for name in sorted([*folders, *files]))


def _entry(name: str, epoch: int, size: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.size = size
    return _owned(entry, epoch)


def _owned(entry: tarfile.TarInfo, epoch: int) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mtime = epoch
    return entry


def _json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
