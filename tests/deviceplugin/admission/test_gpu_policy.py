"""How a node without a scheduler's plan chooses the GPU for a share: its policy, or the pod's."""

from pathlib import Path

import pytest

from gpumanager.kube.pod import PodView
from tests.deviceplugin.admission.admission_node import Node, container, gpus, pod

TWO_SHARES = {
    "binpack": ("/dev/nvidia0", "/dev/nvidia0"),
    "least-waste": ("/dev/nvidia0", "/dev/nvidia0"),
    "spread": ("/dev/nvidia0", "/dev/nvidia1"),
}


def share(name: str, **annotations: str) -> PodView:
    return pod(name, container(30, 4), **annotations)


async def places(tmp_path: Path, of_node: str, **annotations: str) -> tuple[str, ...]:
    """Of two shares, one after the other."""
    node = Node(tmp_path, gpus(4))
    node.gpu_policy = of_node
    node.allocator = node.new_allocator()
    asked = [share("first", **annotations), share("second", **annotations)]
    for one in asked:
        await node.run(one)
    return tuple(path for one in asked for path in node.gpus_of(one))


@pytest.mark.parametrize("policy", sorted(TWO_SHARES))
async def test_the_node_s_policy_chooses_the_gpu(tmp_path: Path, policy: str) -> None:
    assert await places(tmp_path, policy) == TWO_SHARES[policy]


@pytest.mark.parametrize(
    "annotations",
    [
        {"vcuda_gpu_policy": "spread"},
        {"vcuda_policy": "spread"},
        {"vcuda_policy": "binpack=0.2,spread=0.8,topology"},
        {"vcuda_policy": "binpack", "vcuda_gpu_policy": "spread"},
    ],
)
async def test_a_pod_s_policy_goes_before_the_node_s(
    tmp_path: Path, annotations: dict[str, str]
) -> None:
    assert await places(tmp_path, "binpack", **annotations) == TWO_SHARES["spread"]


@pytest.mark.parametrize(
    "annotations", [{"vcuda_gpu_policy": "tight"}, {"vcuda_policy": "spread=much"}]
)
async def test_a_word_that_is_no_policy_leaves_it_to_the_node(
    tmp_path: Path, annotations: dict[str, str]
) -> None:
    assert await places(tmp_path, "spread", **annotations) == TWO_SHARES["spread"]


async def test_what_the_scheduler_planned_goes_before_every_policy(tmp_path: Path) -> None:
    said = {"vcuda_gpu_policy": "spread", "predicate_gpu_idx_0": "2"}

    assert await places(tmp_path, "spread", **said) == ("/dev/nvidia2", "/dev/nvidia2")
