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


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


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
        self._slices: dict[str, tuple[str, PoolSlice]] = {}
        """By name, with the version that they were read of."""

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            version = self._server.objects.version
            await self.settle()
            if self._server.objects.version == version:
                await self._server.changed_since(version)

    async def settle(self) -> None:
        """Write what is to be written, until there is nothing more."""
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
            if _is_pending(pod):
                await self._schedule(pod)

    async def _schedule(self, pod: Object) -> None:
        objects = self._server.objects
        found = schedule(
            pod,
            list(objects.list("nodes")),
            list(objects.list("resourceclaims")),
            list(objects.list("deviceclasses")),
            self._published(),
            now=_now(),
            choose=self._choose,
        )
        if isinstance(found, PodUnschedulable):
            writes: Sequence[ObjectWrite] = [*found.writes, *_condition(pod, found.reason)]
        else:
            writes = found.writes
        if writes:
            await self._server.apply(partial(apply_writes, writes=writes))

    def _published(self) -> list[PoolSlice]:
        known, self._slices = self._slices, {}
        for item in self._server.objects.list("resourceslices"):
            name, version = item["metadata"]["name"], item["metadata"]["resourceVersion"]
            before = known.get(name)
            same = before is not None and before[0] == version
            self._slices[name] = before if before and same else (version, read_slice(item))
        return [one for _, one in self._slices.values()]


def _age(pod: Object) -> tuple[str, int]:
    metadata = pod["metadata"]
    return metadata["creationTimestamp"], int(metadata["resourceVersion"])


def _is_pending(pod: Object) -> bool:
    spec = pod.get("spec") or {}
    waits = pod["metadata"].get("deletionTimestamp") or spec.get("schedulingGates")
    return not (spec.get("nodeName") or waits or is_done(pod))


def _condition(pod: Object, reason: str) -> list[ObjectWrite]:
    """Nothing where the pod's status says so already."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    others = [one for one in conditions if one["type"] != "PodScheduled"]
    said = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": reason,
    }
    if said in conditions:
        return []
    return [ObjectWrite("update_status", "pods", with_status(pod, conditions=[*others, said]))]
