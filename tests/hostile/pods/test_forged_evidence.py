"""What a pod says of itself is no evidence for another pod's grant.

Before, a pod without any GPU kept the GPUs of a pod that had ended: it set VCUDA_ALLOCATION to the
other's allocation, and the agent believed that a container still ran with it.
"""

import asyncio

import pytest

from gpumanager.grants.journal_file import FILE_NAME
from gpumanager.sim.manifest.pods import Pod
from tests.hostile.hostile_node import HostileNode, pod

pytestmark = pytest.mark.namespaces


def honest(name: str, cores: int, seconds: float) -> Pod:
    """It says its allocation, which any container may read of itself."""
    command = ("sh", "-c", f"echo $VCUDA_ALLOCATION; sleep {seconds}")
    return pod(name, command, cores=cores, memory=0)


async def test_a_pod_without_gpus_does_not_keep_the_gpus_of_a_pod_that_ended() -> None:
    async with HostileNode(**{"allocation-check-period": "100ms"}) as node:
        await node.run(honest("ended", 400, 0.2))
        claim = (("VCUDA_ALLOCATION", await node.first_line("ended")),)

        plain = pod("plain", ("sh", "-c", "echo runs; sleep 600"), cores=0, environment=claim)
        async with node.beside(plain):
            await node.first_line("plain")
            async with asyncio.timeout(120):  # until the reconciler has released what ended
                while await node.node.admit(pod("next", ("true",), cores=100, memory=0)):  # noqa: ASYNC110
                    await asyncio.sleep(0.1)


async def test_a_pod_that_names_another_s_allocation_keeps_its_own_gpus() -> None:
    """Also where the journal is lost and what runs has to tell."""
    async with HostileNode() as node, node.beside(honest("honest", 200, 600)):
        claim = (("VCUDA_ALLOCATION", await node.first_line("honest")),)
        command = ("sh", "-c", "echo runs; sleep 600")
        liar = pod("liar", command, cores=200, memory=0, environment=claim)
        async with node.beside(liar):
            await node.first_line("liar")
            await node.node.kill_agent()
            (node.node.disk.checkpoint / FILE_NAME).unlink()
            await node.node.start_agent()
            refused = await node.node.admit(pod("next", ("true",), cores=100, memory=0))

    assert refused is not None
