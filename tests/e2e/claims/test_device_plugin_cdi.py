"""GPUs of extended resources handed over as CDI devices: `--device-plugin-cdi`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from gpumanager.names import CDI_PATH
from gpumanager.units import GIB
from tests.e2e.node.node_process import wait_for
from tests.e2e.node.real_agent import RealAgent
from tests.e2e.node.real_node import RealNode
from tests.e2e.node.real_pods import RealPods, container, gpus_seen, pod

pytest_plugins = ["tests.e2e.node_fixtures"]
pytestmark = pytest.mark.e2e

WANTS_MORE: Final = "cuda-play query; echo ready; cuda-play hold --memory 3GiB --seconds 600"


@pytest.fixture
def cdi_agent(claims_node: RealNode, agent: RealAgent) -> Iterator[RealAgent]:
    """The node's agent hands GPUs over so."""
    agent.stop()
    agent.flags = ("--device-plugin-cdi",)
    agent.start()
    agent.wait_until_advertised()
    yield agent
    agent.stop()
    agent.flags = ()
    agent.start()
    agent.wait_until_advertised()


def test_a_pod_with_the_two_lines_has_its_gpu_and_its_limit_by_a_cdi_device(
    cdi_agent: RealAgent, pods: RealPods
) -> None:
    """containerd knows the device by a file that is there as long as the grant."""
    uid = pods.create(pod("by-cdi", container("main", WANTS_MORE, 30, 8)))

    said = pods.printed("by-cdi", "main", "CUDA_ERROR_OUT_OF_MEMORY")
    (granted,) = cdi_agent.named_for(uid)
    assert gpus_seen(said) == {granted.gpus[0]: 2 * GIB}
    assert [one.name for one in files()] == [f"gpu.tencent.com-allocation_{granted.id}.json"]
    pods.create(pod("whole", container("main", "cuda-play query; echo ready", 200, 0)))
    assert len(gpus_seen(pods.printed("whole", "main", "ready"))) == 2

    pods.delete()

    wait_for(lambda: not files(), "the files go with the grants")


def files() -> list[Path]:
    return sorted(Path(CDI_PATH).glob("*"))
