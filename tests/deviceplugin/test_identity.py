"""Who is being admitted, by `/pods` and the journal alone, on kubelets of 1.20 and of today."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from gpumanager.grants.journal import State
from gpumanager.names import VCORE, VMEMORY
from gpumanager.sim.kubelet.habits import KUBELET_1_20, KUBELET_1_36, Habits
from gpumanager.sim.kubelet.kubelet import SimulatedKubelet
from gpumanager.units import MEMORY_BLOCK
from tests.deviceplugin.agent_on_kubelet import BOUND, AgentOnKubelet, node_of, share

HABITS = [KUBELET_1_20, KUBELET_1_36]


@pytest.fixture(params=HABITS, ids=lambda habits: habits.version)
async def node(request: pytest.FixtureRequest) -> AsyncIterator[AgentOnKubelet]:
    habits: Habits = request.param
    async with node_of(habits) as node:
        await node.start_agent()
        yield node


def thought_of(node: AgentOnKubelet) -> dict[str, str]:
    """Whom each promise was thought to be for, before its container started, by allocation."""
    live = node.allocator.journal.live()
    return {one.allocation: one.candidate.uid for one in live if one.candidate}


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
        assert settled.state is State.SETTLED
        assert thought[settled.allocation] == pod.uid


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


async def test_a_pod_made_again_under_its_name_is_another(node: AgentOnKubelet) -> None:
    for n in range(4):
        pod = share("same", 10, 4 + n)
        assert await node.run(pod) is None
        assert await node.limited_to(pod) == (10, (4 + n) * MEMORY_BLOCK)
        node.kubelet.delete(pod.uid)


async def own_limits(node: AgentOnKubelet) -> None:
    """Pods of all sizes, at once, each end up with their own."""
    pods = [share(f"own-{n}", 5 + n, 1 + n) for n in range(8)]
    outcomes = await asyncio.gather(*map(node.kubelet.admit, pods))
    assert outcomes == [None] * len(pods)
    for n, pod in enumerate(pods):
        assert await node.limited_to(pod) == (5 + n, (1 + n) * MEMORY_BLOCK)


async def test_a_token_that_is_not_believed_costs_steering_alone(node: AgentOnKubelet) -> None:
    node.kubelet.http.token = "secret"
    before = node.kubelet.http.requests

    await own_limits(node)

    assert node.kubelet.http.requests == before


async def test_a_token_renewed_on_the_disk_is_used_from_the_next_call_on(
    node: AgentOnKubelet,
) -> None:
    node.kubelet.http.token = "renewed"
    await node.run(share("before"))
    before = node.kubelet.http.requests

    node.token.write_text("renewed\n")
    pod = share("after", 20, 4)
    await node.kubelet.admit(pod)

    assert node.kubelet.http.requests > before
    assert pod.uid in thought_of(node).values()


async def test_an_agent_that_may_not_read_pods_still_gives_each_its_own(
    node: AgentOnKubelet,
) -> None:
    node.kubelet.http.allowed = False

    await own_limits(node)


async def test_a_list_of_pods_that_never_comes_holds_no_admission_up(node: AgentOnKubelet) -> None:
    """As while the kubelet waits for an API server that is away."""
    node.kubelet.http.answering.clear()
    node.patience = 0.2

    async with asyncio.timeout(BOUND):
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
        assert node.allocation(pod).core_ids == held.core_ids


async def test_after_a_reboot_pods_are_lost_where_the_kubelet_is_first() -> None:
    """So are all plugins' pods; kubelets of 1.20 do not ask."""
    fates = {}
    for habits in HABITS:
        async with node_of(habits) as node:
            await node.start_agent()
            pod = share("early", 30, 8)
            await node.run(pod)
            await node.plugin.stop()
            await node.kubelet.restart(rebooted=True)
            fates[habits.version] = node.kubelet.pods.statuses[pod.uid].phase.terminal

    assert fates == {KUBELET_1_20.version: False, KUBELET_1_36.version: True}
