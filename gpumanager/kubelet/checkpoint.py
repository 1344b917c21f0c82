"""The kubelet's device checkpoint: which container of which pod holds which device IDs.

It is written once a container's last device resource is allocated, so at PreStartContainer it
tells the truth, with the pod's UID, also for init containers (PodResources does not list those).
It is the kubelet's own file and has had three shapes: IDs in a list or, from 1.20 on, by NUMA node;
and the entries at the top or, since 1.10, below `Data`. What is of no shape at all is refused as a
whole: of a file that says one thing wrongly nothing else is believed.

The kubelet writes all of it again for each container. An entry that has the bytes it had in the
last file is not decoded again.
"""

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from gpumanager.errors import GpuManagerError
from gpumanager.ids import PodUID

LARGEST_CHECKPOINT: Final = 64 << 20
"""Bytes; a node with 512 pods of 4,000 devices each has some 40 MiB."""


FIELDS: Final = {
    "data": "Data",
    "entries": "PodDeviceEntries",
    "pod_uid": "PodUID",
    "container": "ContainerName",
    "resource": "ResourceName",
    "ids": "DeviceIDs",
    "response": "AllocResp",
}
"""The kubelet's names of them."""


class CheckpointUnreadable(GpuManagerError):
    """The kubelet's checkpoint is absent, half written, or of an unknown shape."""

    def __init__(self, path: Path | str, cause: str) -> None:
        super().__init__(f"{path}: cannot read the kubelet's checkpoint: {cause}")


@dataclass(frozen=True, slots=True)
class DeviceHolder:
    """One container and the IDs it holds of one resource."""

    pod_uid: PodUID
    container: str
    resource: str
    ids: frozenset[str]


NodeIDs = dict[str, frozenset[str] | None] | frozenset[str] | None
"""Device IDs by NUMA node, or without."""


class Entry(msgspec.Struct, rename=FIELDS.get):
    """One container's devices of one resource. response: the plugin's, in base64."""

    pod_uid: str
    container: str
    resource: str
    ids: NodeIDs
    response: str | None = None


class _Checkpoint(msgspec.Struct, rename=FIELDS.get):
    entries: list[msgspec.Raw] | msgspec.UnsetType | None = msgspec.UNSET
    data: "_Checkpoint | msgspec.UnsetType" = msgspec.UNSET


Known = Mapping[bytes, DeviceHolder]
"""Holders by the bytes of their entries, in the kubelet's order."""


def read_checkpoint(path: Path) -> tuple[DeviceHolder, ...]:
    """Return all holders in the kubelet's order; raises CheckpointUnreadable."""
    return parse_checkpoint(_text(path), path)


def parse_checkpoint(text: bytes, path: Path | str = "checkpoint") -> tuple[DeviceHolder, ...]:
    """Parse a checkpoint of any shape; raises CheckpointUnreadable."""
    return tuple(_holders(text, path, {}).values())


def _text(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            text = file.read(LARGEST_CHECKPOINT + 1)
    except OSError as error:
        raise CheckpointUnreadable(path, error.strerror or str(error)) from error
    if len(text) > LARGEST_CHECKPOINT:
        raise CheckpointUnreadable(path, f"larger than {LARGEST_CHECKPOINT} bytes")
    return text


def _raw_entries(text: bytes, path: Path | str) -> list[bytes]:
    try:
        whole = msgspec.json.decode(text, type=_Checkpoint)
        found = (whole.data or whole).entries
    except (ValueError, RecursionError) as error:
        raise CheckpointUnreadable(path, f"unknown shape ({error})") from error
    if found is msgspec.UNSET:
        raise CheckpointUnreadable(path, "unknown shape (no PodDeviceEntries)")
    return [bytes(one) for one in found or []]


def _entry(text: bytes, path: Path | str) -> Entry:
    try:
        return msgspec.json.decode(text, type=Entry)
    except (ValueError, RecursionError) as error:
        raise CheckpointUnreadable(path, f"unknown shape ({error})") from error


def _holders(text: bytes, path: Path | str, known: Known) -> Known:
    """Decode the entries that are not among `known`, those of the file before.

    Raises CheckpointUnreadable.
    """
    found = dict[bytes, DeviceHolder]()
    for one in _raw_entries(text, path):
        holder = known.get(one)
        if holder is None:
            entry = _entry(one, path)
            ids = entry.ids or frozenset[str]()
            if isinstance(ids, dict):
                ids = frozenset[str]().union(*filter(None, ids.values()))
            holder = DeviceHolder(PodUID(entry.pod_uid), entry.container, entry.resource, ids)
        found[one] = holder
    return found


class CheckpointFile:
    """The file at `path`, which is parsed again only when it is another one.

    The kubelet writes a new file each time and renames it. PreStartContainer comes for each of a
    container's resources, mostly with no write between.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._last: tuple[tuple[int, ...], Known] = ((), {})

    def unchanged(self) -> tuple[DeviceHolder, ...] | None:
        """Return what was read last if the inode is still the same, otherwise None."""
        version, known = self._last
        try:
            return tuple(known.values()) if self._stat() == version else None
        except CheckpointUnreadable:
            return None

    def read(self) -> tuple[DeviceHolder, ...]:
        """Read as `read_checkpoint`, unless the file is unchanged."""
        version, (last, known) = self._stat(), self._last
        if version != last:
            known = _holders(_text(self._path), self._path, known)
            self._last = version, known  # at once: other threads may read, too
        return tuple(known.values())

    def _stat(self) -> tuple[int, ...]:
        try:
            found = self._path.stat()
        except OSError as error:
            raise CheckpointUnreadable(self._path, error.strerror or str(error)) from error
        return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


_ENVS: Final = 1
_KEY, _VALUE = 1, 2


@dataclass(frozen=True, slots=True)
class Answered:
    """The environment that a device plugin gave one container with one resource.

    The checkpoint keeps the bytes of each answer to Allocate: for an agent that has lost its own
    books they say which allocation a container has.
    """

    pod_uid: PodUID
    container: str
    resource: str
    envs: dict[str, str] = field(default_factory=dict)


def read_answers(path: Path) -> tuple[Answered, ...]:
    """Read the answers to all containers; raises CheckpointUnreadable."""
    return parse_answers(_text(path), path)


def parse_answers(text: bytes, path: Path | str = "checkpoint") -> tuple[Answered, ...]:
    """Parse a checkpoint of any shape; raises CheckpointUnreadable."""
    return tuple(
        Answered(PodUID(one.pod_uid), one.container, one.resource, _envs(one.response or ""))
        for one in (_entry(raw, path) for raw in _raw_entries(text, path))
    )


def _envs(response: str) -> dict[str, str]:
    """Return the first field of a ContainerAllocateResponse; nothing where it is malformed."""
    try:
        pairs = [
            {n: v.decode() for n in (_KEY, _VALUE) for v in _fields(one, n)}
            for one in _fields(base64.b64decode(response), _ENVS)
        ]
        return {pair.get(_KEY, ""): pair.get(_VALUE, "") for pair in pairs}
    except (ValueError, DecodeError):
        return {}


def _fields(message: bytes, number: int) -> Iterator[bytes]:
    """Yield the fields of that number which have a length."""
    holder = Empty()
    holder.ParseFromString(message)
    unknown = UnknownFieldSet(holder)
    for one in (unknown[place] for place in range(len(unknown))):
        if one.field_number == number and isinstance(one.data, bytes):
            yield one.data
