"""One agent takes the place of another, on kubelets that keep plugins in three different ways."""

from collections.abc import AsyncIterator, Iterator

import pytest

from gpumanager.names import VCORE, VMEMORY
from gpumanager.sim.kubelet.versions import KUBELET_1_20, KUBELET_1_36, KUBELET_1_37
from gpumanager.sim.manifest.pods import Pod
from tests.deviceplugin.agent_on_kubelet import BOUND, AgentOnKubelet, node_of, share

BOTH = (VCORE, VMEMORY)


@pytest.fixture(
    params=[KUBELET_1_20, KUBELET_1_36, KUBELET_1_37], ids=lambda version: version.number
)
async def node(request: pytest.FixtureRequest) -> AsyncIterator[AgentOnKubelet]:
    async with node_of(request.param) as node:
        await node.start_agent()
        yield node


async def admitted(node: AgentOnKubelet, pods: Iterator[Pod]) -> Pod:
    """The first that is: a kubelet may notice an agent's end only while it admits one."""
    async for pod in _each(node, pods):
        if await node.run(pod) is None:
            return pod
    raise AssertionError("out of pods")


async def _each(node: AgentOnKubelet, pods: Iterator[Pod]) -> AsyncIterator[Pod]:
    for pod in pods:
        await node.kubelet.wait_for_devices(BOTH, BOUND)
        yield pod


def many(name: str) -> Iterator[Pod]:
    return (share(f"{name}-{number}") for number in range(1000))


async def test_a_new_agent_takes_over_while_the_old_one_is_still_connected(
    node: AgentOnKubelet,
) -> None:
    old, before = node.plugin, await admitted(node, many("before"))
    sockets = set(node.sockets())

    await node.start_agent()
    await node.plugin.registered(BOUND)
    assert sockets < set(node.sockets())  # nobody removed the old one's
    assert [one.registered for one in old.standings] == [True, True]
    await old.stop()

    after = await admitted(node, many("after"))
    assert node.allocation(after).ids.core_ids
    assert node.allocation(before).ids.core_ids
    assert not sockets & set(node.sockets())


@pytest.mark.parametrize("restarts", [True, False], ids=["started anew", "registers anew"])
async def test_an_agent_that_begins_again_and_again_stays_registered(
    node: AgentOnKubelet, *, restarts: bool
) -> None:
    for number in range(3):
        if restarts:
            await node.plugin.stop()
            await node.start_agent()
        else:
            await node.plugin.registered(BOUND)
            node.plugin.register_anew()

        pod = await admitted(node, many(f"round-{number}"))

        assert node.allocation(pod).ids.core_ids


async def test_a_restarted_kubelet_has_the_agent_again(node: AgentOnKubelet) -> None:
    before = await admitted(node, many("before"))

    await node.kubelet.restart()

    after = await admitted(node, many("after"))
    assert node.allocation(before).ids.core_ids != node.allocation(after).ids.core_ids
