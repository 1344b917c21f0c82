"""What `explain` learns of a pod's claims from an API server, down to what is missing."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from gpumanager.cli.explain_claims import ClusterClaims, claim_sentences, claims_of_pod
from gpumanager.kube.access import Access
from gpumanager.kube.client import KubeClient
from gpumanager.kube.errors import ApiRefused
from gpumanager.sim.claims.control_plane import ClaimControlPlane
from gpumanager.sim.cluster.objects import Key
from gpumanager.sim.cluster.server import SimulatedApiServer
from tests.sim.claims.claim_objects import (
    asked,
    claim,
    device_class,
    eight,
    gpu,
    node,
    pod,
    request,
    slice_of,
)

SELECTOR = [{"cel": {"expression": "device.attributes['gpu.tencent.com'].uuid == 'none'"}}]


@pytest.fixture
async def server() -> AsyncIterator[SimulatedApiServer]:
    """One node of eight GPUs."""
    found = SimulatedApiServer()
    await found.start()
    await found.create("nodes", node())
    await found.create("deviceclasses", device_class())
    await found.create("resourceslices", eight())
    yield found
    await found.stop()


@pytest.fixture
async def asking(server: SimulatedApiServer) -> AsyncIterator[ClusterClaims]:
    async with KubeClient(Access(server.url)) as client:
        yield ClusterClaims(client)


async def scheduled(server: SimulatedApiServer, name: str) -> Any:
    await ClaimControlPlane(server).settle()
    return server.objects.get(Key("pods", "default", name))


async def test_an_allocated_claim_is_told_with_its_gpu_and_its_pods(
    server: SimulatedApiServer, asking: ClusterClaims
) -> None:
    await server.create("resourceclaims", claim(request("gpu", 30, "2Gi")))
    used = {"claims": [{"name": "gpu", "request": "gpu"}]}
    containers = [{"name": "main", "image": "none", "resources": used}]
    await server.create("pods", pod("p", "c", containers=containers))

    found = await asking.of_pod(await scheduled(server, "p"))

    assert found.sentences == ("Container main uses claim c (request gpu).",)
    (answer,) = found.claims
    assert (answer.name, answer.pool, answer.reasons) == ("default/c", "n", ())
    assert answer.sentences == (
        "Request gpu asks for 1 device of class gpu: cores 30, memory 2Gi.",
        "Request gpu was allocated gpu-0 (GPU-0) of pool n: cores 30, memory 2Gi.",
        "It is in use by p.",
    )


async def test_of_a_claim_that_waits_the_reason_is_told(
    server: SimulatedApiServer, asking: ClusterClaims
) -> None:
    await server.create("resourceclaims", claim(request("gpu", 30, "17Gi")))
    large = await asking.of_claim("default", "c")
    await server.create(
        "resourceclaims",
        claim({"name": "gpu", "exactly": asked(1, "1Gi", selectors=SELECTOR)}, name="selects"),
    )
    selects = await asking.of_claim("default", "selects")

    assert [one.reason for one in large.reasons] == ["no GPU that is large enough"]
    assert "It is not allocated" in large.sentences[-1]
    assert [one.detail for one in selects.reasons] == ["0 of its 8 GPUs"]


@pytest.mark.parametrize(
    ("used", "words"),
    [
        ({"template": "t"}, "ResourceClaimTemplate t does not exist"),
        ({"template": "there"}, "No claim was made of template there yet"),
        ({"claim_name": "c"}, "ResourceClaim c does not exist"),
    ],
)
async def test_what_is_missing_is_named(
    server: SimulatedApiServer, asking: ClusterClaims, used: dict[str, str], words: str
) -> None:
    template = {"metadata": {"name": "there", "namespace": "default"}, "spec": {"spec": {}}}
    await server.create("resourceclaimtemplates", template)
    item = await server.create("pods", pod("p", **used, containers=[{"name": "m", "image": "i"}]))

    found = await asking.of_pod(item)

    assert found.uses_claims
    assert found.claims == ()
    assert any(words in one for one in found.sentences)


async def test_a_pod_without_claims_is_asked_no_further(server: SimulatedApiServer) -> None:
    async with KubeClient(Access(server.url)) as client:
        found = await ClusterClaims(client).of_pod({"metadata": {"namespace": "a"}, "spec": {}})

    assert (found.sentences, found.claims, found.uses_claims) == ((), (), False)
    assert server.calls == []


async def test_who_may_not_list_claims_is_told_the_rest(
    server: SimulatedApiServer, asking: ClusterClaims, monkeypatch: pytest.MonkeyPatch
) -> None:
    await server.create("resourceclaims", claim(request("gpu", 30, "2Gi")))

    async def refused(*_: object, **__: object) -> None:
        raise ApiRefused("GET claims", 403, "Forbidden", "may not list")

    monkeypatch.setattr(KubeClient, "list", refused)
    found = await asking.of_claim("default", "c")

    assert found.sentences[0].startswith("Request gpu asks for 1 device")
    assert "Why no node has room is not told: GET claims: 403" in found.sentences[-1]


async def test_a_claim_that_is_not_there_is_an_error(asking: ClusterClaims) -> None:
    with pytest.raises(ApiRefused, match="404"):
        await asking.of_claim("default", "nobody")


# The sentences alone: alternatives, constraints, taints, health.


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
