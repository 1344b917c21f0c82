"""The DRA manager: claims are prepared before a pod's sandbox, and unprepared after its last end.

Once a claim is prepared, neither another container, nor a container's restart, nor another pod of
the claim, nor the kubelet's restart prepares it again. (After its restart a kubelet does not know
what had been prepared, only for whom: a new sandbox, or one more pod, prepares it again.) Each call
has the claims of one pod for one driver.
"""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, Final, TypeVar

from gpumanager.dra.api import dra_v1_pb2 as pb
from gpumanager.dra.api import drahealth_v1_pb2 as health_pb
from gpumanager.kube.errors import ApiRefused, ApiUnavailable
from gpumanager.kube.pod import ContainerKind
from gpumanager.sim.clock import NS, Timer
from gpumanager.sim.kubelet.dra.api import NodeApi
from gpumanager.sim.kubelet.dra.claims import (
    ClaimBooks,
    ClaimKey,
    ClaimRefused,
    HealthBooks,
    allocated_claim,
    checkpoint_text,
    claim_keys,
    read_checkpoint_text,
)
from gpumanager.sim.kubelet.dra.drivers import DriverRegistry, PluginWatcher
from gpumanager.sim.kubelet.pods import Phase, SimulatedPodList
from gpumanager.sim.kubelet.versions import DraBehavior
from gpumanager.sim.manifest.pods import EXTENDED, Pod

CHECKPOINT: Final = "dra_manager_state"
PLUGINS_REGISTRY: Final = "plugins_registry"
T = TypeVar("T")

REASON: Final = "FailedPrepareDynamicResources"
FAILED: Final = "Failed to prepare dynamic resources"
RECONCILE_SECONDS: Final = 60.0
BACK_OFF_SECONDS: Final = 10.0
"""Before a pod that could not be ended is tried again."""


class _Restarted(Exception):
    """The kubelet that began this ended meanwhile, and the next one has its checkpoint."""


class DraManager:
    """Of one node. root: the kubelet's directory. pods: as the kubelet has them now.

    sync_seconds: the kubelet's syncFrequency: so long a pod with claims that were refused waits,
    for it counts as synced.
    """

    def __init__(
        self,
        root: Path,
        behavior: DraBehavior,
        *,
        api: NodeApi,
        pods: Callable[[], SimulatedPodList],
        timer: Timer,
        sync_seconds: float,
    ) -> None:
        self.books = ClaimBooks()
        self.health = HealthBooks()
        self.drivers = DriverRegistry(behavior, timer, api.delete_slices, self._on_health)
        self._checkpoint = root / CHECKPOINT
        self._watcher = PluginWatcher(root / PLUGINS_REGISTRY, self.drivers, timer)
        self._behavior = behavior
        self._api = api
        self._pods = pods
        self._timer = timer
        self._sync_seconds = sync_seconds
        self._sandboxes: set[str] = set()
        """UIDs of pods that run, or are to."""
        self._run = 0
        self._serving = asyncio.Event()
        self._pods_changed = asyncio.Event()
        self._health_changed: set[str] = set()
        self._report = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Raises ValueError where the checkpoint is corrupted."""
        with contextlib.suppress(FileNotFoundError):
            self.books = read_checkpoint_text(self._checkpoint.read_text())
        self.health = HealthBooks()
        self._run += 1
        self.drivers.start()
        self._watcher.start()
        loops = (self._reconcile(), self._sync(), self._report_changes())
        self._tasks = [asyncio.create_task(loop) for loop in loops]
        self._serving.set()

    async def stop(self) -> None:
        self._serving.clear()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._watcher.stop()
        await self.drivers.stop()

    def pods_changed(self) -> None:
        """Wake those that wait for the claims of a pod: the pod may be gone."""
        before, self._pods_changed = self._pods_changed, asyncio.Event()
        before.set()

    async def prepare(self, pod: Pod) -> bool:
        """Prepare all claims before the sandbox; return False where the pod is gone.

        Each refusal is an event of the pod.
        """
        self._sandboxes.add(pod.uid)
        while pod.uid in self._pods().active_uids:
            await self._serving.wait()
            try:
                await self._prepare(pod)
            except _Restarted:
                continue
            except ClaimRefused as refused:
                message = (
                    f"Failed to prepare dynamic resources: prepare dynamic resources: {refused}"
                )
                with contextlib.suppress(ApiUnavailable, ApiRefused):
                    await self._api.event(pod, REASON, message)
                await self._pause(self._sync_seconds, unless_changed=True)
            else:
                # Gone meanwhile, perhaps: deleted by force while the driver prepared.
                return pod.uid in self._pods().active_uids
        return False

    async def unprepare(self, pod: Pod) -> None:
        """Unprepare, after the last container has stopped; return when it has succeeded."""
        names = [ClaimKey(pod.namespace, row.claim) for row in pod.claims if row.claim]
        while True:
            await self._serving.wait()
            known = self.books.of_pod(pod.uid) if self._behavior.only_own else ()
            try:
                await self._unprepare(pod.uid, known or names)
            except _Restarted:
                continue
            except ClaimRefused:
                await self._pause(BACK_OFF_SECONDS)
            else:
                self._sandboxes.discard(pod.uid)
                return

    async def _prepare(self, pod: Pod) -> None:
        """Prepare all of a pod's claims, or add none to the books; raises ClaimRefused."""
        claims = []
        for wanted in pod.claims:
            if not wanted.claim:
                raise ClaimRefused(f'pod "{pod.full_name}": ResourceClaim not created yet')
            try:
                found = await self._in_this_run(self._api.claim(pod.namespace, wanted.claim))
            except (ApiUnavailable, ApiRefused) as error:
                raise ClaimRefused(f"fetch ResourceClaim {wanted.claim}: {error}") from error
            claims.append(allocated_claim(pod, wanted, found))
        drivers = {one.driver: self.drivers.get(one.driver) for one in claims if one.driver}
        batches: dict[str, list[pb.Claim]] = defaultdict(list)
        for claim in claims:
            waits = self._behavior.guards_unpreparing
            self.books = self.books.attach(claim, pod.uid, waits=waits)
            self._write()
            row = self.books.rows[claim.key]
            if row.driver and not row.prepared:
                batches[row.driver].append(row.message())
        every = chain.from_iterable(batches.values())
        keys = {message.uid: ClaimKey(message.namespace, message.name) for message in every}
        for driver, messages in batches.items():
            answer = await self._in_this_run(drivers[driver].prepare(messages))
            for uid, result in _results("NodePrepareResources", messages, answer.claims):
                row = self.books.get(keys[uid])
                # An older kubelet has the devices of a second preparation beside the first's.
                before = () if self._behavior.replaces_devices else row.devices
                self.books = self.books.put(replace(row, devices=(*before, *result.devices)))
        for key in keys.values():
            self.books = self.books.put(replace(self.books.get(key), prepared=True))
        self._write()

    async def _unprepare(self, pod: str, keys: Iterable[ClaimKey]) -> None:
        """Unprepare the claims that a pod leaves; raises ClaimRefused."""
        done: list[ClaimKey] = []
        batches: dict[str, list[pb.Claim]] = defaultdict(list)
        for key in keys:
            self.books, last = self.books.detach(key, pod, only_own=self._behavior.only_own)
            if last is not None:
                done.append(key)
                if last.driver:
                    batches[last.driver].append(last.message())
        for driver, messages in batches.items():
            answer = await self._in_this_run(self.drivers.get(driver).unprepare(messages))
            for _ in _results("NodeUnprepareResources", messages, answer.claims):
                pass
        self.books = self.books.without(done)
        self._write()

    async def _in_this_run(self, call: Awaitable[T]) -> T:
        """Return the answer of a call; raises _Restarted where the kubelet has ended meanwhile."""
        run = self._run
        answer = await call
        if run != self._run:
            raise _Restarted
        return answer

    def _write(self) -> None:
        """Write the checkpoint atomically."""
        temporary = self._checkpoint.with_name(f".{CHECKPOINT}.new")
        temporary.write_text(checkpoint_text(self.books))
        temporary.replace(self._checkpoint)

    async def _reconcile(self) -> None:
        """Unprepare for pods that are gone and were not unprepared."""
        while True:
            await self._timer.sleep_until(self._timer.now() + round(RECONCILE_SECONDS * NS))
            known = self._pods().active_uids | self._sandboxes
            pods = {uid for row in self.books.rows.values() for uid in row.pods} - known
            for uid in sorted(pods):
                with contextlib.suppress(ClaimRefused):
                    await self._unprepare(uid, self.books.of_pod(uid))

    def _on_health(self, driver: str, report: Sequence[health_pb.DeviceHealth] | None) -> None:
        if report is None:
            self.health = self.health.clear(driver)
            return
        self.health, changed = self.health.update(driver, report, self._timer.now())
        self._health_changed |= self.books.pods_with(driver, changed)
        self._report.set()

    async def _report_changes(self) -> None:
        while True:
            await self._report.wait()
            self._report.clear()
            changed, self._health_changed = self._health_changed, set()
            for uid in sorted(changed):
                await self._report_pod(uid)

    async def _sync(self) -> None:
        """Report health that is too old: when its pod is synced, and not before."""
        while True:
            await self._pause(self._sync_seconds)
            for uid in tuple(self._sandboxes):
                await self._report_pod(uid)

    async def _report_pod(self, uid: str) -> None:
        status = self._pods().statuses.get(uid)
        if status is None or status.phase is not Phase.RUNNING or not status.pod.claims:
            return
        rows, keys = {}, claim_keys(status.pod)
        for one in status.pod.containers:
            if one.kind is not ContainerKind.APP or not one.claims:
                continue
            # By name, each resource once; `gpu/small` has those of `gpu`.
            found: dict[str, dict[str, Mapping[str, Any]]] = {}
            for used in one.claims:
                if used.claim == EXTENDED or keys[used.claim] not in self.books.rows:
                    continue
                claim = self.books.rows[keys[used.claim]]
                for device in claim.of_request(used.request.partition("/")[0]):
                    place = device.pool_name, device.device_name
                    health = self.health.get(claim.driver, place, self._timer.now())
                    resource = next(iter(device.cdi_device_ids), "/".join((claim.driver, *place)))
                    row = {"resourceID": resource, "health": health.health}
                    row |= {"message": health.message} if health.message else {}
                    name = f"claim:{used.claim}/{used.request}".rstrip("/")
                    found.setdefault(name, {}).setdefault(resource, row)
            rows[one.name] = [
                {"name": name, "resources": list(of.values())} for name, of in found.items()
            ]
        with contextlib.suppress(ApiUnavailable, ApiRefused):
            await self._api.report_health(status.pod, rows)

    async def _pause(self, seconds: float, *, unless_changed: bool = False) -> None:
        """Wait so long, or until the pods change."""
        deadline = self._timer.now() + round(seconds * NS)
        tasks: list[asyncio.Task[Any]] = [asyncio.create_task(self._timer.sleep_until(deadline))]
        if unless_changed:
            tasks.append(asyncio.create_task(self._pods_changed.wait()))
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()


def _results(what: str, asked: Sequence[pb.Claim], results: Mapping[str, Any]) -> Iterator[Any]:
    """Yield UIDs and results; raises ClaimRefused for one that failed, is unknown or missing."""
    names = {message.uid: message.name for message in asked}
    for uid, result in results.items():
        if uid not in names:
            raise ClaimRefused(f"{what} returned result for unknown claim UID {uid}")
        if result.error:
            raise ClaimRefused(f"{what} failed for ResourceClaim {names[uid]}: {result.error}")
        yield uid, result
    if unfinished := len(asked) - len(results):
        raise ClaimRefused(f"{what} skipped {unfinished} ResourceClaims")
