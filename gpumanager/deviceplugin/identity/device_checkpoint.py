"""The kubelet's checkpoint of device IDs, the only proof of which container holds which.

The kubelet writes it before it starts a container; nothing else is asked (decision 0240). It is
replaced while we read it, so it is read up to three times.
"""

import asyncio
import base64
import logging
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Final

from google.protobuf.message import DecodeError

from gpumanager.deviceplugin.admission.transaction import View
from gpumanager.deviceplugin.api import deviceplugin_v1beta1_pb2 as pb
from gpumanager.deviceplugin.identity.resolution import BookedContainer, holding
from gpumanager.deviceplugin.identity.verdict import Checkpoint
from gpumanager.grants.refusals import NotResolved
from gpumanager.ids import PodUID
from gpumanager.kubelet.checkpoint import CheckpointUnreadable, DeviceHolder, Known, read_entries
from gpumanager.names import VCORE

logger = logging.getLogger(__name__)

READS: Final = 3
PAUSE: Final = 0.02
"""Seconds between two reads of a checkpoint that is absent, torn, or does not have the IDs yet."""


class DeviceCheckpoint:
    """The file at `path`, which is parsed again only when it is another one: the kubelet writes a
    new file each time and renames it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._last: tuple[tuple[int, ...], Known] = ((), {})

    async def read(self) -> Checkpoint | None:
        """Return the checkpoint; None where there is none to read."""
        try:
            now = self._path.stat()
            version = now.st_ino, now.st_size, now.st_mtime_ns, now.st_ctime_ns
            if version != self._last[0]:
                known = self._last[1]
                found = await asyncio.to_thread(read_entries, self._path, known)
                self._last = version, found
        except (CheckpointUnreadable, OSError) as error:
            logger.debug("%s", error)
            return None
        return tuple(self._last[1].values())

    async def containers(
        self, resource: str, ids: Collection[str], view: View | None
    ) -> tuple[Checkpoint, tuple[BookedContainer, ...]]:
        """Return the containers with exactly `ids`, and the checkpoint. Raises NotResolved if there
        is none."""
        for attempt in range(READS):
            if attempt:
                await asyncio.sleep(PAUSE)
            books = await self.read() or ()
            if found := holding(books, resource, ids, view):
                return books, found
        raise NotResolved(
            f"{self._path}: the kubelet's checkpoint does not say yet which container holds "
            f"these {len(ids)} devices of {resource}"
        )


def given(checkpoint: Iterable[DeviceHolder]) -> dict[tuple[PodUID, str], Mapping[str, str]]:
    """Return what each container was given to see with its cores, by the plugin's answer."""
    return {(h.pod_uid, h.container): _envs(h) for h in checkpoint if h.resource == VCORE}


def _envs(holder: DeviceHolder) -> Mapping[str, str]:
    """Return nothing where the answer is malformed."""
    try:
        response = base64.b64decode(holder.response)
        return dict(pb.ContainerAllocateResponse.FromString(response).envs)
    except (ValueError, DecodeError):
        return {}
