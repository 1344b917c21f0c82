"""Namespaces are held to their quotas, whoever asks at the same time and whatever is restarted."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumanager.ids import PodUID
from gpumanager.kube.access import Access
from gpumanager.kube.client import KubeClient
from gpumanager.names import ANNOTATION_ROOM_FOUND, VCORE
from gpumanager.scheduler.extender.requeue import FIRST_REQUEUE_SECONDS
from gpumanager.scheduler.node import Holder
from gpumanager.scheduler.quota.keeper import QuotaEvents, QuotaKeeper
from gpumanager.scheduler.quota.limits import NodeClass, Quotas, read_quotas
from gpumanager.scheduler.quota.rules import (
    Known,
    QuotaCollector,
    QuotaRules,
    Usage,
    cores_of,
    count,
)
from gpumanager.sim.cluster.objects import Key
from gpumanager.sim.cluster.server import SimulatedApiServer
from gpumanager.sim.in_memory import ManualClock
from tests.kube.kube_clients import client_of
from tests.scheduler.extender.test_bind_histories import NODES, STEPS, History
from tests.scheduler.scheduler_world import ask, node_object, pod, pod_object
from tests.scheduler.served_extender import Served, serving
from tests.scheduler.truth import moments
from tests.waiting import until

pytest_plugins = ["tests.scheduler.extender_fixtures"]

LABELS = {"tkestack.io/gpu-model": "T4", "tkestack.io/gpu-pool": "public"}
QUOTA = Key("configmaps", "kube-system", "gpuquota")
ONE = '{"default": {"quota": {"T4": 1}}}'
TWO = '{"default": {"quota": {"T4": 2}}}'


def labelled(name: str, labels: dict[str, str]) -> dict[str, Any]:
    item = node_object(name)
    return {**item, "metadata": {**item["metadata"], "labels": labels}}


def config_map(text: str) -> dict[str, Any]:
    metadata = {"name": "gpuquota", "namespace": "kube-system"}
    return {"metadata": metadata, "data": {"gpu_quota": text}}


class Ruled:
    """An extender that follows quotas."""

    def __init__(self, served: Served, keeper: QuotaKeeper) -> None:
        self.served = served
        self.keeper = keeper
        self._api = served.api

    async def write(self, text: str) -> None:
        """Somebody changes the ConfigMap, and the extender has heard of it."""
        before = self.keeper.known()
        await self._api.change(QUOTA, {"data": {"gpu_quota": text}})
        await until(lambda: self.keeper.known() != before)

    async def pod(self, name: str, *asks: tuple[int, int], **more: Any) -> Any:
        return await self.served.make("pods", pod_object(name, *asks, **more))

    async def filtered(self, pod: Any) -> tuple[list[str], dict[str, str]]:
        """Nodes that would do, and why others never will."""
        said = {"Pod": pod, "NodeNames": ["a", "b"]}
        found = await self.served.post("/scheduler/filter", said)
        assert not found["FailedNodes"]
        return found["NodeNames"], found["FailedAndUnresolvableNodes"]

    async def metrics(self) -> str:
        return (await self.served.get("/metrics"))[1]


@asynccontextmanager
async def ruled(api: SimulatedApiServer, **more: Any) -> AsyncIterator[Ruled]:
    client = client_of(api)
    events = QuotaEvents(client, "me")
    keeper = QuotaKeeper(client, "kube-system", "gpuquota", report=events.record)
    rules = QuotaRules(keeper.known)
    following = [asyncio.create_task(one.run()) for one in (keeper, events)]
    try:
        async with serving(api, rules=rules, **more) as served:
            served.server.metrics.add(QuotaCollector(keeper.known, rules.usage))
            yield Ruled(served, keeper)
    finally:
        for task in following:
            task.cancel()
        await asyncio.gather(*following, return_exceptions=True)


@pytest.fixture
async def cluster(api: SimulatedApiServer) -> SimulatedApiServer:
    """Two nodes of four T4 in the pool public."""
    for name in ("a", "b"):
        await api.create("nodes", labelled(name, LABELS))
    return api


@pytest.fixture
async def one(cluster: SimulatedApiServer) -> AsyncIterator[Ruled]:
    """The namespace default may use one GPU."""
    await cluster.create("configmaps", config_map(ONE))
    async with ruled(cluster) as extender:
        yield extender


async def test_a_pod_beyond_the_quota_goes_nowhere_and_the_reason_has_the_figures(
    one: Ruled,
) -> None:
    first = await one.pod("p", (70, 4))
    assert await one.served.bind(first, "a") == ""

    fitting, never = await one.filtered(await one.pod("q", (40, 4)))

    why = (
        "node(s) exceeded the GPU quota of namespace default "
        "(requested: T4=0.4, used: T4=0.7, limited: T4=1)"
    )
    assert (fitting, never) == ([], {"a": why, "b": why})
    assert (await one.filtered(await one.pod("r", (30, 4))))[0] == ["a", "b"]
    metrics = await one.metrics()
    series = 'gpumanager_extender_quota_gpus{kind="%s",model="T4",namespace="default"} %s'
    assert series % ("limit", 1.0) in metrics
    assert series % ("used", 0.7) in metrics


async def test_what_a_node_is_called_now_counts_for_who_is_there_already(one: Ruled) -> None:
    await one.served.bind(await one.pod("p", (100, 0)), "a")
    pod = await one.pod("q", (100, 0))
    assert (await one.filtered(pod))[0] == []

    labels = {"metadata": {"labels": {"tkestack.io/gpu-model": "A100"}}}
    await one.served.api.change(Key("nodes", "", "a"), labels)
    nodes = one.served.extender.state.nodes
    await until(lambda: "A100" in nodes["a"].kind.models)

    assert (await one.filtered(pod))[0] == ["b"]


async def test_what_is_not_understood_leaves_the_former_quota_and_is_said(
    one: Ruled, caplog: pytest.LogCaptureFixture
) -> None:
    assert "gpumanager_extender_quota_understood 1.0" in await one.metrics()

    await one.write('{"default": {"quota": {"T4": "many"}}}')

    assert (await one.filtered(await one.pod("p", (200, 0))))[0] == []
    assert (await one.filtered(await one.pod("q", (100, 0))))[0] == ["a", "b"]
    assert "gpumanager_extender_quota_understood 0.0" in await one.metrics()
    assert (
        "default.quota.T4: 'many' is not a number of GPUs; the previous quotas stay" in caplog.text
    )
    (event,) = await until(lambda: list(one.served.api.objects.list("events")))
    assert event["reason"] == "QuotaNotUnderstood"
    assert event["metadata"]["namespace"] == "kube-system"
    assert event["involvedObject"]["kind"] == "ConfigMap"
    assert event["involvedObject"]["uid"] == one.served.api.objects.get(QUOTA)["metadata"]["uid"]
    assert "ConfigMap kube-system/gpuquota, key gpu_quota" in event["message"]


def test_a_quota_counts_from_when_it_is_understood_until_it_is_gone() -> None:
    keeper = QuotaKeeper(KubeClient(Access("http://127.0.0.1:1")), "kube-system", "gpuquota")
    kind, asked = NodeClass(frozenset({"T4"}), "public"), pod("p", (30, 4))
    one = Known(read_quotas(ONE), changes=1)

    assert not keeper.known().read
    keeper.put(config_map("{"))
    check = QuotaRules(keeper.known).permits(asked, ask((30, 4)))
    assert check is not None
    why = check(kind)
    assert why is not None
    assert why.phrase == "node(s) were not judged: the GPU quota is not understood"
    assert "line 1, column" in why.detail
    keeper.put(config_map(ONE))
    assert keeper.known() == one
    keeper.put(config_map("{"))
    assert (keeper.known().quotas, bool(keeper.known().trouble)) == (one.quotas, True)
    keeper.put(config_map(TWO))
    assert keeper.known().changes == 2
    keeper.only(set())
    assert keeper.known() == Known({}, changes=3)


async def test_who_waits_for_a_quota_is_brought_to_mind_once_that_is_larger(
    cluster: SimulatedApiServer,
) -> None:
    """kube-scheduler does not know what it waits for."""
    clock = ManualClock(100.0)
    await cluster.create("configmaps", config_map(ONE))
    async with ruled(cluster, clock=clock) as one:
        first, late = await one.pod("p", (100, 0)), await one.pod("q", (100, 0))
        await one.served.bind(first, "a")
        await until(lambda: first["metadata"]["uid"] in one.served.extender.state.bound)
        assert (await one.filtered(late))[0] == []
        clock.now += FIRST_REQUEUE_SECONDS

        await one.write(TWO)

        await until(lambda: ANNOTATION_ROOM_FOUND in one.served.pod("q")["metadata"]["annotations"])


async def test_before_quotas_are_read_nothing_is_answered(api: SimulatedApiServer) -> None:
    known = [Known({})]
    rules = QuotaRules(lambda: known[0])
    async with serving(api, rules=rules) as served:
        known[0] = Known()

        async with served.session.post(
            "/scheduler/filter", json={"Pod": pod_object("p", (30, 4), uid="u"), "NodeNames": []}
        ) as answer:
            assert answer.status == 503
            assert "GPU quotas are still being read" in await answer.text()
        assert (await served.get("/readyz"))[0] == 503


@pytest.mark.parametrize(
    ("shape", "cores"),
    [
        (ask((30, 4), (20, 4)), 50),
        (ask((30, 4), inits=[(100, 0), (200, 0)]), 200),
        (ask((300, 0), inits=[(200, 0)]), 300),
        (ask((30, 4), inits=[(50, 4)], sidecars=[(40, 4)]), 90),
        (ask((60, 4), inits=[(50, 4)], sidecars=[(40, 4)]), 100),
    ],
)
def test_pods_count_as_kubernetes_counts_them(shape: Any, cores: int) -> None:
    assert cores_of(shape) == cores


kinds = st.sampled_from([NodeClass(frozenset({"T4"}), "x"), NodeClass(frozenset({"A100", "B"}))])
steps = st.tuples(
    st.sampled_from("abc"), kinds, st.sampled_from("uvw"), st.sampled_from([0, 1, 30, 100, 200])
)


@given(st.lists(steps, max_size=60))
def test_use_is_the_sum_of_what_is_held(history: list[tuple[str, NodeClass, str, int]]) -> None:
    rules = QuotaRules(lambda: Known({}))
    there: dict[tuple[str, str], tuple[NodeClass, int]] = {}
    for node, kind, uid, cores in history:
        if cores:
            shape = ask((cores, 4 if cores < 100 else 0))
            rules.held(node, kind, PodUID(uid), Holder(shape, None, "n"))
            there[node, uid] = kind, cores
        else:
            rules.gone(node, PodUID(uid))
            there.pop((node, uid), None)

        again = Usage()
        for one, amount in there.values():
            count(again, "n", one, amount)
        assert rules.usage == again


def test_looking_leaves_the_books_as_they_were() -> None:
    rules = QuotaRules(lambda: Known(read_quotas(ONE)))
    kind, asked = NodeClass(frozenset({"T4"})), pod("p", (60, 4))
    rules.held("a", kind, asked.uid, Holder(ask((60, 4)), None, "default"))
    check = rules.permits(asked, ask((60, 4)))
    assert check is not None

    assert check(kind) is None
    assert rules.usage["default", "T4"] == 60


class QuotaHistory(History):
    """Two of the three GPUs are what the namespace may use. Who is on no node uses none."""

    nodes_stay = True
    quotas: Quotas = read_quotas(TWO)

    def start(self) -> None:
        for name in NODES:
            labels = {"metadata": {"labels": LABELS}}
            self.objects.patch(Key("nodes", "", name), labels)
        super().start()

    def rules(self) -> QuotaRules:
        return QuotaRules(lambda: Known(self.quotas))

    def wrong(self) -> list[str]:
        cores = sum(_cores(one) for one in self.objects.list("pods") if _is_there(one))
        return [*super().wrong(), *(["quota"] if cores > 200 else [])]


def _is_there(item: Any) -> bool:
    return item["spec"].get("nodeName") and item["status"]["phase"] not in {"Succeeded", "Failed"}


def _cores(item: Any) -> int:
    """At its worst moment, from the object alone."""
    return max(
        sum(int(one["resources"]["limits"][VCORE]) for one in moment) for moment in moments(item)
    )


@given(st.integers(0, 1 << 32))
def test_no_quota_is_exceeded_whatever_happens_in_whatever_order(seed: int) -> None:
    QuotaHistory(random.Random(seed)).run(STEPS)


def test_the_histories_bind_pods_up_to_the_quota() -> None:
    histories = [QuotaHistory(random.Random(seed)) for seed in range(3)]

    for history in histories:
        history.run(STEPS)

    assert sum(history.bound for history in histories) > 9
