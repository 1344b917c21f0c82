"""The loop around the claim controller and the scheduler, beside a simulated API server."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

from gpumanager.sim.claims.controller import claim_writes
from gpumanager.sim.claims.pod_claims import is_done
from gpumanager.sim.claims.scheduler import PodUnschedulable, schedule
from gpumanager.sim.claims.slices import PoolSlice, read_slice
from gpumanager.sim.claims.writes import ObjectWrite, apply_writes, with_status
from gpumanager.sim.cluster.server import SimulatedApiServer

Object = Mapping[str, Any]


class ClaimControlPlane:
    """choose: among nodes that fit a pod equally well; kube-scheduler takes any."""

    def __init__(
        self,
        server: SimulatedApiServer,
        *,
        choose: Callable[[Sequence[Object]], Object] = lambda best: best[0],
    ) -> None:
        self._server = server
        self._choose = choose
        self._slices: dict[tuple[str, str], PoolSlice] = {}
        """By name and version, so that each is read once."""

    async def run(self) -> None:
        """Settle after each change, until it is cancelled."""
        while True:
            version = self._server.objects.version
            await self.settle()
            if self._server.objects.version == version:
                await self._server.changed_since(version)

    async def settle(self) -> None:
        """Write what claims need, until there is nothing more; then schedule what waits."""
        objects = self._server.objects
        while True:
            writes = claim_writes(
                list(objects.list("pods")),
                list(objects.list("resourceclaims")),
                list(objects.list("resourceclaimtemplates")),
            )
            if not writes:
                break
            await self._server.apply(partial(apply_writes, writes=writes))
        for pod in sorted(objects.list("pods"), key=_age):
            spec = pod.get("spec") or {}
            waits = pod["metadata"].get("deletionTimestamp") or spec.get("schedulingGates")
            if not (spec.get("nodeName") or waits or is_done(pod)):
                await self._schedule(pod)

    async def _schedule(self, pod: Object) -> None:
        objects = self._server.objects
        known, self._slices = self._slices, {}
        for item in objects.list("resourceslices"):
            read = item["metadata"]["name"], item["metadata"]["resourceVersion"]
            self._slices[read] = known.get(read) or read_slice(item)
        found = schedule(
            pod,
            list(objects.list("nodes")),
            list(objects.list("resourceclaims")),
            list(objects.list("deviceclasses")),
            list(self._slices.values()),
            now=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            choose=self._choose,
        )
        writes = list(found.writes)
        if isinstance(found, PodUnschedulable):
            conditions = (pod.get("status") or {}).get("conditions") or ()
            others = [one for one in conditions if one["type"] != "PodScheduled"]
            scheduled = {
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": found.reason,
            }
            if scheduled not in conditions:
                changed = with_status(pod, conditions=[*others, scheduled])
                writes.append(ObjectWrite("update_status", "pods", changed))
        if writes:
            await self._server.apply(partial(apply_writes, writes=writes))


def _age(pod: Object) -> tuple[str, int]:
    metadata = pod["metadata"]
    return metadata["creationTimestamp"], int(metadata["resourceVersion"])
