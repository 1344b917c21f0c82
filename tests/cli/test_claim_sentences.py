"""Claims of the API server in sentences: alternatives, constraints, taints, health."""

from typing import Any

from gpumanager.cli.explain_claims import claim_sentences, claims_of_pod
from tests.sim.claims.claim_objects import asked, claim, gpu, request, slice_of


def said(*requests: dict[str, Any], status: dict[str, Any] | None = None, **more: Any) -> str:
    item = claim(*requests, **more) | {"status": status or {}}
    return " ".join(claim_sentences(item, [slice_of("n", gpu(0))]))


def test_alternatives_are_told_in_their_order_and_constraints_by_their_attribute() -> None:
    tried = [{"name": "small", **asked(10, "1Gi")}, {"name": "any", "deviceClassName": "gpu"}]

    found = said(
        {"name": "gpu", "firstAvailable": tried},
        constraints=[{"matchAttribute": "gpu.tencent.com/numa", "requests": ["gpu"]}],
    )

    assert found.startswith(
        "Request gpu asks for 1 device of class gpu: cores 10, memory 1Gi (small); "
        "else 1 device of class gpu: all of each (any). "
        "The devices of gpu must have the same gpu.tencent.com/numa."
    )


def test_admin_access_and_a_taint_are_told_of_what_was_allocated() -> None:
    result = {"request": "gpu", "driver": "gpu.tencent.com", "pool": "n", "device": "gpu-0",
              "adminAccess": True}  # fmt: skip
    item = claim(request("gpu", adminAccess=True, count=2)) | {
        "status": {"allocation": {"devices": {"results": [result]}}}
    }
    taint = {"key": "gpu.tencent.com/unhealthy", "effect": "NoSchedule"}
    found = claim_sentences(item, [slice_of("n", gpu(0) | {"taints": [taint]})])

    assert found == (
        "Request gpu asks for admin access to 2 devices of class gpu: all of each.",
        "Request gpu was allocated gpu-0 (GPU-0) of pool n: admin access.",
        "gpu-0 is tainted: gpu.tencent.com/unhealthy:NoSchedule.",
        "No pod uses it now.",
    )


def test_a_long_selector_is_cut_and_nothing_moves_the_cursor() -> None:
    selectors = [{"cel": {"expression": "device.driver == 'x' || " * 20 + "\x1b[2J"}}]

    found = said(request("gpu", 1, "1Gi", selectors=selectors))

    assert "\x1b" not in found
    assert "…" in found
    assert len(found) < 300


def test_health_that_the_kubelet_reports_is_told_unless_it_is_good() -> None:
    resources = [{"health": "Healthy"}, {"health": "Unhealthy", "message": "Xid 79"}]
    status = {"name": "main", "allocatedResourcesStatus": [{"name": "claim:gpu/gpu",
              "resources": resources}]}  # fmt: skip
    pod = {"spec": {}, "status": {"containerStatuses": [status]}}

    assert claims_of_pod(pod, {}) == ("Container main: claim:gpu/gpu is Unhealthy: Xid 79.",)
