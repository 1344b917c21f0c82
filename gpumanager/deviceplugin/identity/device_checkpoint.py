"""The kubelet's books of devices, from whichever of its sources has an answer.

First its checkpoint, which is exact and free of side effects; it is replaced while we read it, so
it is read up to three times. Then PodResources `Get` of the pods that the IDs were thought to be
for; `List` last, and only while no pod is under admission, because it makes the kubelet rebuild its
table of used IDs.
"""

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Final, Protocol

from gpumanager.deviceplugin.admission.transaction import View
from gpumanager.deviceplugin.device_ledger import ids_of
from gpumanager.deviceplugin.identity.resolution import BookedContainer, holding
from gpumanager.deviceplugin.identity.verdict import Checkpoint
from gpumanager.grants.grant import Grant
from gpumanager.grants.refusals import NotResolved
from gpumanager.ids import PodUID
from gpumanager.kubelet.checkpoint import (
    CheckpointFile,
    CheckpointUnreadable,
    DeviceHolder,
    read_answers,
)
from gpumanager.kubelet.pod_resources import NamedHolder
from gpumanager.names import VCORE

logger = logging.getLogger(__name__)

READS: Final = 3
PAUSE: Final = 0.02
"""Seconds between two reads of a checkpoint that is absent, torn, or does not have the IDs yet."""

Names = tuple[str, str]
"""Namespace and name of a pod."""


class PodResourcesSource(Protocol):
    """The kubelet's PodResources API; knows of nobody where it does not answer."""

    async def get(self, namespace: str, name: str) -> tuple[NamedHolder, ...]: ...

    async def list(self) -> tuple[NamedHolder, ...]: ...


class DeviceCheckpoint:
    """The device IDs of each container, by the kubelet. checkpoint: its file."""

    def __init__(self, checkpoint: Path, pod_resources: PodResourcesSource | None = None) -> None:
        self._path = checkpoint
        self._file = CheckpointFile(checkpoint)
        self._pod_resources = pod_resources

    async def read(self) -> Checkpoint | None:
        """Return the checkpoint; None where there is none to read."""
        if (known := self._file.unchanged()) is not None:
            return known
        try:
            return await asyncio.to_thread(self._file.read)
        except CheckpointUnreadable as error:
            logger.debug("%s", error)
            return None

    async def envs(self) -> dict[tuple[PodUID, str], dict[str, str]]:
        """What each container was given to see with its cores; empty where that is not known."""
        try:
            answered = await asyncio.to_thread(read_answers, self._path)
        except CheckpointUnreadable as error:
            logger.debug("%s", error)
            return {}
        return {(one.pod_uid, one.container): one.envs for one in answered if one.resource == VCORE}

    async def listed(self, view: View | None, uids: Mapping[Names, PodUID]) -> Checkpoint:
        """By PodResources `List`: never while a pod may be under admission.

        uids: of pods that `view` does not have.
        """
        if self._pod_resources is None:
            return ()
        return _with_uids(await self._pod_resources.list(), {**uids, **_uids(view)})

    async def containers(
        self,
        resource: str,
        ids: Collection[str],
        view: View | None,
        live: Collection[Grant],
        *,
        admitting: bool,
    ) -> tuple[Checkpoint, tuple[BookedContainer, ...]]:
        """Return the containers with exactly `ids`, and the checkpoint. Raises NotResolved if there
        is none.

        live: the grants; admitting: whether a pod may be under admission.
        """
        for attempt in range(READS):
            if attempt:
                await asyncio.sleep(PAUSE)
            books = await self.read() or ()
            if found := holding(books, resource, ids, view):
                return books, found
        for allocation in live if self._pod_resources else ():
            who = allocation.pod or allocation.candidate
            if self._pod_resources and who and set(ids_of(allocation, resource)) == set(ids):
                answer = await self._pod_resources.get(who.namespace, who.name)
                uids = {(who.namespace, who.name): who.uid} | _uids(view)
                books += _with_uids(answer, uids)
        found = holding(books, resource, ids, view)
        if not found and not admitting:
            books += await self.listed(view, {})
            found = holding(books, resource, ids, view)
        if not found:
            raise NotResolved(
                f"{self._path}: the kubelet's checkpoint does not say yet which container holds "
                f"these {len(ids)} devices of {resource}"
            )
        return books, found


def _uids(view: View | None) -> dict[Names, PodUID]:
    return {(pod.namespace, pod.name): pod.uid for pod in view or ()}


def _with_uids(named: Iterable[NamedHolder], uids: Mapping[Names, PodUID]) -> Checkpoint:
    """Holders as the checkpoint would have them; one whose pod's UID is unknown is left out."""
    return tuple(
        DeviceHolder(uids[one.namespace, one.pod], one.container, one.resource, one.ids)
        for one in named
        if (one.namespace, one.pod) in uids
    )
