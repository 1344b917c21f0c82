"""The DRA manager: claims are prepared before a pod's sandbox, and unprepared after its last end.

Once a claim is prepared, neither another container, nor a container's restart, nor another pod of
the claim, nor the kubelet's restart prepares it again. (After its restart a kubelet does not know
what had been prepared, only for whom: a new sandbox, or one more pod, prepares it again.) Each call
has the claims of one pod for one driver.

A report of health is the complete list; a device that it leaves out keeps its health until that is
too old, and then it is unknown.
"""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from gpumanager.dra.api import dra_v1_pb2 as pb
from gpumanager.dra.api import drahealth_v1_pb2 as health_pb
from gpumanager.kube.errors import ApiRefused, ApiUnavailable
from gpumanager.kube.pod import ContainerKind
from gpumanager.sim.clock import NS, Timer
from gpumanager.sim.kubelet.dra.api import NodeApi
from gpumanager.sim.kubelet.dra.claims import (
    ClaimKey,
    ClaimRefused,
    ClaimState,
    allocated_claim,
    checkpoint_text,
    claim_keys,
    read_checkpoint_text,
)
from gpumanager.sim.kubelet.dra.drivers import DriverRegistry
from gpumanager.sim.kubelet.plugins import cancel
from gpumanager.sim.kubelet.pods import Phase, SimulatedPodList
from gpumanager.sim.kubelet.versions import KubeletVersion
from gpumanager.sim.manifest.pods import EXTENDED, ContainerManifest, Pod

CHECKPOINT: Final = "dra_manager_state"
PLUGINS_REGISTRY: Final = "plugins_registry"
REASON: Final = "FailedPrepareDynamicResources"
BACK_OFF_SECONDS: Final = 10.0
"""Before a pod that could not be ended is tried again."""
HEALTH_SECONDS: Final = 30.0
"""How long a report of health holds."""
HEALTH: Final = {health_pb.HEALTHY: "Healthy", health_pb.UNHEALTHY: "Unhealthy"}


class DraManager:
    """Of one node. root: the kubelet's directory. pods: as the kubelet has them now.

    sync_seconds: the kubelet's syncFrequency: so long a pod with claims that were refused waits,
    for it counts as synced.
    """

    def __init__(
        self,
        root: Path,
        version: KubeletVersion,
        *,
        api: NodeApi,
        pods: Callable[[], SimulatedPodList],
        timer: Timer,
        sync_seconds: float,
    ) -> None:
        self.claims: dict[ClaimKey, ClaimState] = {}
        """All that are prepared, are to be, or still have to be unprepared."""
        self.drivers = DriverRegistry(
            root / PLUGINS_REGISTRY, version.dra_health, timer, api.delete_slices, self._on_health
        )
        self._checkpoint = root / CHECKPOINT
        self._version = version
        self._api = api
        self._pods = pods
        self._timer = timer
        self._sync_seconds = sync_seconds
        self._sandboxes: set[str] = set()
        """UIDs of pods that run, or are to."""
        self._health = defaultdict[str, dict[tuple[str, str], tuple[int, str, str]]](dict)
        """By driver, then by pool and device: until when it holds, health, message."""
        self._serving = asyncio.Event()
        self._pods_changed = asyncio.Event()
        self._health_changed = asyncio.Event()
        self._reporting: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Raises ValueError where the checkpoint is corrupted."""
        with contextlib.suppress(FileNotFoundError):
            rows = read_checkpoint_text(self._checkpoint.read_text())
            self.claims = {row.key: row for row in rows}
        self._health.clear()
        self.drivers.start()
        self._reporting = [asyncio.create_task(self._report_health())]
        self._serving.set()

    async def stop(self) -> None:
        self._serving.clear()
        await cancel(self._reporting)
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
            except ClaimRefused as refused:
                message = (
                    f"Failed to prepare dynamic resources: prepare dynamic resources: {refused}"
                )
                with contextlib.suppress(ApiUnavailable, ApiRefused):
                    await self._api.event(pod, REASON, message)
                await self._pause(self._sync_seconds, self._pods_changed)
            else:
                # Gone meanwhile, perhaps: deleted by force while the driver prepared.
                return pod.uid in self._pods().active_uids
        return False

    async def unprepare(self, pod: Pod) -> None:
        """Unprepare, after the last container has stopped; return when it has succeeded."""
        while True:
            await self._serving.wait()
            try:
                await self._unprepare(pod)
            except ClaimRefused:
                await self._timer.sleep_until(self._timer.now() + round(BACK_OFF_SECONDS * NS))
            else:
                self._sandboxes.discard(pod.uid)
                return

    def cdi_ids(self, pod: Pod, container: ContainerManifest) -> tuple[str, ...]:
        """Return the CDI IDs of a container; raises ClaimRefused."""
        keys = claim_keys(pod)
        return tuple(
            one
            for row in container.claims
            for device in self._claim(keys[row.claim]).of_request(row.request)
            for one in device.cdi_device_ids
        )

    def claims_of(self, pod: Pod, container: ContainerManifest) -> list[ClaimState]:
        """Return what drivers have prepared for a container, by claim."""
        keys = claim_keys(pod)
        used = dict.fromkeys(keys[row.claim] for row in container.claims if row.claim in keys)
        return [self.claims[key] for key in used if key in self.claims]

    def _claim(self, key: ClaimKey) -> ClaimState:
        if key not in self.claims:
            raise ClaimRefused(
                f"internal error: unable to get claim info for ResourceClaim {key.name} "
                f"in namespace {key.namespace}"
            )
        return self.claims[key]

    async def _prepare(self, pod: Pod) -> None:
        """Prepare all of a pod's claims; raises ClaimRefused."""
        claims = []
        for wanted in pod.claims:
            if not wanted.claim:
                raise ClaimRefused(f'pod "{pod.full_name}": ResourceClaim not created yet')
            try:
                found = await self._api.claim(pod.namespace, wanted.claim)
            except (ApiUnavailable, ApiRefused) as error:
                raise ClaimRefused(f"fetch ResourceClaim {wanted.claim}: {error}") from error
            claims.append(allocated_claim(pod, wanted, found))
        drivers = {one.driver: self.drivers.get(one.driver) for one in claims if one.driver}
        batches = defaultdict[str, list[pb.Claim]](list)
        for claim in claims:
            row = self._attach(claim, pod.uid)
            if row.driver and not row.prepared:
                batches[row.driver].append(row.message())
        for driver, messages in batches.items():
            answer = await drivers[driver].prepare(messages)
            for key, result in _results("NodePrepareResources", messages, answer.claims):
                row = self._claim(key)
                # An older kubelet has the devices of a second preparation beside the first's.
                before = () if self._version.replaces_devices else row.devices
                self.claims[key] = replace(row, devices=(*before, *result.devices))
        for message in (message for messages in batches.values() for message in messages):
            key = ClaimKey(message.namespace, message.name)
            self.claims[key] = replace(self._claim(key), prepared=True)
        self._write()

    def _attach(self, claim: ClaimState, pod: str) -> ClaimState:
        """Add a pod to a claim; raises ClaimRefused."""
        row = self.claims.get(claim.key, claim)
        if row.uid != claim.uid:
            # The pod before was deleted by force and its claim freed and made anew, while the
            # driver was away. Example: a StatefulSet's pod with a claim by name.
            raise ClaimRefused(
                f"old ResourceClaim with same name {claim.key.name} and different UID {row.uid} "
                "still exists (previous pod force-deleted?!)"
            )
        if self._version.guards_unpreparing and row.unpreparing:
            raise ClaimRefused(f"ResourceClaim {claim.key.name} is being unprepared")
        self.claims[claim.key] = row = replace(row, pods=row.pods | {pod})
        self._write()
        return row

    async def _unprepare(self, pod: Pod) -> None:
        """Unprepare the claims that a pod leaves with nobody; raises ClaimRefused."""
        keys = [ClaimKey(pod.namespace, row.claim) for row in pod.claims]
        done: list[ClaimKey] = []
        batches = defaultdict[str, list[pb.Claim]](list)
        for row in [self.claims[key] for key in keys if key in self.claims]:
            if self._version.only_own and pod.uid not in row.pods:
                continue
            if len(row.pods) > 1:
                self.claims[row.key] = replace(row, pods=row.pods - {pod.uid})
                continue
            # Its last pod; for an older kubelet also a pod that was never attached to it.
            self.claims[row.key] = replace(row, unpreparing=True)
            done.append(row.key)
            if row.driver:
                batches[row.driver].append(row.message())
        for driver, messages in batches.items():
            answer = await self.drivers.get(driver).unprepare(messages)
            for _ in _results("NodeUnprepareResources", messages, answer.claims):
                pass
        for key in done:
            self.claims.pop(key, None)
        self._write()

    def _write(self) -> None:
        """Write the checkpoint atomically."""
        temporary = self._checkpoint.with_name(f".{CHECKPOINT}.new")
        temporary.write_text(checkpoint_text(self.claims.values()))
        temporary.replace(self._checkpoint)

    def _on_health(self, driver: str, report: Sequence[health_pb.DeviceHealth] | None) -> None:
        if report is None:  # the end of a stream, whichever instance's it was
            self._health.pop(driver, None)
            return
        until = self._timer.now() + round(HEALTH_SECONDS * NS)
        for one in report:
            row = until, HEALTH.get(one.health, "Unknown"), one.message
            self._health[driver][one.device.pool_name, one.device.device_name] = row
        self._health_changed.set()

    async def _report_health(self) -> None:
        """Report what drivers say; health that is too old when the pods are synced."""
        while True:
            await self._pause(self._sync_seconds, self._health_changed)
            self._health_changed.clear()
            for uid in tuple(self._sandboxes):
                status = self._pods().statuses.get(uid)
                if status is not None and status.phase is Phase.RUNNING and status.pod.claims:
                    rows = {
                        one.name: self._health_rows(status.pod, one)
                        for one in status.pod.containers
                        if one.kind is ContainerKind.APP and one.claims
                    }
                    with contextlib.suppress(ApiUnavailable, ApiRefused):
                        await self._api.report_health(status.pod, rows)

    def _health_rows(self, pod: Pod, container: ContainerManifest) -> list[Mapping[str, Any]]:
        """Return a container's `allocatedResourcesStatus`: by name, each resource once."""
        keys = claim_keys(pod)
        found: dict[str, dict[str, Mapping[str, Any]]] = {}
        for used in container.claims:
            if used.claim == EXTENDED or keys[used.claim] not in self.claims:
                continue
            claim = self.claims[keys[used.claim]]
            for device in claim.of_request(used.request.partition("/")[0]):
                place = device.pool_name, device.device_name
                until, health, message = self._health[claim.driver].get(place, (0, "", ""))
                resource = next(iter(device.cdi_device_ids), "/".join((claim.driver, *place)))
                known = self._timer.now() <= until
                row = {"resourceID": resource, "health": health if known else "Unknown"}
                row |= {"message": message} if known and message else {}
                name = f"claim:{used.claim}/{used.request}".rstrip("/")
                found.setdefault(name, {}).setdefault(resource, row)
        return [{"name": name, "resources": list(of.values())} for name, of in found.items()]

    async def _pause(self, seconds: float, event: asyncio.Event) -> None:
        """Wait so long, or for an event."""
        deadline = self._timer.now() + round(seconds * NS)
        waits = self._timer.sleep_until(deadline), event.wait()
        tasks: list[asyncio.Task[Any]] = [asyncio.create_task(one) for one in waits]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()


def _results(
    what: str, asked: Iterable[pb.Claim], results: Mapping[str, Any]
) -> Iterator[tuple[ClaimKey, Any]]:
    """Yield claims and results; raises ClaimRefused for one that failed, is unknown or missing."""
    keys = {message.uid: ClaimKey(message.namespace, message.name) for message in asked}
    for uid, result in results.items():
        if uid not in keys:
            raise ClaimRefused(f"{what} returned result for unknown claim UID {uid}")
        if result.error:
            raise ClaimRefused(f"{what} failed for ResourceClaim {keys[uid].name}: {result.error}")
        yield keys[uid], result
    if unfinished := len(keys) - len(results):
        raise ClaimRefused(f"{what} skipped {unfinished} ResourceClaims")
