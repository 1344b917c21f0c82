"""Which signs of another manager count, and when one counts as gone."""

from typing import Any

import pytest

from gpumanager.gpu.values import GpuUUID
from gpumanager.names import WHOLE_GPU
from gpumanager.node_status.other_managers import (
    Ownership,
    condition_of_ownership,
    decide,
    event_between,
    foreign_resources,
    other_managers,
    reason_of,
    remembered,
)

GPU, ANOTHER = GpuUUID("GPU-0"), "GPU-9"
FOUND = "NVIDIA's device plugin or HAMi's (the node has nvidia.com/gpu: 8)"
GRACE = 300.0


def node(**status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "n1"}, "status": status}


def marked(**metadata: dict[str, str]) -> dict[str, Any]:
    return {"metadata": {"name": "n1", **metadata}}


def shaken(text: str) -> dict[str, Any]:
    return marked(annotations={"hami.io/node-handshake": text})


def pod(resource: str, amount: str = "1", **status: Any) -> dict[str, Any]:
    container = {"name": "main", "resources": {"limits": {resource: amount}}}
    return {"spec": {"containers": [container]}, "status": status}


ADMITTED: dict[str, Any] = {"containerStatuses": [{"name": "main"}]}


@pytest.mark.parametrize(
    ("found", "names"),
    [
        (node(), []),
        (node(capacity={"cpu": "8"}, allocatable={"cpu": "8"}), []),
        (
            node(allocatable={"nvidia.com/gpu": "8"}),
            ["NVIDIA's device plugin or HAMi's"],
        ),
        # all GPUs of the other plugin are unhealthy, or it has just stopped
        (
            node(capacity={"nvidia.com/gpu": "8"}, allocatable={"nvidia.com/gpu": "0"}),
            ["NVIDIA's device plugin or HAMi's"],
        ),
        # the kubelet keeps the name of a plugin that is gone
        (
            node(capacity={"nvidia.com/gpu": "0"}, allocatable={"nvidia.com/gpu": "0"}),
            [],
        ),
        (node(capacity={"nvidia.com/mig-1g.10gb": "7"}), ["NVIDIA's device plugin"]),
        (node(capacity={"nvidia.com/gpu.shared": "4"}), ["NVIDIA's device plugin"]),
        (node(capacity={"nvidia.com/vgpu-number": "80"}), ["vgpu-manager"]),
        (node(capacity={"volcano.sh/vgpu-number": "10"}), ["Volcano's device plugin"]),
        # ours: by the device plugin, by claims, and by the scheduler alone
        (node(capacity={"tencent.com/vcuda-core": "800", WHOLE_GPU: "8"}), []),
        (marked(labels={"nvidia.com/mps.capable": "true"}), ["NVIDIA's MPS control daemon"]),
        (shaken("Reported 2024-01-23 04:30:04"), ["HAMi"]),
        (shaken("Deleted_2024.01.23 04:30:04"), []),
    ],
)
def test_a_node_shows_another_manager_by_its_resources_and_marks(
    found: dict[str, Any], names: list[str]
) -> None:
    assert [one.partition(" (")[0] for one in other_managers(found, (), {}, (GPU,))] == names


def test_a_handshake_that_is_not_renewed_is_left_over() -> None:
    assert other_managers(shaken("Reported 1"), (), {}, (GPU,), renewed=False) == ()


def slice_of(driver: str, gpu: str) -> dict[str, Any]:
    attributes = {"uuid": {"string": gpu}, "index": {"int": 0}}
    devices = [{"name": "gpu-0", "attributes": attributes}]
    return {"metadata": {"name": "s"}, "spec": {"driver": driver, "devices": devices}}


@pytest.mark.parametrize(
    ("driver", "gpu", "signs"),
    [
        ("gpu.nvidia.com", GPU, ["ResourceSlice s has GPU-0)"]),
        ("gpu.nvidia.com", ANOTHER, []),  # a GPU that is passed through to a virtual machine
        ("gpu.tencent.com", GPU, []),
    ],
)
def test_a_slice_counts_if_another_driver_has_one_of_our_gpus(
    driver: str, gpu: str, signs: list[str]
) -> None:
    assert [
        one.partition("(")[2] for one in other_managers(node(), [slice_of(driver, gpu)], {}, (GPU,))
    ] == signs


@pytest.mark.parametrize(
    ("described", "held"),
    [
        (pod("nvidia.com/gpu", phase="Running", **ADMITTED), ("nvidia.com/gpu",)),
        (pod("nvidia.com/gpu", phase="Pending", **ADMITTED), ("nvidia.com/gpu",)),
        (pod("nvidia.com/gpu", phase="Pending"), ()),  # the kubelet has not admitted it
        (pod("nvidia.com/gpu", "0", phase="Running", **ADMITTED), ()),
        (pod("nvidia.com/gpu", phase="Succeeded", **ADMITTED), ()),
        (
            pod(
                "nvidia.com/gpu", phase="Running", extendedResourceClaimStatus={"x": 1}, **ADMITTED
            ),
            (),
        ),
        (pod(WHOLE_GPU, phase="Running", **ADMITTED), ()),
        (pod("cpu", phase="Running", **ADMITTED), ()),
    ],
)
def test_a_pod_holds_another_managers_gpu_until_it_ends(
    described: dict[str, Any], held: tuple[str, ...]
) -> None:
    assert foreign_resources(described) == held


def test_a_pod_whose_plugin_is_gone_still_counts() -> None:
    gone = node(capacity={"nvidia.com/gpu": "0"})
    pods = {"a/train": ("nvidia.com/gpu",)}

    assert other_managers(gone, (), pods, (GPU,)) == (
        "NVIDIA's device plugin or HAMi's (pod a/train has nvidia.com/gpu)",
    )


def test_a_pod_shows_nothing_on_a_node_that_never_had_its_resource() -> None:
    """The kubelet ignores such a request, so anybody could write it."""
    pods = {"a/train": ("nvidia.com/gpu",)}

    assert other_managers(node(), (), pods, (GPU,)) == ()


@pytest.mark.parametrize(
    ("before", "found", "now", "after"),
    [
        (Ownership(), "", 5.0, Ownership()),
        (Ownership(), FOUND, 5.0, Ownership(FOUND)),
        (Ownership(FOUND), "", 5.0, Ownership(FOUND, 5.0)),
        (Ownership(FOUND, 5.0), "", 304.9, Ownership(FOUND, 5.0)),
        (Ownership(FOUND, 5.0), "", 305.0, Ownership()),
        # the kubelet restarted, and the plugin has registered again
        (Ownership(FOUND, 5.0), FOUND, 20.0, Ownership(FOUND)),
    ],
)
def test_a_manager_is_gone_after_some_time_without_a_sign(
    before: Ownership, found: str, now: float, after: Ownership
) -> None:
    assert decide(before, found, now, GRACE) == after


def test_an_agent_that_starts_goes_on_where_the_one_before_it_was() -> None:
    message = condition_of_ownership(Ownership(FOUND)).message
    ready = {"type": "Ready", "status": "True", "message": "kubelet"}
    ours = {"type": "OtherGpuManager", "status": "True", "message": message}

    began = remembered(node(conditions=[ready, ours]))

    assert decide(began, "", 0.0, GRACE).gone_since == 0.0
    assert condition_of_ownership(began).message == message
    assert remembered(node(conditions=[ready, ours | {"status": "False"}])) == Ownership()
    assert remembered(node()) == Ownership()


def test_the_reason_says_what_was_found_and_how_long_it_takes() -> None:
    assert reason_of(Ownership(), 0.0, GRACE) == ""
    assert reason_of(Ownership(FOUND), 0.0, GRACE) == (
        f"another manager has this node's GPUs: {FOUND}"
    )
    assert reason_of(Ownership(FOUND, 10.0), 110.0, GRACE) == (
        f"another manager had this node's GPUs: {FOUND}; no sign of it now, 200 s to wait"
    )


def test_events_and_the_condition_tell_of_a_manager_that_came_and_went() -> None:
    came, went = Ownership(FOUND), Ownership()
    events = [event_between(went, came), event_between(came, Ownership(FOUND, 1.0)),
              event_between(came, went), event_between(went, went)]  # fmt: skip

    assert [one and one.reason for one in events] == [
        "OtherGpuManager", None, "OtherGpuManagerGone", None,
    ]  # fmt: skip
    assert condition_of_ownership(came).status is True
    assert condition_of_ownership(went).status is False
