"""The values of the kubelet's DRA manager: claims, their checkpoint, pods' rows."""

import json
from pathlib import Path
from typing import Any

import pytest

from gpumanager.dra.api import dra_v1_pb2 as pb
from gpumanager.errors import InputError
from gpumanager.kube.pod import ContainerKind
from gpumanager.sim.in_memory import ManualTimer
from gpumanager.sim.kubelet.dra.claims import (
    ClaimKey,
    ClaimRefused,
    ClaimState,
    allocated_claim,
    checkpoint_text,
    read_checkpoint_text,
)
from gpumanager.sim.kubelet.dra.manager import DraManager
from gpumanager.sim.kubelet.pods import SimulatedPodList
from gpumanager.sim.kubelet.versions import KUBELET_1_37
from gpumanager.sim.manifest.pods import (
    EXTENDED,
    ContainerClaim,
    Pod,
    PodClaim,
    parse_pods,
)
from tests.contracts.dra.simulated_claims import MemoryApi

DRIVER = "gpu.tencent.com"
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


def owned(**owner: Any) -> dict[str, Any]:
    found = claim()
    found["metadata"]["ownerReferences"] = [owner]
    return found


def state(*devices: pb.Device, **fields: Any) -> ClaimState:
    return ClaimState(KEY, "claim-uid", DRIVER, devices, **fields)


def device(name: str, request: str = "", cdi: str = "", **fields: Any) -> pb.Device:
    return pb.Device(
        pool_name="node",
        device_name=name,
        request_names=[request] if request else [],
        cdi_device_ids=[cdi] if cdi else [],
        **fields,
    )


def test_an_allocated_claim_names_its_drivers() -> None:
    assert allocated_claim(POD, POD.claims[0], claim()) == state()


@pytest.mark.parametrize(
    ("found", "row", "why"),
    [
        (claim(reservedFor=[]), POD.claims[0], "pod pod (pod-uid) is not allowed to use"),
        (claim(allocation=None), POD.claims[0], "ResourceClaim claim: not allocated"),
        (claim(), PodClaim("gpu", "claim", template=True), "(Pod is not owner)"),
        (owned(uid=POD.uid), PodClaim("gpu", "claim", template=True), "(Pod is not owner)"),
        (
            owned(uid="other", controller=True),
            PodClaim("gpu", "claim", template=True),
            "(Pod is not owner)",
        ),
    ],
)
def test_a_claim_that_is_not_the_pods_is_refused(
    found: dict[str, Any], row: PodClaim, why: str
) -> None:
    with pytest.raises(ClaimRefused) as raised:
        allocated_claim(POD, row, found)

    assert why in str(raised.value)


def test_a_claim_from_a_template_belongs_to_the_pod_that_owns_it() -> None:
    row = PodClaim("gpu", "claim", template=True)

    assert allocated_claim(POD, row, owned(uid=POD.uid, controller=True)).uid == "claim-uid"


def test_the_checkpoint_reads_back() -> None:
    devices = (
        device("gpu-0", "gpu", "gpu.tencent.com/share=1", share_id="share"),
        device("gpu-1"),
    )
    text = checkpoint_text([state(*devices, pods=frozenset({"b", "a"}), prepared=True)])

    assert [*read_checkpoint_text(text)] == [state(*devices, pods=frozenset({"a", "b"}))]


def test_a_checkpoint_with_another_checksum_is_corrupted() -> None:
    text = checkpoint_text([state()])

    with pytest.raises(ValueError, match="corrupted"):
        next(read_checkpoint_text(text.replace("claim-uid", "other-uid")))


def test_devices_of_extended_resources_go_to_the_containers_that_the_scheduler_mapped(
    tmp_path: Path,
) -> None:
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
    manager = DraManager(
        tmp_path,
        KUBELET_1_37,
        api=MemoryApi(),
        pods=SimulatedPodList,
        timer=ManualTimer(),
        sync_seconds=1,
    )
    manager.claims[KEY] = state(device("gpu-0", "r", "kind=1"))
    one, two = pod.containers

    assert pod.uid == "of-the-server"
    assert pod.claims == (PodClaim(EXTENDED, "claim"),)
    assert manager.cdi_ids(pod, one) == ()
    assert manager.cdi_ids(pod, two) == ("kind=1",)


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
