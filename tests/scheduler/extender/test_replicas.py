"""Two replicas: one binds, both know; nothing of the one before is forgotten by the next."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import pytest

from gpumanager.kube.lease import LeaderElection, LeaseTimes
from gpumanager.scheduler.extender import role
from gpumanager.scheduler.extender.bind import NoElection
from gpumanager.sim.cluster.objects import Key
from gpumanager.sim.cluster.server import SimulatedApiServer
from tests.kube.kube_clients import client_of
from tests.scheduler.scheduler_world import node_object, pod_object
from tests.scheduler.served_extender import Served, serving
from tests.waiting import until

pytest_plugins = ["tests.scheduler.extender_fixtures"]

TIMES = LeaseTimes(duration=60, deadline=40, retry=0.05)
"""Whoever leaves gives the lease back; nobody loses it because the machine is slow."""


def elected(api: SimulatedApiServer, us: str) -> Callable[..., LeaderElection]:
    return partial(LeaderElection, client_of(api), "kube-system", "extender", us, times=TIMES)


async def test_the_standby_answers_all_but_bind_and_takes_over(api: SimulatedApiServer) -> None:
    await api.create("nodes", node_object("a"))
    async with AsyncExitStack() as leaving:
        first = await leaving.enter_async_context(serving(api, election=elected(api, "first")))
        await until(lambda: first.extender.election.leads and not first.extender.missing)
        async with serving(api, election=elected(api, "second")) as second:
            pod = await first.make("pods", pod_object("p", (300, 0)))
            names = {"Pod": pod, "NodeNames": ["a"]}

            assert (await second.post("/scheduler/filter", names))["NodeNames"] == ["a"]
            assert "does not lead" in await second.bind(pod, "a")
            assert await second.get("/readyz") == (200, "ready, standing by\n")
            kept = [await keeps_the_connection(one, names) for one in (first, second)]
            assert kept == [True, False]
            assert await first.bind(pod, "a") == ""

            await leaving.aclose()
            await until(lambda: second.extender.election.leads and not second.extender.missing)
            another = await second.make("pods", pod_object("q", (200, 0)))
            assert "Insufficient" in await second.bind(another, "a")


async def keeps_the_connection(one: Served, asked: Any) -> bool:
    """A Service leads new connections to the leader; old ones stay with whom they have."""
    async with one.session.post("/scheduler/filter", json=asked) as answer:
        return answer.headers.get("Connection") != "close"


async def test_who_reads_the_pods_once_more_answers_and_binds_afterwards(
    api: SimulatedApiServer,
) -> None:
    await api.create("nodes", node_object("a"))
    async with serving(api) as one:
        pod = await one.make("pods", pod_object("p", (30, 4)))
        one.extender.pods.synced.clear()
        answer = await one.post("/scheduler/filter", {"Pod": pod, "NodeNames": ["a"]})
        binding = asyncio.create_task(one.bind(pod, "a"))
        done, _ = await asyncio.wait({binding}, timeout=0.1)

        assert answer["NodeNames"] == ["a"]
        assert not done
        one.extender.pods.synced.set()
        assert await binding == ""


async def test_the_pod_s_label_says_who_leads(
    api: SimulatedApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(role, "AGAIN_SECONDS", 0.01)
    await api.create("pods", pod_object("extender-0"))
    election = NoElection()
    election.leads = False

    def says() -> Any:
        item = api.objects.get(Key("pods", "default", "extender-0"))
        return item["metadata"].get("labels", {}).get("tencent.com/extender-role")

    writing = role.label_role(client_of(api), "default", "extender-0", election)
    task = asyncio.create_task(writing)
    await until(lambda: says() == "standby")
    api.refuse(500, "InternalError", 2)
    election.leads = True

    await until(lambda: says() == "leader")

    task.cancel()
