"""What is read from a pod's JSON object."""

from typing import Any

import pytest

from gpumanager.kube.pod import ANNOTATION_MOST, ContainerKind, node_resources, read_pod
from gpumanager.names import VCORE, VMEMORY

FROM = {"name": "NVIDIA_DRIVER_CAPABILITIES", "valueFrom": {"configMapKeyRef": {"key": "c"}}}


def said(value: str) -> dict[str, Any]:
    return {"name": "NVIDIA_DRIVER_CAPABILITIES", "value": value}


@pytest.mark.parametrize(
    ("env", "graphics"),
    [
        (None, True),
        ([{"name": "OTHER", "value": "compute"}], True),
        ([said("all")], True),
        ([said("compute,graphics")], True),
        ([said("compute, display")], True),
        ([said("compute,utility")], False),
        ([said("")], False),
        ([{"name": "NVIDIA_DRIVER_CAPABILITIES"}], False),
        ([said("all"), said("compute")], False),
        ([FROM], True),
        ([said("compute,$(MORE)")], True),
    ],
)
def test_a_container_gets_graphics_unless_its_pod_says_otherwise(
    env: object, graphics: object
) -> None:
    container = {"name": "main"} if env is None else {"name": "main", "env": env}
    pod = {"metadata": {"uid": "u", "name": "p"}, "spec": {"containers": [container]}}

    (view,) = read_pod(pod).containers

    assert view.graphics is graphics


def pod(*containers: Any, annotations: Any = None, **spec: Any) -> dict[str, Any]:
    metadata = {"uid": "u", "name": "p", "annotations": annotations or {}}
    return {"metadata": metadata, "spec": {"containers": list(containers), **spec}}


@pytest.mark.parametrize(
    ("amount", "devices"),
    [("30", 30), ("1k", 1000), ("0", 0), ("-1", None), ("x", None), ("500m", None)],
)
def test_devices_are_whole_numbers(amount: str, devices: int | None) -> None:
    one = {"name": "main", "resources": {"limits": {VCORE: amount, VMEMORY: amount}}}

    (view,) = read_pod(pod(one)).containers

    assert (view.cores, view.blocks) == (devices, devices)


def test_an_init_container_that_always_restarts_is_a_sidecar() -> None:
    inits = [{"name": "side", "restartPolicy": "Always"}, {"name": "init"}]

    found = read_pod(pod({"name": "app"}, initContainers=inits)).containers

    assert {one.name: one.kind for one in found} == {
        "side": ContainerKind.SIDECAR,
        "init": ContainerKind.INIT,
        "app": ContainerKind.APP,
    }


def test_annotations_of_others_and_huge_ones_are_left_out() -> None:
    ours = {"tencent.com/a": "x", "tencent.com/b": "x" * ANNOTATION_MOST}
    others = {"team/a": "x", "tencent.com/c": "x" * (ANNOTATION_MOST + 1)}

    assert read_pod(pod(annotations=ours | others)).annotations == ours


def asks(cpu: str = "", memory: str = "", **more: Any) -> dict[str, Any]:
    said = {name: amount for name, amount in (("cpu", cpu), ("memory", memory)) if amount}
    return {"name": "c", "resources": {"requests": said}, **more}


SIDECAR = {"restartPolicy": "Always"}

SPECS: tuple[tuple[dict[str, Any], tuple[int, int]], ...] = (
    ({"containers": [asks("500m", "1Gi"), asks("2", "512Mi")]}, (2500, 1536)),
    ({"containers": [asks("1")], "initContainers": [asks("4")]}, (4000, 0)),
    (
        {"containers": [asks("1")], "initContainers": [asks("1", **SIDECAR), asks("4")]},
        (5000, 0),
    ),
    (
        {"containers": [asks("1")], "initContainers": [asks("4"), asks("1", **SIDECAR)]},
        (4000, 0),
    ),
    ({"containers": [asks("4")], "initContainers": [asks("1", **SIDECAR)]}, (5000, 0)),
    ({"containers": [asks("1", "1Gi")], "overhead": {"cpu": "250m"}}, (1250, 1024)),
    (
        {
            "containers": [asks("1", "1Gi")],
            "resources": {"requests": {"cpu": "3"}},
            "overhead": {"cpu": "250m"},
        },
        (3250, 1024),
    ),
    (
        {"containers": [{"name": "c", "resources": {"limits": {"cpu": "2"}}}]},
        (2000, 0),
    ),
    ({"containers": [asks("0.1", "1e9"), asks("100u", "128974848")]}, (100, 1077)),
    ({"containers": [asks("many", "-1")]}, (0, 0)),
    ({"containers": [asks("9" * 18)]}, (10**9, 0)),
    ({}, (0, 0)),
)


@pytest.mark.parametrize(("spec", "amounts"), SPECS)
def test_a_pod_asks_of_its_node_what_kubernetes_counts(spec: Any, amounts: tuple[int, int]) -> None:
    assert node_resources(spec) == amounts
