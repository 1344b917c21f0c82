"""The values of the kubelet's DRA manager: claims, their checkpoint, health, pods' rows."""

import json
import zlib
from random import Random
from typing import Any

import pytest

from gpumanager.dra.api import drahealth_v1_pb2 as health_pb
from gpumanager.errors import InputError
from gpumanager.kube.pod import ContainerKind
from gpumanager.sim.kubelet.dra.claims import (
    ClaimBooks,
    ClaimKey,
    ClaimRefused,
    ClaimState,
    PreparedDevice,
    allocated_claim,
    checkpoint_text,
    read_checkpoint_text,
)
from gpumanager.sim.kubelet.dra.health import HealthBooks
from gpumanager.sim.manifest.pods import (
    EXTENDED,
    ContainerClaim,
    ContainerManifest,
    Pod,
    PodClaim,
    parse_pods,
)

DRIVER = "gpu.tencent.com"
SECOND = 1_000_000_000
KEY = ClaimKey("default", "claim")
POD = Pod("default", "pod", (), uid="pod-uid", claims=(PodClaim("gpu", "claim"),))


def claim(**status: Any) -> dict[str, Any]:
    results = [{"driver": DRIVER, "request": "gpu", "pool": "node", "device": "gpu-0"}]
    return {
        "metadata": {"name": "claim", "namespace": "default", "uid": "claim-uid"},
        "status": {
            "reservedFor": [{"uid": POD.uid}],
            "allocation": {"devices": {"results": results}},
            **status,
        },
    }


def state(*devices: PreparedDevice, **fields: Any) -> ClaimState:
    return ClaimState(KEY, "claim-uid", {DRIVER: devices}, **fields)


def test_an_allocated_claim_names_its_drivers() -> None:
    assert allocated_claim(POD, POD.claims[0], claim()) == state()


@pytest.mark.parametrize(
    ("found", "row", "why"),
    [
        (claim(reservedFor=[]), POD.claims[0], "pod pod (pod-uid) is not allowed to use"),
        (claim(allocation=None), POD.claims[0], "ResourceClaim claim: not allocated"),
        (claim(), PodClaim("gpu", "claim", template=True), "(Pod is not owner)"),
    ],
)
def test_a_claim_that_is_not_the_pods_is_refused(
    found: dict[str, Any], row: PodClaim, why: str
) -> None:
    with pytest.raises(ClaimRefused) as raised:
        allocated_claim(POD, row, found)

    assert why in str(raised.value)


def test_a_claim_from_a_template_belongs_to_the_pod_that_owns_it() -> None:
    row, found = PodClaim("gpu", "claim", template=True), claim()
    found["metadata"]["ownerReferences"] = [{"uid": POD.uid, "controller": True}]

    assert allocated_claim(POD, row, found).uid == "claim-uid"


def test_the_checkpoint_is_gos_json_with_its_checksum_and_reads_back() -> None:
    devices = (
        PreparedDevice("node", "gpu-0", ("gpu",), ("gpu.tencent.com/share=1",), "share"),
        PreparedDevice("node", "gpu-1"),
    )
    books = ClaimBooks().put(state(*devices, pods=frozenset({"b", "a"}), prepared=True))

    text = checkpoint_text(books)

    data = json.loads(text)["Data"]
    assert data == (
        '{"kind":"DRACheckpoint","apiVersion":"checkpoint.dra.kubelet.k8s.io/v1",'
        '"ClaimInfoStateList":[{"ClaimUID":"claim-uid","ClaimName":"claim","Namespace":"default",'
        '"PodUIDs":{"a":{},"b":{}},"DriverState":{"gpu.tencent.com":{"Devices":['
        '{"PoolName":"node","DeviceName":"gpu-0","ShareID":"share","RequestNames":["gpu"],'
        '"CDIDeviceIDs":["gpu.tencent.com/share=1"]},'
        '{"PoolName":"node","DeviceName":"gpu-1","ShareID":null,"RequestNames":null,'
        '"CDIDeviceIDs":null}]}}}]}'
    )
    assert json.loads(text)["Checksum"] == zlib.crc32(data.encode())
    assert read_checkpoint_text(text).rows == {KEY: state(*devices, pods=frozenset({"a", "b"}))}


def test_a_checkpoint_with_another_checksum_is_corrupted() -> None:
    text = checkpoint_text(ClaimBooks().put(state()))

    with pytest.raises(ValueError, match="corrupted"):
        read_checkpoint_text(text.replace("claim-uid", "other-uid"))


def test_devices_of_extended_resources_go_to_the_containers_that_the_scheduler_mapped() -> None:
    (pod,) = parse_pods(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "whole", "uid": "of-the-server"},
                "spec": {
                    "containers": [{"name": name, "command": ["x"]} for name in ("one", "two")]
                },
                "status": {
                    "extendedResourceClaimStatus": {
                        "resourceClaimName": "claim",
                        "requestMappings": [
                            {"containerName": "two", "requestName": "r", "resourceName": "a/b"}
                        ],
                    }
                },
            }
        ),
        "test",
    )
    books = ClaimBooks().put(state(PreparedDevice("node", "gpu-0", ("r",), ("kind=1",))))
    one, two = pod.containers

    assert pod.uid == "of-the-server"
    assert pod.claims == (PodClaim(EXTENDED, "claim"),)
    assert books.cdi_ids(pod, one, Random(1)) == ()
    assert books.cdi_ids(pod, two, Random(1)) == ("kind=1",)
    assert list(books.health_rows(pod, two)) == []


def test_a_pod_names_claims_and_the_status_those_from_templates() -> None:
    (pod,) = parse_pods(
        """
        apiVersion: v1
        kind: Pod
        metadata: {name: p}
        spec:
          resourceClaims:
          - {name: own, resourceClaimName: mine}
          - {name: made, resourceClaimTemplateName: template}
          - {name: late, resourceClaimTemplateName: template}
          containers:
          - name: main
            command: [x]
            resources: {claims: [{name: own, request: a}, {name: made}]}
        status:
          resourceClaimStatuses: [{name: made, resourceClaimName: p-made-x}]
        """,
        "test",
    )

    assert pod.claims == (
        PodClaim("own", "mine"),
        PodClaim("made", "p-made-x", template=True),
        PodClaim("late", template=True),
    )
    (main,) = pod.containers
    assert main.claims == (ContainerClaim("own", "a"), ContainerClaim("made"))
    assert main.kind is ContainerKind.APP


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ("[{name: a}]", "resourceClaimName and resourceClaimTemplateName"),
        ("[{name: b, resourceClaimName: x}]", "spec.resourceClaims has no a"),
        ("[{name: a, resourceClaim: x}]", "unknown field"),
    ],
)
def test_a_pod_whose_claims_are_wrong_is_refused(claims: str, why: str) -> None:
    text = f"""
        apiVersion: v1
        kind: Pod
        metadata: {{name: p}}
        spec:
          resourceClaims: {claims}
          containers:
          - {{name: main, command: [x], resources: {{claims: [{{name: a}}]}}}}
        """

    with pytest.raises(InputError, match=why):
        parse_pods(text, "test")


def test_claims_of_a_container_come_in_any_order_and_requests_in_its_own() -> None:
    books = ClaimBooks()
    for name in ("left", "right"):
        devices = [PreparedDevice("node", r, (r,), (f"{name}={r}",)) for r in ("a", "b")]
        books = books.put(ClaimState(ClaimKey("default", name), name, {DRIVER: tuple(devices)}))
    claims = [ContainerClaim(row, request) for row in ("left", "right") for request in ("b", "a")]
    main = ContainerManifest("main", ContainerKind.APP, ("x",), claims=tuple(claims))
    pod = Pod(
        "default", "p", (main,), claims=(PodClaim("left", "left"), PodClaim("right", "right"))
    )

    found = {books.cdi_ids(pod, main, Random(seed)) for seed in range(20)}

    assert found == {
        ("left=b", "left=a", "right=b", "right=a"),
        ("right=b", "right=a", "left=b", "left=a"),
    }


def report(device: str, health: int, seconds: int = 0, message: str = "") -> health_pb.DeviceHealth:
    return health_pb.DeviceHealth(
        device=health_pb.DeviceIdentifier(pool_name="node", device_name=device),
        health=health,  # type: ignore[arg-type]
        health_check_timeout_seconds=seconds,
        message=message,
    )


def test_only_what_changed_is_told_and_a_device_that_is_left_out_keeps_its_health() -> None:
    both = [report("gpu-0", health_pb.HEALTHY), report("gpu-1", health_pb.HEALTHY)]
    books, first = HealthBooks().update(DRIVER, both, 0)
    books, again = books.update(DRIVER, both, 5 * SECOND)
    sick = [report("gpu-0", health_pb.UNHEALTHY, message="Xid 79")]
    books, third = books.update(DRIVER, sick, 10 * SECOND)

    assert first == {("node", "gpu-0"), ("node", "gpu-1")}
    assert again == frozenset()
    assert third == {("node", "gpu-0")}
    assert books.get(DRIVER, ("node", "gpu-1"), 35 * SECOND).health == "Healthy"
    books, gone = books.update(DRIVER, sick, 36 * SECOND)
    assert gone == {("node", "gpu-1")}
    assert books.get(DRIVER, ("node", "gpu-1"), 36 * SECOND).health == "Unknown"
    found = books.get(DRIVER, ("node", "gpu-0"), 36 * SECOND)
    assert (found.health, found.message) == ("Unhealthy", "Xid 79")


def test_a_report_holds_30_seconds_or_as_long_as_it_says() -> None:
    rows = [report("gpu-0", health_pb.HEALTHY), report("gpu-1", health_pb.HEALTHY, seconds=2)]
    books, _ = HealthBooks().update(DRIVER, [*rows, report("gpu-2", health_pb.HEALTHY, -1)], 0)

    def known(seconds: float) -> list[bool]:
        now = round(seconds * SECOND)
        names = ("gpu-0", "gpu-1", "gpu-2")
        return [books.get(DRIVER, ("node", name), now).health == "Healthy" for name in names]

    assert known(2) == [True, True, True]
    assert known(30) == [True, False, True]
    assert known(30.1) == [False, False, False]
