"""An extender's page over a cluster that is made up: nodes of two kinds, pods on some of them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from gpumanager.names import LABEL_MODEL
from gpumanager.scheduler.quota.limits import read_quotas
from gpumanager.scheduler.quota.rules import Known, QuotaRules
from gpumanager.sim.cluster.server import SimulatedApiServer
from tests.scheduler.scheduler_world import node_object, pod_object
from tests.scheduler.served_extender import Served, serving
from tests.waiting import until

QUOTAS = '{"default": {"quota": {"T4": 200}}, "research": {"quota": {"T4": 12, "A100": 4}}}'


def rules() -> QuotaRules:
    known = Known(read_quotas(QUOTAS))
    return QuotaRules(lambda: known)


def node(name: str, **more: Any) -> dict[str, Any]:
    found = node_object(name, 8, **more)
    found["metadata"]["labels"] = {LABEL_MODEL: "T4"}
    return found


@asynccontextmanager
async def cluster(nodes: int = 60, every: int = 3, **more: Any) -> AsyncIterator[Served]:
    """With that many nodes of eight GPUs; every third has pods, every seventh a closed GPU."""
    api = SimulatedApiServer()
    await api.start()
    try:
        for number in range(nodes):
            name = f"gpu-node-{number}"
            unhealthy = [f"GPU-{name}-5"] if number % 7 == 3 else []
            await api.create("nodes", node(name, unhealthy=unhealthy))
        async with serving(api, rules=rules(), **more) as served:
            await fill(served, range(0, nodes, every))
            yield served
    finally:
        await api.stop()


async def fill(served: Served, nodes: range) -> None:
    """Bind pods as kube-scheduler would, and ask about two that fit on none of these nodes."""
    bound = 0
    for number in nodes:
        for name, ask in (("train", (200, 0)), ("serve", (60, 32)), ("notebook", (20, 4))):
            pod = await served.make("pods", pod_object(f"{name}-{number}", ask))
            where = f"gpu-node-{number}"
            await served.post("/scheduler/filter", {"Pod": pod, "NodeNames": [where]})
            assert await served.bind(pod, where) == ""
            bound += 1
    state = served.extender.state
    await until(lambda: state.counts["pods"] == bound and not state.counts["assumed"])
    for name, ask in (("pretrain-xl", (1600, 0)), ("pretrain-2", (800, 0))):
        pod = await served.make("pods", pod_object(name, ask))
        names = [f"gpu-node-{number}" for number in nodes]
        await served.post("/scheduler/filter", {"Pod": pod, "NodeNames": names})
        await until(partial(state.known.get, pod["metadata"]["uid"]))
