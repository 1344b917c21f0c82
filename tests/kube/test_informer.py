"""The mirror of a node's pods: it follows whatever the API server does."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpumanager.kube import client
from gpumanager.kube.access import Access
from gpumanager.kube.backoff import Backoff
from gpumanager.kube.client import KubeClient
from gpumanager.kube.informer import Informer
from gpumanager.node_status.pod_reconciler import NodePods
from gpumanager.sim.cluster.objects import Key
from gpumanager.sim.cluster.server import SimulatedApiServer
from tests.kube.api_world import ApiWorld, pod_object, until

pytest_plugins = ["tests.kube.api_fixtures"]

QUICK = Backoff(0.01, 0.05)


class Clock:
    """Hands on the loop's time, and more when told."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return asyncio.get_running_loop().time() + self.ahead


class Following(Informer):
    """Of one node's pods, as its agent follows them."""

    def __init__(self, world: ApiWorld, clock: Callable[[], float]) -> None:
        self.store = NodePods()
        super().__init__(
            world.api, self.store, fields=world.selector, cached=True, backoff=QUICK, clock=clock
        )


@asynccontextmanager
async def watching(
    world: ApiWorld, clock: Callable[[], float] | None = None
) -> AsyncIterator[Following]:
    watch = Following(world, clock or Clock())
    task = asyncio.create_task(watch.run())
    try:
        yield watch
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def names(watch: Following) -> set[str]:
    return {pod.name for pod in watch.store.all()}


async def has(watch: Following, *wanted: str) -> None:
    async def look() -> bool:
        return names(watch) == set(wanted)

    await until(look)


async def test_pods_come_change_and_go(world: ApiWorld) -> None:
    await world.pod("before")

    async with watching(world) as watch:
        await has(watch, world.full("before"))
        made = await world.pod("after")
        await has(watch, world.full("before"), world.full("after"))
        await world.fail("after", "no room")

        async def failed() -> bool:
            pod = watch.store.get(made["metadata"]["uid"])
            return pod is not None and pod.status.message == "no room"

        await until(failed)
        await world.delete(world.pod_path("before"))
        await has(watch, world.full("after"))


async def test_a_pod_that_is_bound_to_the_node_comes_at_that_moment(
    simulated: ApiWorld, server: SimulatedApiServer
) -> None:
    await server.create("pods", pod_object("a", ""))

    async with watching(simulated) as watch:
        await simulated.pod("b")
        await has(watch, simulated.full("b"))
        bound = {"spec": {"nodeName": simulated.node}}
        await server.change(Key("pods", "default", "a"), bound)
        await has(watch, "a", simulated.full("b"))


async def test_after_an_outage_it_goes_on_where_it_was(
    simulated: ApiWorld, server: SimulatedApiServer
) -> None:
    await simulated.pod("a")

    async with watching(simulated) as watch:
        await has(watch, simulated.full("a"))
        await server.stop()
        await server.create("pods", pod_object("b", simulated.node))
        await server.start()
        await has(watch, simulated.full("a"), "b")

        assert watch.lists == 1


async def test_what_the_server_has_forgotten_is_listed_again(
    simulated: ApiWorld, server: SimulatedApiServer
) -> None:
    await simulated.pod("a")

    async with watching(simulated) as watch:
        await has(watch, simulated.full("a"))
        await server.stop()
        await server.remove(Key("pods", "default", simulated.full("a")))
        await server.create("pods", pod_object("b", simulated.node))
        server.objects.forget()
        await server.start()
        await has(watch, "b")

        await until(lambda: up(watch, server, lists=2))
        assert server.calls[-1].query["resourceVersion"] == str(server.objects.version)


async def test_bookmarks_keep_a_quiet_watch_from_being_forgotten() -> None:
    server = SimulatedApiServer(bookmark_seconds=0.05)
    await server.start()
    world = ApiWorld(Access(server.url), server)

    async with watching(world) as watch:
        await until(lambda: up(watch, server))
        await server.create("pods", pod_object("stranger", "other"))
        await until(lambda: told_by_bookmark(watch, server))
        await server.forget()
        await server.create("pods", pod_object("a", world.node))
        await has(watch, "a")

        assert watch.lists == 1
    await world.api.close()
    await server.stop()


async def told_by_bookmark(watch: Following, server: SimulatedApiServer) -> bool:
    """No event of the node's pods would tell it so."""
    return watch.version == str(server.objects.version)


async def up(watch: Following, server: SimulatedApiServer, lists: int = 1) -> bool:
    return watch.lists == lists and "watch" in server.calls[-1].query


async def test_a_token_that_is_refused_is_said_once(
    simulated: ApiWorld, server: SimulatedApiServer, caplog: pytest.LogCaptureFixture
) -> None:
    await simulated.pod("a")
    server.token = "another"
    await server.cut()

    async with watching(simulated) as watch:

        async def tried() -> bool:
            return watch.failures >= 5

        await until(tried)
        server.token = ""
        await has(watch, simulated.full("a"))

    warnings = [one for one in caplog.records if one.levelname == "WARNING"]
    assert len(warnings) == 1
    assert "401" in warnings[0].message


async def test_a_server_that_ends_each_watch_at_once_is_not_overrun(
    simulated: ApiWorld,
    server: SimulatedApiServer,
) -> None:
    await simulated.pod("a")

    async with watching(simulated) as watch:
        await has(watch, simulated.full("a"))
        for _ in range(20):
            await server.cut()
            await asyncio.sleep(0.01)

    assert len(server.calls) < 40


async def test_a_watch_that_says_nonsense_is_begun_anew(
    simulated: ApiWorld, server: SimulatedApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await simulated.pod("a")
    real = KubeClient.watch
    said: list[Any] = [{"type": "ADDED", "object": 3}, {"type": "ERROR", "object": []}, {}]

    @asynccontextmanager
    async def watch(api: KubeClient, *place: Any, **query: Any) -> AsyncIterator[Any]:
        async with real(api, *place, **query) as events:
            yield nonsense() if said else events

    async def nonsense() -> AsyncIterator[Any]:
        yield said.pop()

    monkeypatch.setattr(KubeClient, "watch", watch)
    async with watching(simulated) as mirror:
        await until(lambda: spent(said))
        await server.remove(Key("pods", "default", simulated.full("a")))
        await has(mirror)

    assert made


async def spent(said: list[Any]) -> bool:
    return not said


async def test_an_object_that_is_no_pod_is_left_out(
    simulated: ApiWorld, server: SimulatedApiServer
) -> None:
    broken = pod_object("broken", simulated.node) | {"status": "none"}
    await server.create("pods", broken)

    async with watching(simulated) as watch:
        await simulated.pod("a")
        await has(watch, simulated.full("a"))


async def test_a_mirror_pod_made_anew_takes_the_place_of_the_one_before(
    simulated: ApiWorld,
    server: SimulatedApiServer,
) -> None:
    static = {"kubernetes.io/config.mirror": "k1", "kubernetes.io/config.hash": "k1"}
    item = pod_object("s", simulated.node, annotations=static)

    async with watching(simulated) as watch:
        await server.create("pods", item)
        await has(watch, "s")
        await server.remove(Key("pods", "default", "s"))
        again: Any = await server.create("pods", item)

        async def anew() -> bool:
            (pod,) = watch.store.all() or (None,)
            return pod is not None and pod.uid == again["metadata"]["uid"]

        await until(anew)

    (pod,) = watch.store.all()
    assert pod.kubelet_uid == "k1"


STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["make", "change", "remove"]), st.integers(0, 4)),
        st.tuples(st.sampled_from(["cut", "outage", "forget", "bookmark", "wait"]), st.just(0)),
    ),
    max_size=25,
)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(steps=STEPS)
async def test_after_any_history_the_mirror_is_what_the_server_has(
    steps: list[tuple[str, int]],
) -> None:
    server = SimulatedApiServer(bookmark_seconds=0.01)
    await server.start()
    world = ApiWorld(Access(server.url), server)

    async with watching(world) as watch:
        for step, number in steps:
            await play(server, world.node, step, f"p{number}")
        wanted = {
            (row["metadata"]["uid"], row["metadata"]["resourceVersion"])
            for row in server.objects.list("pods")
        }

        async def same() -> bool:
            return {(pod.uid, pod.status.version) for pod in watch.store.all()} == wanted

        await until(same)
    await world.api.close()
    await server.stop()


async def play(server: SimulatedApiServer, node: str, step: str, name: str) -> None:
    key = Key("pods", "default", name)
    if step == "make" and key not in server.objects.rows:
        await server.create("pods", pod_object(name, node))
    elif step == "change" and key in server.objects.rows:
        stamp = {"metadata": {"annotations": {"tried": str(server.objects.version)}}}
        await server.change(key, stamp)
    elif step == "remove" and key in server.objects.rows:
        await server.remove(key)
    elif step == "outage":
        await server.stop()
        await asyncio.sleep(0.005)
        await server.start()
    elif step == "forget":
        await server.forget()
    elif step == "cut":
        await server.cut()
    else:
        await asyncio.sleep(0.002)


async def test_a_silent_server_is_left_in_time(
    simulated: ApiWorld, server: SimulatedApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "CALL_SECONDS", 0.05)
    server.answering.clear()

    with pytest.raises(Exception, match="no answer in time"):
        await simulated.api.get("/api/v1/pods")

    server.answering.set()
