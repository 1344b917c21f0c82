"""Moments in which no pods can be read, wherever they fall in an admission: nothing is lost.

The pod's init container and its first app container have the same devices, so that the wrong one of
their two directories would pass for the right one.
"""

from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

import pytest

from gpumanager.kube.pod import ContainerKind, PodView
from gpumanager.kubelet.pods import PodsUnavailable
from gpumanager.names import VCORE, VMEMORY
from gpumanager.sim.in_memory import SimulatedPods
from gpumanager.units import MEMORY_BLOCK
from tests.deviceplugin.admission.admission_node import ORDERS, Node, container, gpus, pod

LOOKS = 5
CORES, MEMORY = ORDERS
PAIRWISE = [
    (CORES, CORES, CORES),
    (CORES, MEMORY, MEMORY),
    (MEMORY, CORES, MEMORY),
    (MEMORY, MEMORY, CORES),
]
"""What is asked for first of each container: of any two containers all four combinations."""


@dataclass
class Flickering(SimulatedPods):
    """Each look but the last ones finds the list, or does not, as told."""

    blind: list[bool] = field(default_factory=list)

    async def pods(self) -> tuple[PodView, ...]:
        if self.blind and self.blind.pop(0):
            raise PodsUnavailable("http://kubelet", "timed out")
        return await super().pods()


ONE = pod(
    "a",
    container(20, 4, "look", ContainerKind.INIT),
    container(20, 4, "small"),
    container(40, 8, "large"),
)


async def admitted(
    directory: Path, orders: tuple[tuple[str, str], ...], blind: tuple[bool, ...], step: float
) -> Node:
    """step: seconds between two looks at the clock; pairs of calls may be too far apart to tell."""
    node = Node(directory, gpus(1))
    listing = Flickering(blind=list(blind))
    node.listing = listing
    node.allocator = node.new_allocator()
    node.listing.listed[ONE.uid] = ONE
    node.clock.step = step
    reusable: dict[str, set[str]] = {VCORE: set(), VMEMORY: set()}
    for one, order in zip(ONE.containers, orders, strict=True):
        await node._admit_container(ONE, one, reusable, order)
    listing.blind.clear()
    node.clock.step = 0.001
    return node


@pytest.mark.parametrize("orders", PAIRWISE)
async def test_each_container_finds_its_own_limits_where_its_answer_says(
    tmp_path: Path, orders: tuple[tuple[str, str], ...]
) -> None:
    for number, (blind, step) in enumerate(
        product(product((False, True), repeat=LOOKS), (0.001, 3.0))
    ):
        directory = tmp_path / str(number)
        directory.mkdir()
        node = await admitted(directory, orders, blind, step)

        for one in ONE.containers:
            await node.start(ONE, one.name)

            mounted = node.answers[ONE.uid, one.name].envs["VCUDA_ALLOCATION"]
            found = {str(name): limits for name, limits in node.virtual.open_now.items()}
            assert mounted in found, (one.name, blind, step)
            limits = [limit.memory for limit in found[mounted]]
            assert limits == [(one.blocks or 0) * MEMORY_BLOCK], (one.name, blind, step)
