"""The state follows the API server through outages, forgotten history and odd objects."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gpumanager.kube.backoff import Backoff
from gpumanager.kube.informer import Informer
from gpumanager.kube.pod import PodView
from gpumanager.scheduler.state import ClusterState
from gpumanager.scheduler.watching import PodWatch, node_store
from gpumanager.sim.cluster.server import SimulatedApiServer
from tests.kube.kube_clients import client_of
from tests.scheduler.scheduler_world import node_object, plan, pod_object
from tests.waiting import until

pytest_plugins = ["tests.scheduler.extender_fixtures"]

SOON = Backoff(0.01, 0.02)


class Following:
    def __init__(self, api: SimulatedApiServer) -> None:
        server = client_of(api)
        self.state = ClusterState()
        self.nodes = Informer(server, node_store(self.state), backoff=SOON)
        self.pods = Informer(server, PodWatch(self.state), backoff=SOON)

    def free(self, name: str) -> int:
        """Cores."""
        node = self.state.nodes.get(name)
        books = [] if node is None else [node.free_gpus.of(gpu) for gpu in node.topology.gpus]
        return sum(book.cores for book in books)


@asynccontextmanager
async def following(api: SimulatedApiServer) -> AsyncIterator[Following]:
    one = Following(api)
    tasks = [asyncio.create_task(part.run()) for part in (one.nodes, one.pods)]
    try:
        await one.nodes.listed.wait()
        await one.pods.listed.wait()
        yield one
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def held(name: str) -> dict[str, object]:
    return pod_object(name, (60, 4), node="a", vcuda_plan=plan(app_0=["GPU-a-0"]))


async def test_what_cannot_be_followed_is_not_current_until_it_is_again(
    api: SimulatedApiServer,
) -> None:
    async with following(api) as one:
        await until(lambda: one.pods.current)
        await api.stop()
        await until(lambda: not one.pods.current)
        await api.start()

        await until(lambda: one.pods.current)


async def test_everything_is_read_anew_when_asked_for(api: SimulatedApiServer) -> None:
    async with following(api) as one:
        lists = one.pods.lists

        one.pods.resync()

        assert one.pods.listed.is_set()
        assert not one.pods.synced.is_set()
        await one.pods.synced.wait()
        assert one.pods.lists == lists + 1


class OnePodFails(PodWatch):
    """As if one pod were a mistake of ours."""

    def put(self, item: Any) -> None:
        if item["metadata"]["name"] == "odd":
            raise OverflowError("int too big to convert")
        super().put(item)


async def test_a_pod_that_cannot_be_read_stays_what_it_was_and_the_others_go_on(
    api: SimulatedApiServer,
) -> None:
    await api.create("nodes", node_object("a"))
    await api.create("pods", pod_object("odd", (60, 4), node="a"))
    async with following(api) as one:
        assert one.free("a") == 340
        server = client_of(api)
        again = Informer(server, OnePodFails(one.state), backoff=SOON)
        await api.create("pods", pod_object("other", (60, 4), node="a"))

        await again.list()

        assert one.free("a") == 280
        assert again.skipped.counts == {"/api/v1/pods": 1}


async def test_a_bound_pod_whose_annotations_break_us_counts_with_what_its_spec_asks(
    api: SimulatedApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await api.create("nodes", node_object("a"))
    await api.create("pods", held("p"))
    one = Following(api)
    known = one.state.pod

    def breaks(pod: PodView, node: str) -> None:
        if pod.annotations:
            raise OverflowError("int too big to convert")
        known(pod, node)

    monkeypatch.setattr(one.state, "pod", breaks)
    await one.nodes.list()
    await one.pods.list()

    assert one.free("a") == 340
    assert one.pods.skipped.counts == {"/api/v1/pods": 1}
