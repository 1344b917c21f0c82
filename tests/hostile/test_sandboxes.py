"""A sandbox inside of a container, with mounts of its own, without and with its allocation.

Before, a program in one without /etc/vcuda, as bubblewrap and apptainer make them, ran without
limits: it took all of the GPU's memory in a container of one GiB.
"""

import pytest

from tests.hostile.hostile_node import HostileNode, hostile

pytestmark = pytest.mark.namespaces

NOT_READY, NOT_LOADED = 802, 9
REFUSED = f"cuInit {NOT_READY} holds 0 nvml {NOT_LOADED} total 0"
COMPLAINT = (
    "vcuda: cuInit: this container has GPUs with limits, but /etc/vcuda is not there; in a "
    "sandbox of its own it has to be bound at the same path"
)


@pytest.mark.parametrize(
    "how", [(), ("clean",), ("elsewhere",), ("pids",)], ids=lambda how: "-".join(how) or "plain"
)
async def test_a_sandbox_without_the_allocation_is_refused(how: tuple[str, ...]) -> None:
    async with HostileNode() as node:
        await node.run(hostile("box", "sandbox.py", *how, cores=50, memory=4))

    assert node.said["box"] == [COMPLAINT, REFUSED]


@pytest.mark.parametrize(
    "how", [(), ("clean",), ("pids",)], ids=lambda how: "-".join(how) or "plain"
)
async def test_a_sandbox_with_the_allocation_bound_is_limited(how: tuple[str, ...]) -> None:
    async with HostileNode() as node:
        await node.run(hostile("box", "sandbox.py", "bound", *how, cores=50, memory=4))

    (line,) = node.said["box"]
    words = line.split()
    figures = dict(zip(words[::2], map(int, words[1::2]), strict=True))
    assert (figures["cuInit"], figures["nvml"], figures["total"]) == (0, 0, 1024)
    assert 512 <= figures["holds"] < 1024
