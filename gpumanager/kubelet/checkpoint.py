"""The kubelet's device checkpoint: which container of which pod holds which device IDs.

It is written once a container's last device resource is allocated, so at PreStartContainer it
tells the truth, with the pod's UID, also for init containers (PodResources does not list those).
It also keeps the bytes of each answer to Allocate. It is the kubelet's own file: its shape here is
that of 1.20 and later. What is of another shape is refused as a whole: of a file that says one
thing wrongly nothing else is believed.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from gpumanager.errors import GpuManagerError
from gpumanager.ids import PodUID

LARGEST_CHECKPOINT: Final = 64 << 20
"""Bytes; a node with 512 pods of 4,000 devices each has some 40 MiB."""


class CheckpointUnreadable(GpuManagerError):
    """The kubelet's checkpoint is absent, half written, or of an unknown shape."""

    def __init__(self, path: Path | str, cause: str) -> None:
        super().__init__(f"{path}: cannot read the kubelet's checkpoint: {cause}")


@dataclass(frozen=True, slots=True)
class DeviceHolder:
    """One container and the IDs it holds of one resource. response: the plugin's, in base64."""

    pod_uid: PodUID
    container: str
    resource: str
    ids: frozenset[str]
    response: str = field(default="", compare=False, repr=False)


class _Entry(msgspec.Struct):
    pod_uid: str = msgspec.field(name="PodUID")
    container: str = msgspec.field(name="ContainerName")
    resource: str = msgspec.field(name="ResourceName")
    by_node: dict[str, frozenset[str] | None] | None = msgspec.field(name="DeviceIDs")
    response: str | None = msgspec.field(name="AllocResp", default=None)


class _Data(msgspec.Struct):
    entries: list[msgspec.Raw] | None = msgspec.field(name="PodDeviceEntries")


class _Checkpoint(msgspec.Struct):
    data: _Data = msgspec.field(name="Data")


Known = dict[bytes, DeviceHolder]
"""Holders by the bytes of their entries, in the kubelet's order."""


def read_checkpoint(path: Path) -> tuple[DeviceHolder, ...]:
    """Return all holders in the kubelet's order; raises CheckpointUnreadable."""
    return tuple(read_entries(path, {}).values())


def read_entries(path: Path, known: Known) -> Known:
    """Return all holders by their entries. known: those of the file before; an entry with the same
    bytes is not decoded again, since the kubelet writes all of them for each container. Raises
    CheckpointUnreadable."""
    try:
        with path.open("rb") as file:
            text = file.read(LARGEST_CHECKPOINT + 1)
    except OSError as error:
        raise CheckpointUnreadable(path, error.strerror or str(error)) from error
    if len(text) > LARGEST_CHECKPOINT:
        raise CheckpointUnreadable(path, f"larger than {LARGEST_CHECKPOINT} bytes")
    return _holders(text, path, known)


def parse_checkpoint(text: bytes, path: Path | str = "checkpoint") -> tuple[DeviceHolder, ...]:
    """Parse a checkpoint; raises CheckpointUnreadable."""
    return tuple(_holders(text, path, {}).values())


def _holders(text: bytes, path: Path | str, known: Known) -> Known:
    try:
        entries = map(bytes, msgspec.json.decode(text, type=_Checkpoint).data.entries or ())
        return {raw: known.get(raw) or _holder(raw) for raw in entries}
    except (ValueError, RecursionError) as error:
        raise CheckpointUnreadable(path, f"unknown shape ({error})") from error


def _holder(raw: bytes) -> DeviceHolder:
    one = msgspec.json.decode(raw, type=_Entry)
    ids = frozenset[str]().union(*filter(None, (one.by_node or {}).values()))
    uid = PodUID(one.pod_uid)
    return DeviceHolder(uid, one.container, one.resource, ids, one.response or "")
