"""Who is being admitted, by the kubelet's list of pods and the journal alone, on three kubelets.

The newest tells of its pods over its Pods API, all of them by `/pods`.
"""

import asyncio
from collections.abc import AsyncIterator

import pytest

from gpumanager.grants.grant import State
from gpumanager.names import VCORE, VMEMORY
from gpumanager.sim.kubelet.kubelet import SimulatedKubelet
from gpumanager.sim.kubelet.pods import SimulatedPodList
from gpumanager.sim.kubelet.versions import KUBELET_1_20, KUBELET_1_36, KUBELET_1_37, KubeletVersion
from gpumanager.units import MEMORY_BLOCK
from tests.deviceplugin.agent_on_kubelet import BOUND, AgentOnKubelet, node_of, share

VERSIONS = [KUBELET_1_20, KUBELET_1_36, KUBELET_1_37]


@pytest.fixture(params=VERSIONS, ids=lambda version: version.number)
async def node(request: pytest.FixtureRequest) -> AsyncIterator[AgentOnKubelet]:
    version: KubeletVersion = request.param
    async with node_of(version) as node:
        await node.start_agent()
        yield node


@pytest.fixture
def by_http(node: AgentOnKubelet) -> AgentOnKubelet:
    """Its kubelet refuses the Pods API, as it does until all its sources of pods were heard."""
    node.kubelet.pods_api.ready = False
    return node


def thought_of(node: AgentOnKubelet) -> dict[str, str]:
    """Whom each promise was thought to be for, before its container started, by allocation."""
    live = node.allocator.node.journal.live()
    return {one.id: one.candidate.uid for one in live if one.candidate}


async def test_in_a_storm_of_equal_pods_each_is_known_when_it_is_admitted(
    node: AgentOnKubelet,
) -> None:
    pods = [share(f"equal-{n}", 10, 6) for n in range(20)]

    outcomes = await asyncio.gather(*map(node.kubelet.admit, pods))

    assert outcomes == [None] * len(pods)
    thought = thought_of(node)
    for pod in pods:
        await node.kubelet.prepare(pod, pod.containers[0])
        settled = node.allocation(pod)
        assert settled.state is State.CONFIRMED
        assert thought[settled.id] == pod.uid


async def test_pods_that_could_not_be_met_are_not_taken_for_the_one_admitted(
    node: AgentOnKubelet,
) -> None:
    """Rejected before the plugin was asked, they are as new as the pod after them."""
    await node.run(share("large", 90, 40))
    await node.run(share("larger", 60, 40))
    for n in range(3):
        assert await node.kubelet.admit(share(f"rejected-{n}", 60, 4)) is not None

    pod = share("met", 40, 4)
    assert await node.kubelet.admit(pod) is None

    assert pod.uid in thought_of(node).values()


async def own_limits(node: AgentOnKubelet) -> None:
    """Pods of all sizes, at once, each end up with their own."""
    pods = [share(f"own-{n}", 5 + n, 1 + n) for n in range(8)]
    outcomes = await asyncio.gather(*map(node.kubelet.admit, pods))
    assert outcomes == [None] * len(pods)
    for n, pod in enumerate(pods):
        assert await node.limited_to(pod) == (5 + n, (1 + n) * MEMORY_BLOCK)


@pytest.mark.parametrize("how", ["not believed", "forbidden", "silent"])
async def test_without_a_list_of_pods_nobody_waits_and_each_gets_its_own(
    by_http: AgentOnKubelet, how: str
) -> None:
    """Silent it is while the kubelet waits for an API server that is away."""
    http = by_http.kubelet.http
    http.token = "secret" if how == "not believed" else ""
    http.allowed = how != "forbidden"
    if how == "silent":
        http.answering.clear()
        by_http.wait_for_pods(0.01)

    async with asyncio.timeout(BOUND):
        await own_limits(by_http)


async def test_while_the_pods_api_does_not_answer_pods_is_read(by_http: AgentOnKubelet) -> None:
    lists, requests = by_http.kubelet.pods_api.lists, by_http.kubelet.http.requests

    await test_in_a_storm_of_equal_pods_each_is_known_when_it_is_admitted(by_http)

    assert by_http.kubelet.pods_api.lists == lists
    assert by_http.kubelet.http.requests > requests


async def test_the_pods_api_is_preferred_where_the_kubelet_has_it(node: AgentOnKubelet) -> None:
    requests = node.kubelet.http.requests

    pod = share("known", 10, 4)
    assert await node.run(pod) is None

    preferred = node.kubelet.version.pods_api
    assert (node.kubelet.pods_api.lists > 0) == preferred
    assert (node.kubelet.http.requests == requests) == preferred
    assert pod.uid in thought_of(node).values()


async def test_a_pod_may_have_been_refused_between_its_resources(node: AgentOnKubelet) -> None:
    """The next pod asks for the same; whichever resource of it comes first, it is known."""
    full = [share(f"full-{n}", 10, 62) for n in range(2)]
    assert [await node.run(pod) for pod in full] == [None, None]
    for n in range(6):
        assert await node.kubelet.admit(share(f"refused-{n}", 10, 8)) is not None
    for pod in full:
        node.kubelet.ended(pod.uid, failed=False)
        node.kubelet.delete(pod.uid)

    for n in range(6):
        pod = share(f"next-{n}", 10, 8)
        assert await node.kubelet.admit(pod) is None
        await node.kubelet.prepare(pod, pod.containers[0])
        assert node.allocation(pod).state is State.CONFIRMED
        assert await node.limited_to(pod) == (10, 8 * MEMORY_BLOCK)


@pytest.mark.parametrize("lag", [1, 100], ids=["one pod behind", "of long ago"])
async def test_a_list_that_is_old_costs_steering_alone(
    node: AgentOnKubelet, monkeypatch: pytest.MonkeyPatch, lag: int
) -> None:
    """Whichever way it comes: nobody gets what is another pod's."""
    await node.run(share("before"))
    kubelet = node.kubelet

    def lagging() -> SimulatedPodList:
        found = kubelet.pods
        for uid in [*found.statuses][1:][-lag:]:
            found = found.without(uid)
        return found

    monkeypatch.setattr(kubelet.pods_api, "_pods", lagging)
    monkeypatch.setattr(kubelet.http, "_pods", lagging)

    await own_limits(node)


async def test_admission_never_looks_at_pod_resources(
    node: AgentOnKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would make the kubelet forget what it is giving out."""
    looks: list[str] = []
    collect = SimulatedKubelet._collect

    def looked(kubelet: SimulatedKubelet) -> None:
        looks.append("collect")
        collect(kubelet)

    pods = [share(f"quiet-{n}", 10, 4) for n in range(6)]
    monkeypatch.setattr(SimulatedKubelet, "_collect", looked)
    for pod in pods:
        await node.run(pod)

    assert len(looks) == len(pods)  # the kubelet's own, one for each container


async def test_pods_listed_before_we_register_are_not_taken_for_new_ones() -> None:
    """A kubelet that starts knows its pods before it admits them again."""
    async with node_of(KUBELET_1_36) as node:
        await node.start_agent()
        running = [share(f"old-{n}", 10, 4) for n in range(3)]
        for pod in running:
            await node.run(pod)

        await node.kubelet.restart(before_pods=lambda: settled(node))
        fresh = share("fresh", 10, 4)
        await node.kubelet.admit(fresh)

        assert list(thought_of(node).values()).count(fresh.uid) == 1


async def settled(node: AgentOnKubelet) -> None:
    await node.kubelet.wait_for_devices((VCORE, VMEMORY), BOUND)


async def test_after_a_reboot_pods_keep_their_devices_if_we_are_there_first() -> None:
    async with node_of(KUBELET_1_36) as node:
        await node.start_agent()
        pod = share("survivor", 30, 8)
        await node.run(pod)
        held = node.allocation(pod)
        await node.plugin.stop()

        await node.kubelet.restart(rebooted=True, before_pods=node.start_agent)

        assert not node.kubelet.pods.statuses[pod.uid].phase.terminal
        assert await node.limited_to(pod) == (30, 8 * MEMORY_BLOCK)
        assert node.allocation(pod).ids.core_ids == held.ids.core_ids


async def test_after_a_reboot_pods_are_lost_where_the_kubelet_is_first() -> None:
    """So are all plugins' pods; kubelets of 1.20 do not ask."""
    fates = {}
    for version in VERSIONS:
        async with node_of(version) as node:
            await node.start_agent()
            pod = share("early", 30, 8)
            await node.run(pod)
            await node.plugin.stop()
            await node.kubelet.restart(rebooted=True)
            fates[version.number] = node.kubelet.pods.statuses[pod.uid].phase.terminal

    assert fates == {one.number: one is not KUBELET_1_20 for one in VERSIONS}
