"""The kubelet's device checkpoint: which container of which pod holds which device IDs.

It is written once a container's last device resource is allocated, so at PreStartContainer it
tells the truth, with the pod's UID, also for init containers (PodResources does not list those).
It is the kubelet's own file and has had three shapes: IDs in a list or, from 1.20 on, by NUMA node;
and the entries at the top or, since 1.10, below `Data`. What is of no shape at all is refused as a
whole: of a file that says one thing wrongly nothing else is believed.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gpumanager.errors import GpuManagerError
from gpumanager.kube.pod import PodUID

LARGEST: Final = 64 << 20
"""Bytes; a node with 512 pods of 4,000 devices each has some 40 MiB."""


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


def read_checkpoint(path: Path) -> tuple[DeviceHolder, ...]:
    """All holders in the kubelet's order; raises CheckpointUnreadable."""
    try:
        with path.open("rb") as file:
            text = file.read(LARGEST + 1)
    except OSError as error:
        raise CheckpointUnreadable(path, error.strerror or str(error)) from error
    if len(text) > LARGEST:
        raise CheckpointUnreadable(path, f"larger than {LARGEST} bytes")
    return parse_checkpoint(text, path)


def parse_checkpoint(text: bytes, path: Path | str = "checkpoint") -> tuple[DeviceHolder, ...]:
    """Holders in any of the shapes; raises CheckpointUnreadable."""
    try:
        whole = json.loads(text)
        entries = whole.get("Data", whole)["PodDeviceEntries"] or []
        return tuple(_holder(entry) for entry in entries)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointUnreadable(path, f"unknown shape ({error})") from error


def _holder(entry: Any) -> DeviceHolder:
    return DeviceHolder(
        pod_uid=PodUID(_text(entry["PodUID"])),
        container=_text(entry["ContainerName"]),
        resource=_text(entry["ResourceName"]),
        ids=frozenset(map(_text, _ids(entry["DeviceIDs"]))),
    )


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} is no text")
    return value


def _ids(ids: Any) -> Iterable[str]:
    match ids:
        case None:
            return ()
        case list():
            return ids
        case dict():
            return (name for node in ids.values() for name in _ids_of(node))
    raise TypeError(f"DeviceIDs is {type(ids).__name__}")


def _ids_of(node: Any) -> list[Any]:
    """Of one NUMA node."""
    if node is not None and not isinstance(node, list):
        raise TypeError(f"a NUMA node's devices are {type(node).__name__}")
    return node or []
