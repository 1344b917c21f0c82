"""Publishes the node's ResourceSlice: one write per change, and again after a deletion.

The kubelet deletes the slices of its node when it starts, and 30 s after a driver has disconnected.
The publisher watches the slice and writes only differences. A change waits a moment for others,
because the pods of one deployment come together.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from http import HTTPStatus
from typing import Any, Final

from gpumanager.dra.slice import CORDON_TAINT, PATH, TAINT, NodeGpus, resource_slice, slice_name
from gpumanager.gpu.values import GpuUUID
from gpumanager.kube.backoff import Backoff
from gpumanager.kube.claims import device_name
from gpumanager.kube.client import KubeClient
from gpumanager.kube.errors import ApiRefused, ApiUnavailable, Object
from gpumanager.kube.informer import Informer
from gpumanager.names import CLAIM_DRIVER

log = logging.getLogger(__name__)

DEBOUNCE_SECONDS: Final = 0.1
"""Of a slice that is created: it is there already."""


class PublishedSlice:
    """The slice as the API server has it. Kept by an informer. changed: called after a change."""

    path = PATH

    def __init__(self, name: str, changed: Callable[[], None]) -> None:
        self._name, self._changed = name, changed
        self.object: Any = None
        self.last: Any = None
        """The object, or the last one that there was."""

    def devices(self) -> frozenset[str]:
        """Return their names; none of a slice that is not there."""
        return frozenset(str(one["name"]) for one in _devices(self.object))

    def tainted(self, gpus: NodeGpus, key: str) -> frozenset[GpuUUID]:
        """Return those of these GPUs that had this taint in the last slice that there was."""
        names = {name for name, own, _ in _taints(self.last) if own == key}
        uuids = (gpu.uuid for gpu in gpus.topology.gpus)
        return frozenset(uuid for uuid in uuids if device_name(uuid) in names)

    def name(self, item: Any) -> str:
        return str(item["metadata"]["name"])

    def put(self, item: Any) -> None:
        """Keep the newest: an answer to a write may be newer than what the watch brings later."""
        if self.name(item) == self._name and _version(item) > _version(self.object):
            self.object = self.last = item
            self._changed()

    def remove(self, item: Any) -> None:
        if self.name(item) == self._name and _version(item) >= _version(self.object):
            self.only(set())

    def only(self, names: set[str]) -> None:
        if self._name not in names:
            self.object = None
        self._changed()


class SlicePublisher:
    """Publishes one node's slice. gpus: called for each write. writes: how many so far.

    judged: set once the health of the GPUs is known. Until then, and until it is known which are
    cordoned, the taints are those of the agent before this one: without them pods would be placed
    on a GPU that is out of use.
    """

    def __init__(
        self,
        api: KubeClient,
        node: str,
        gpus: Callable[[], Awaitable[NodeGpus]],
        *,
        judged: asyncio.Event,
    ) -> None:
        self._api, self._node, self._gpus, self._judged = api, node, gpus, judged
        self._backoff = self._fresh = Backoff(0.5, 30.0)
        self._due = asyncio.Event()
        self._uid = ""
        self.writes = 0
        self.published = PublishedSlice(slice_name(node), self.changed)
        fields = f"spec.driver={CLAIM_DRIVER},spec.nodeName={node}"
        self.informer = Informer(api, self.published, fields=fields)

    def changed(self) -> None:
        """Compare the slice with the node soon, and write it if it differs."""
        self._due.set()

    async def run(self) -> None:
        """Publish for as long as the task lives."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.informer.run())
            group.create_task(self._publish_changes())
            await self._judged.wait()
            self.changed()

    async def _publish_changes(self) -> None:
        await self.informer.listed.wait()
        while True:
            await self._due.wait()
            await asyncio.sleep(DEBOUNCE_SECONDS)
            self._due.clear()
            try:
                await self.publish()
            except (ApiRefused, ApiUnavailable) as error:
                if not self._backoff.failures:
                    log.warning("the node's ResourceSlice is not published: %s", error)
                self._backoff = self._backoff.failed()
                self._due.set()
                await asyncio.sleep(self._backoff.pause(random.random()))  # noqa: S311
            else:
                self._backoff = self._fresh

    async def publish(self) -> None:
        """Write it where it differs. Raises ApiRefused, ApiUnavailable."""
        if not self._uid or self.published.object is None:
            # A node that was deleted and has registered again has another UID: the garbage
            # collector deletes what names the one before, as often as it is written.
            node = await self._api.get(f"/api/v1/nodes/{self._node}")
            self._uid = str(node["metadata"]["uid"])
        gpus, published = await self._gpus(), self.published
        if not self._judged.is_set():
            gpus = replace(gpus, unhealthy=published.tainted(gpus, TAINT).union(gpus.unhealthy))
        if gpus.cordoned is None:
            gpus = replace(gpus, cordoned=published.tainted(gpus, CORDON_TAINT))
        wanted = resource_slice(self._node, self._uid, gpus)
        # The server takes each write for the beginning of a taint that says no time, and what
        # tolerates it for some seconds would have them anew with each change of the slice.
        before = _taints(published.last)
        for key, taint in _taints(wanted).items():
            if time := before.get(key, {}).get("timeAdded"):
                taint["timeAdded"] = time
        if _contents(published.object) == _contents(wanted):
            return
        written = await self._write(wanted)
        self.writes += 1
        published.put(written)
        log.debug("ResourceSlice %s is published", slice_name(self._node))

    async def _write(self, wanted: Object) -> Any:
        """Patch the slice, or create it. The list of devices is replaced as a whole, whoever wrote
        it before."""
        path = f"{PATH}/{slice_name(self._node)}"
        if self.published.object is not None:
            try:
                return await self._api.patch(path, wanted)
            except ApiRefused as error:
                if error.status != HTTPStatus.NOT_FOUND:
                    raise
        try:
            return await self._api.create(PATH, wanted)
        except ApiRefused as error:
            if error.status != HTTPStatus.CONFLICT:
                raise
        return await self._api.patch(path, wanted)


def _devices(item: Any) -> Sequence[Any]:
    return ((item or {}).get("spec") or {}).get("devices") or ()


def _taints(item: Any) -> dict[tuple[str, str, str], Any]:
    """Return the taints of a slice by device, key and effect."""
    return {
        (device["name"], one["key"], one["effect"]): one
        for device in _devices(item)
        for one in device.get("taints") or ()
    }


def _contents(item: Any) -> tuple[Any, Any] | None:
    return item and (item["metadata"].get("ownerReferences"), item.get("spec"))


def _version(item: Any) -> int:
    """Versions of one kind are numbers that grow (Kubernetes 1.35 and later guarantee it)."""
    if item is None:
        return -1
    text = str((item.get("metadata") or {}).get("resourceVersion", ""))
    return int(text) if text.isascii() and text.isdigit() else 0
