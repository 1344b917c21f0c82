"""The claim controller and the scheduler beside a simulated API server.

Each change of theirs is made at once, so that nothing comes between what is read and what is
written.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from gpumanager.sim.claims.controller import is_done, key_of, make_claims, release_claims
from gpumanager.sim.claims.scheduler import PodUnschedulable, schedule
from gpumanager.sim.claims.slices import PoolDevice, read_slice
from gpumanager.sim.cluster.objects import Objects
from gpumanager.sim.cluster.patch import MERGE
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

    async def run(self) -> None:
        """Settle after each change, until it is cancelled."""
        while True:
            version = self._server.objects.version
            await self.settle()
            if self._server.objects.version == version:
                await self._server.changed_since(version)

    async def settle(self) -> None:
        """Write what claims need; then schedule what waits, the oldest first."""
        await self._server.apply(self._settle)

    def _settle(self, objects: Objects) -> None:
        make_claims(objects)
        release_claims(objects)
        devices = dict[str, tuple[PoolDevice, ...]]()
        for one in objects.list("resourceslices"):
            devices[one["spec"].get("nodeName", "")] = read_slice(one)
        for pod in sorted(objects.list("pods"), key=_age):
            spec = pod.get("spec") or {}
            waits = pod["metadata"].get("deletionTimestamp") or spec.get("schedulingGates")
            if not (spec.get("nodeName") or waits or is_done(pod)):
                self._schedule(objects, pod, devices)

    def _schedule(
        self, objects: Objects, pod: Object, devices: Mapping[str, Sequence[PoolDevice]]
    ) -> None:
        key = key_of("pods", pod)
        found = schedule(
            pod,
            list(objects.list("nodes")),
            list(objects.list("resourceclaims")),
            list(objects.list("deviceclasses")),
            devices,
            now=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            choose=self._choose,
        )
        if isinstance(found, PodUnschedulable):
            conditions = (pod.get("status") or {}).get("conditions") or ()
            scheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
            others = [one for one in conditions if one["type"] != "PodScheduled"]
            rows = [*others, {**scheduled, "message": found.reason}]
            objects.patch(key, MERGE, {"status": {"conditions": rows}}, status=True)
            return
        for claim in found.claims:
            where = key_of("resourceclaims", claim)
            if where not in objects.rows:
                objects.create(where, claim)
            finalizers = {"finalizers": claim["metadata"]["finalizers"]}
            objects.patch(where, MERGE, {"metadata": finalizers})
            objects.patch(where, MERGE, {"status": claim["status"]}, status=True)
        objects.patch(key, MERGE, {"status": found.status}, status=True)
        objects.bind(key, {"target": {"name": found.node}})


def _age(pod: Object) -> tuple[str, int]:
    metadata = pod["metadata"]
    return metadata["creationTimestamp"], int(metadata["resourceVersion"])
