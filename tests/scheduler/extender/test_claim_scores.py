"""The extender as a prioritizer for pods with claims, over HTTP, beside a simulated API server."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from gpumanager.kube.pod import read_pod
from gpumanager.sim.claims.control_plane import ClaimControlPlane
from gpumanager.sim.cluster.objects import Key
from gpumanager.sim.cluster.server import SimulatedApiServer
from tests.scheduler.scheduler_world import node_object, pod_object
from tests.scheduler.served_extender import Served, serving
from tests.sim.claims.claim_objects import asked, claim, device_class, gpu, pod, request, slice_of
from tests.waiting import until

pytest_plugins = ["tests.scheduler.extender_fixtures"]

NAMES = ["a", "b"]


@pytest.fixture
async def claims(api: SimulatedApiServer) -> AsyncIterator[Served]:
    """Over two nodes of two GPUs, which claims can have."""
    await api.create("deviceclasses", device_class())
    for name in NAMES:
        node = node_object(name, gpus=2)
        node["metadata"]["labels"] = {"kubernetes.io/hostname": name}
        await api.create("nodes", node)
        await api.create("resourceslices", slice_of(name, gpu(0), gpu(1)))
    async with serving(api, claims=True) as served:
        await until(lambda: all(served.extender.state.nodes[one].offered.gpus for one in NAMES))
        yield served


async def make(served: Served, name: str, wanted: Any, node: str = "", **notes: str) -> Any:
    """A pod with a claim of its own; node: where it goes, which waits until the extender knows."""
    await served.make("resourceclaims", claim(wanted, name=name))
    where: dict[str, Any] = {"nodeSelector": {"kubernetes.io/hostname": node}} if node else {}
    item = pod(name, name)
    item["spec"] |= {"containers": [{"name": "c", "image": "none"}], **where}
    item["metadata"]["annotations"] = notes
    made = await served.make("pods", item)
    await until(lambda: served.extender.claims.shape_of(read_pod(made)))
    if node:
        before = users(served, node)
        await ClaimControlPlane(served.api).settle()
        await until(lambda: users(served, node) > before)
    return made


def users(served: Served, node: str) -> int:
    return sum(gpu.processes for gpu in offered(served, node))


async def scores(served: Served, item: Any) -> dict[str, int]:
    body = {"Pod": item, "NodeNames": NAMES}
    rows = await served.post("/scheduler/prioritize-claims", body)
    return {row["Host"]: row["Score"] for row in rows}


async def test_a_node_whose_shared_gpu_has_room_scores_higher_than_an_idle_one(
    claims: Served,
) -> None:
    await make(claims, "first", request("gpu", 30, "2Gi"), node="b")

    assert await scores(claims, await make(claims, "p", request("gpu", 30, "2Gi"))) == {
        "b": 10,
        "a": 9,
    }


async def test_nodes_that_are_alike_have_no_scores(claims: Served) -> None:
    assert await scores(claims, await make(claims, "p", request("gpu", 30, "2Gi"))) == {}


async def test_a_claim_that_is_released_counts_no_more(claims: Served) -> None:
    await make(claims, "first", request("gpu", 30, "2Gi"), node="b")
    await claims.api.remove(Key("pods", "default", "first"))
    await ClaimControlPlane(claims.api).settle()
    await until(lambda: not any(one.processes for one in offered(claims, "b")))

    assert await scores(claims, await make(claims, "p", request("gpu", 30, "2Gi"))) == {}


async def test_the_first_gpu_of_the_slice_that_fits_is_judged(claims: Served) -> None:
    """On b the free GPU comes first now, so the shared one is not what the pod would get."""
    for node in NAMES:
        await make(claims, f"on-{node}", request("gpu", 30, "2Gi"), node=node)
    devices = {"spec": {"devices": [gpu(1), gpu(0)]}}
    key = Key("resourceslices", "", "b-gpu.tencent.com")
    await claims.api.change(key, devices)
    await until(lambda: not offered(claims, "b")[0].processes)

    found = await scores(claims, await make(claims, "p", request("gpu", 30, "2Gi")))

    assert found == {"a": 10, "b": 9}


async def test_a_gpu_that_is_tainted_is_not_counted(claims: Served) -> None:
    await make(claims, "first", request("gpu", 30, "2Gi"), node="b")
    taints = [{"key": "gpu.tencent.com/unhealthy", "value": "true", "effect": "NoSchedule"}]
    devices = {"spec": {"devices": [{**gpu(n), "taints": taints} for n in range(2)]}}
    key = Key("resourceslices", "", "b-gpu.tencent.com")
    await claims.api.change(key, devices)
    await until(lambda: not any(one.cores for one in offered(claims, "b")))

    assert await scores(claims, await make(claims, "p", request("gpu", 30, "2Gi"))) == {}


async def test_whole_gpus_leave_an_idle_node_alone(claims: Served) -> None:
    await make(claims, "first", request("gpu", 30, "2Gi"), node="b")

    found = await scores(claims, await make(claims, "p", request("gpu")))

    assert max(found, key=lambda name: found[name]) == "b"


async def test_of_alternatives_the_first_is_what_is_asked(claims: Served) -> None:
    await make(claims, "first", request("gpu", 80, "2Gi"), node="b")
    alternatives = [{"name": "small", **asked(20, "1Gi")}, {"name": "large", **asked()}]
    wanted = {"name": "gpu", "firstAvailable": alternatives}

    assert await scores(claims, await make(claims, "p", wanted)) == {"b": 10, "a": 9}


async def test_the_policy_that_a_pod_names_decides(claims: Served) -> None:
    await make(claims, "first", request("gpu", 30, "2Gi"), node="b")
    notes = {"tencent.com/vcuda-policy": "spread"}

    item = await make(claims, "p", request("gpu", 30, "2Gi"), **notes)

    assert await scores(claims, item) == {"a": 10, "b": 9}


def parameters(**said: Any) -> list[dict[str, Any]]:
    kind = {"apiVersion": "gpu.tencent.com/v1alpha1", "kind": "VcudaConfig"}
    return [{"opaque": {"driver": "gpu.tencent.com", "parameters": {**kind, **said}}}]


@pytest.mark.parametrize(
    ("of_class", "of_claim", "winner"),
    [
        ([], parameters(policy="spread"), "a"),
        (parameters(policy="spread"), [], "a"),
        (parameters(policy="spread"), parameters(coreLimit=60), "a"),
        (parameters(policy="spread"), parameters(policy="binpack"), "b"),
        ([], [*parameters(coreLimit=60), *parameters(policy="spread")], "a"),
    ],
    ids=["claim", "class", "class beside a limit of the claim", "both", "second of two"],
)
async def test_the_policy_of_parameters_decides_the_claim_s_before_that_of_its_class(
    claims: Served, of_class: list[Any], of_claim: list[Any], winner: str
) -> None:
    await make(claims, "first", request("gpu", 30, "2Gi"), node="b")
    own = device_class("own")
    own["spec"]["config"] = of_class
    await claims.make("deviceclasses", own)
    wanted = claim(request("gpu", 30, "2Gi", deviceClassName="own"), name="p")
    wanted["spec"]["devices"]["config"] = of_claim
    await claims.make("resourceclaims", wanted)
    made = await claims.make("pods", pod("p", "p", containers=[{"name": "c", "image": "none"}]))
    await until(lambda: claims.extender.claims.shape_of(read_pod(made)))

    found = await scores(claims, made)

    assert max(found, key=lambda name: found[name]) == winner


async def test_a_claim_that_is_allocated_already_gives_no_scores(claims: Served) -> None:
    await make(claims, "first", request("gpu", 30, "2Gi"), node="b")
    second = pod("second", "first", containers=[{"name": "c", "image": "none"}])

    assert await scores(claims, await claims.make("pods", second)) == {}


async def test_a_pod_without_claims_and_one_with_claims_of_others_get_no_scores(
    claims: Served,
) -> None:
    await make(claims, "first", request("gpu", 30, "2Gi"), node="b")
    other = {"metadata": {"name": "net"}, "spec": {"selectors": [
        {"cel": {"expression": "device.driver == 'net.example.com'"}}]}}  # fmt: skip
    await claims.make("deviceclasses", other)
    wanted = request("net", None, None, deviceClassName="net")
    await claims.make("resourceclaims", claim(wanted, name="net"))
    named = await claims.make("pods", pod("net", "net", containers=[{"name": "c", "image": "x"}]))
    plain = await claims.make("pods", pod_object("plain", (30, 4)))

    assert await scores(claims, named) == {}
    assert await scores(claims, plain) == {}


async def test_a_pod_with_device_ids_is_scored_as_ever(claims: Served) -> None:
    """What claims hold says nothing about device IDs, nor the other way round."""
    await make(claims, "first", request("gpu", 30, "2Gi"), node="b")
    plain = await claims.make("pods", pod_object("plain", (30, 4)))

    body = {"Pod": plain, "NodeNames": NAMES}

    assert await claims.post("/scheduler/prioritize", body) == []


async def test_without_the_flag_no_claims_are_read(api: SimulatedApiServer) -> None:
    await api.create("nodes", node_object("a"))
    async with serving(api) as served:
        kinds = {call.resource for call in api.calls}
        assert not kinds & {"resourceslices", "resourceclaims", "deviceclasses"}
        assert await scores(served, pod("p", "p")) == {}


def offered(served: Served, node: str) -> Any:
    return served.extender.state.nodes[node].offered.gpus
