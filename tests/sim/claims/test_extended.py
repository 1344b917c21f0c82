"""The claim that the scheduler makes for a pod's extended resources."""

from typing import Any

import pytest

from gpumanager.sim.claims.allocator import CannotSchedule
from gpumanager.sim.claims.extended import extended_claim
from gpumanager.sim.claims.scheduler import PodScheduled, schedule
from tests.sim.claims.claim_objects import device_class, eight, node

RESOURCE = "example.com/gpu"


def backed(name: str = "whole", resource: str = RESOURCE) -> dict[str, Any]:
    made = device_class(name)
    return {**made, "spec": {**made["spec"], "extendedResourceName": resource}}


def asking(*apps: int, inits: tuple[int, ...] = (), sidecars: tuple[int, ...] = ()) -> Any:
    """A pod; each container asks for so many."""

    def containers(prefix: str, amounts: tuple[int, ...], **more: Any) -> list[Any]:
        return [
            {
                "name": f"{prefix}{index}",
                "resources": {"limits": {"cpu": 1, RESOURCE: str(amount)} if amount else {}},
                **more,
            }
            for index, amount in enumerate(amounts)
        ]

    always = {"restartPolicy": "Always"}
    return {
        "metadata": {"name": "p", "namespace": "default", "uid": "uid-of-p"},
        "spec": {
            "initContainers": [*containers("side", sidecars, **always), *containers("init", inits)],
            "containers": containers("app", apps),
        },
    }


def made(pod: Any) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Devices of each request, and the requests of each container."""
    found = extended_claim(pod, [backed()])
    assert found is not None
    claim, status = found
    rows = status["extendedResourceClaimStatus"]["requestMappings"]
    return (
        {one["name"]: one["exactly"]["count"] for one in claim["spec"]["devices"]["requests"]},
        [(row["containerName"], row["requestName"]) for row in rows],
    )


def test_each_container_has_a_request_named_by_its_place_and_the_resource_s() -> None:
    requests, mappings = made(asking(1, 0, 2))

    assert requests == {"container-0-request-1": 1, "container-2-request-1": 2}
    assert mappings == [("app0", "container-0-request-1"), ("app2", "container-2-request-1")]


def test_an_init_container_uses_those_of_later_ones_and_only_what_is_missing_besides() -> None:
    requests, mappings = made(asking(1, 1, inits=(2, 3)))

    assert requests == {
        "container-1-request-1": 1,
        "container-2-request-1": 1,
        "container-3-request-1": 1,
    }
    assert mappings[2:] == [
        ("init0", "container-2-request-1"),
        ("init0", "container-3-request-1"),
        ("init1", "container-2-request-1"),
        ("init1", "container-3-request-1"),
        ("init1", "container-1-request-1"),
    ]


def test_init_containers_share_the_largest_of_what_they_need_besides() -> None:
    requests, mappings = made(asking(1, inits=(2, 4)))

    assert requests == {"container-1-request-1": 3, "container-2-request-1": 1}
    assert ("init0", "container-1-request-1") in mappings


def test_a_sidecar_keeps_its_own() -> None:
    requests, _ = made(asking(1, sidecars=(1,), inits=(1,)))

    assert requests == {"container-0-request-1": 1, "container-2-request-1": 1}


def test_a_class_is_a_resource_by_its_name_and_by_what_it_says() -> None:
    pod = asking(1)
    pod["spec"]["containers"][0]["resources"]["limits"] = {
        "deviceclass.resource.kubernetes.io/gpu": 1,
        RESOURCE: 1,
        "example.com/other": 1,
    }

    found = extended_claim(pod, [device_class("gpu"), backed()])

    assert found is not None
    requests = found[0]["spec"]["devices"]["requests"]
    assert [one["exactly"]["deviceClassName"] for one in requests] == ["gpu", "whole"]


def scheduled(pod: Any) -> PodScheduled:
    devices = {"n": eight("n")["spec"]["devices"]}
    return schedule(pod, [node()], [], [backed()], devices)


def test_the_claim_is_made_allocated_and_told_in_the_pod_s_status() -> None:
    found = scheduled(asking(2))

    (claim,) = found.claims
    name = claim["metadata"]["name"]
    assert name.startswith("p-extended-resources-")
    assert claim["metadata"]["annotations"] == {
        "resource.kubernetes.io/extended-resource-claim": "true"
    }
    assert claim["metadata"]["finalizers"] == ["resource.kubernetes.io/delete-protection"]
    results = claim["status"]["allocation"]["devices"]["results"]
    assert [(one["device"], one["consumedCapacity"]["cores"]) for one in results] == [
        ("gpu-0", "100"),
        ("gpu-1", "100"),
    ]
    assert claim["status"]["reservedFor"][0]["name"] == "p"
    assert found.status["extendedResourceClaimStatus"] == {
        "requestMappings": [
            {
                "containerName": "app0",
                "resourceName": RESOURCE,
                "requestName": "container-0-request-1",
            }
        ],
        "resourceClaimName": name,
    }
    assert found.node == "n"


def test_more_than_a_node_has_waits() -> None:
    with pytest.raises(CannotSchedule, match="0/1 nodes are available: cannot allocate all claims"):
        scheduled(asking(9))
