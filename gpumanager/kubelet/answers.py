"""What device plugins answered to Allocate, as the kubelet's checkpoint keeps it.

Beside the device IDs each entry has the answer's bytes (`AllocResp`), with the environment that a
plugin gave: for an agent that has lost its own books this says which allocation a container has.
"""

import base64
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from gpumanager.ids import PodUID
from gpumanager.kubelet.checkpoint import CheckpointUnreadable, entries

_ENVS: Final = 1
_KEY, _VALUE = 1, 2


@dataclass(frozen=True, slots=True)
class Answered:
    """The environment that one container was given with one resource."""

    pod_uid: PodUID
    container: str
    resource: str
    envs: dict[str, str] = field(default_factory=dict)


def read_answers(path: Path) -> tuple[Answered, ...]:
    """Read the answers to all containers; raises CheckpointUnreadable."""
    try:
        return parse_answers(path.read_bytes(), path)
    except OSError as error:
        raise CheckpointUnreadable(path, error.strerror or str(error)) from error


def parse_answers(text: bytes, path: Path | str = "checkpoint") -> tuple[Answered, ...]:
    """Parse a checkpoint of any shape; raises CheckpointUnreadable."""
    return tuple(
        Answered(PodUID(one.pod_uid), one.container, one.resource, _envs(one.response or ""))
        for one in entries(text, path)
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
