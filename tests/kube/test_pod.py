"""What is read from a pod's JSON object."""

from typing import Any

import pytest

from gpumanager.kube.pod import read_pod

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
