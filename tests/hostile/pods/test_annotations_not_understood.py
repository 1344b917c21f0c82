"""An annotation that is not understood never frees, hides or refuses.

Before, a number of 5,000 digits in an annotation of a pod was a traceback in the agent and an
UnexpectedAdmissionError for the pod; on a pod that ran, it made the extender forget the pod, so
that its GPU was given again and its namespace's quota was passed.
"""

from typing import Any

import pytest

from gpumanager.gpu.inventory import inventory
from gpumanager.gpu.values import Topology
from gpumanager.kube.pod import read_pod
from gpumanager.scheduler.scoring.packing import Packing
from gpumanager.scheduler.scoring.pod_shape import PodShape, pod_shape_of
from gpumanager.scheduler.state import ClusterState
from gpumanager.scheduler.watching import PodWatch, node_store
from gpumanager.sim.machines import load_machine
from tests.hostile.hostile_node import HostileNode, pod

DIGITS = "9" * 5000
CORE_LIMIT, INDEX, PLAN = (
    f"tencent.com/{name}" for name in ("vcuda-core-limit", "predicate-gpu-idx-0", "vcuda-plan")
)
ODD = [
    *((key, text) for key in (CORE_LIMIT, INDEX, PLAN) for text in
      (DIGITS, "1e999", "-1", "1_0", "\u0661", "0x1", " ", "," * 5000)),
    (PLAN, "[" * 100_000),
    (PLAN, f'{{"version":1,"containers":{{"main":{{"gpus":{DIGITS}}}}}}}'),
    (PLAN, f'{{"version":{DIGITS}}}'),
    (PLAN, '{"version":1,"containers":{"main":{"gpus":["\\\\ud800"]}}}'),
    (PLAN, '{"version":1e999,"containers":[]}'),
]  # fmt: skip


@pytest.mark.namespaces
async def test_a_pod_is_admitted_and_runs_whatever_its_annotations_say() -> None:
    async with HostileNode() as node:
        for number, (key, text) in enumerate(ODD[::4]):
            one = pod(f"odd{number}", ("true",), cores=10, memory=1, annotations={key: text})
            (result,) = await node.run(one)
            assert result.exit_code == 0
        log = node.node.disk.agent_log.read_text()

    assert "Traceback" not in log
    assert "digits" not in log


def gpu_pod(name: str, node: str = "", **annotations: str) -> dict[str, Any]:
    """Of one whole GPU."""
    limits = {"tencent.com/vcuda-core": "100"}
    spec = {"containers": [{"name": "main", "resources": {"limits": limits}}], "nodeName": node}
    metadata = {"name": name, "namespace": "d", "uid": f"u-{name}", "annotations": annotations}
    return {"metadata": metadata, "spec": spec, "status": {"phase": "Running" if node else ""}}


def extender_of(topology: Topology) -> tuple[ClusterState, PodWatch]:
    """What an extender knows that has just begun, of a cluster with one node."""
    state = ClusterState()
    annotations = inventory(topology, frozenset())
    node_store(state).put({"metadata": {"name": "n", "annotations": annotations}})
    return state, PodWatch(state)


@pytest.mark.parametrize(("key", "text"), ODD)
def test_a_bound_pod_counts_in_the_extender_whatever_its_annotations_say(
    key: str, text: str
) -> None:
    state, pods = extender_of(load_machine("single").topology)
    pods.put(gpu_pod("holder", "n", **{"tencent.com/gpu-assigned": "true", key: text}))

    asked = pod_shape_of(read_pod(gpu_pod("next")))

    assert isinstance(asked, PodShape)
    assert not isinstance(state.nodes["n"].place(asked), Packing)
    assert state.counts["pods"] == 1


def test_two_pods_that_name_one_gpu_count_as_two() -> None:
    """One of them lies: both have a GPU each, and no third pod may be sent there."""
    topology = load_machine("two-socket-pcie-8").topology
    state, pods = extender_of(topology)
    for number in range(len(topology.gpus)):
        pods.put(gpu_pod(f"holder{number}", "n", **{INDEX: DIGITS if number else "0"}))

    asked = pod_shape_of(read_pod(gpu_pod("next")))

    assert isinstance(asked, PodShape)
    assert not isinstance(state.nodes["n"].place(asked), Packing)
