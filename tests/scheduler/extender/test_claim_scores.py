"""Nodes are scored for pods with claims by what claims hold of their GPUs."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from gpumanager.kube.pod import read_pod
from gpumanager.scheduler.claims.cache import ClaimCache
from gpumanager.scheduler.node import read_node
from gpumanager.scheduler.scoring.verdicts import Verdicts, prioritize
from gpumanager.scheduler.scoring.workload_mix import WorkloadMix
from gpumanager.scheduler.state import ClusterState
from gpumanager.sim.claims.control_plane import ClaimControlPlane
from gpumanager.sim.cluster.objects import Key
from gpumanager.sim.cluster.server import SimulatedApiServer
from tests.scheduler.claims.claim_texts import opaque
from tests.scheduler.scheduler_world import node_object, pod_object
from tests.scheduler.served_extender import Served, serving
from tests.sim.claims.claim_objects import asked, claim, device_class, gpu, pod, request, slice_of
from tests.waiting import until

pytest_plugins = ["tests.scheduler.extender_fixtures"]

NAMES = ["a", "b"]
SHARE = request("gpu", 30, "2Gi")
TAINT = {"key": "gpu.tencent.com/unhealthy", "value": "true", "effect": "NoSchedule"}


class Cached:
    """Two nodes of two GPUs each, which claims can have; a claim holds 30 % of a GPU of b."""

    def __init__(self) -> None:
        self._state = ClusterState()
        self._cache = ClaimCache(self._state.offer)
        self.put("device classes", device_class())
        for name in NAMES:
            self._state.node(read_node(node_object(name, gpus=2)))
            self.put("resource slices", slice_of(name, gpu(0), gpu(1)))
        self.allocate("first", "b")

    def put(self, kind: str, item: Any) -> None:
        self._cache.stores[kind].put(item)

    def allocate(self, name: str, node: str, device: str = "gpu-0") -> None:
        consumed = {"consumedCapacity": {"cores": "30", "memory": "2Gi"}}
        result = {"request": "gpu", "driver": "gpu.tencent.com", "pool": node, "device": device}
        allocation = {"devices": {"results": [{**result, **consumed}]}}
        self.put(
            "resource claims", {**claim(SHARE, name=name), "status": {"allocation": allocation}}
        )

    def scores(self, wanted: Any = SHARE, of_claim: Any = (), **notes: str) -> dict[str, int]:
        """Scores for a pod with such a claim; of_claim: its parameters."""
        self.put("resource claims", claim(wanted, name="p", config=list(of_claim)))
        return self.scores_of("p", **notes)

    def scores_of(self, name: str, **notes: str) -> dict[str, int]:
        item = pod("p", name, containers=[{"name": "c", "image": "none"}])
        item["metadata"]["annotations"] = {
            f"tencent.com/{key}": text for key, text in notes.items()
        }
        shape = self._cache.shape_of(read_pod(item), waiting=True)
        if shape is None:
            return {}
        found = prioritize(Verdicts(self._state, WorkloadMix()).of(shape), NAMES)
        return {name: score for score, names in found for name in names}


ALTERNATIVES = [{"name": "small", **asked(20, "1Gi")}, {"name": "large", **asked()}]


@pytest.mark.parametrize(
    ("wanted", "notes", "scores"),
    [
        pytest.param(SHARE, {}, {"b": 10, "a": 9}, id="a shared GPU with room before an idle one"),
        pytest.param(request("gpu"), {}, {"b": 10, "a": 9}, id="whole GPUs leave an idle node"),
        pytest.param(
            {"name": "gpu", "firstAvailable": ALTERNATIVES},
            {},
            {"b": 10, "a": 9},
            id="of alternatives the first one counts",
        ),
        pytest.param(
            SHARE, {"vcuda-policy": "spread"}, {"a": 10, "b": 9}, id="the pod's policy decides"
        ),
        pytest.param(
            request("net", deviceClassName="net"), {}, {}, id="a claim of another driver has none"
        ),
    ],
)
def test_scores_are_those_of_what_is_asked(
    wanted: Any, notes: dict[str, str], scores: dict[str, int]
) -> None:
    assert Cached().scores(wanted, **notes) == scores


def test_a_claim_that_is_allocated_already_gives_no_scores() -> None:
    assert Cached().scores_of("first") == {}


def test_the_first_gpu_of_the_slice_that_fits_is_judged() -> None:
    """On b the free GPU comes first, so the shared one is not what the pod would get."""
    cached = Cached()
    cached.allocate("second", "a")
    assert cached.scores() == {}

    cached.put("resource slices", slice_of("b", gpu(1), gpu(0)))

    assert cached.scores() == {"a": 10, "b": 9}


def test_a_gpu_that_is_tainted_is_not_counted() -> None:
    cached = Cached()

    cached.put("resource slices", slice_of("b", *({**gpu(n), "taints": [TAINT]} for n in range(2))))

    assert cached.scores() == {}


SPREAD, BINPACK, LIMIT = opaque(policy="spread"), opaque(policy="binpack"), opaque(coreLimit=60)


@pytest.mark.parametrize(
    ("of_class", "of_claim", "winner"),
    [
        pytest.param([], [SPREAD], "a", id="that of the claim"),
        pytest.param([SPREAD], [], "a", id="that of the class"),
        pytest.param([SPREAD], [LIMIT], "a", id="that of the class beside a limit of the claim"),
        pytest.param([SPREAD], [BINPACK], "b", id="that of the claim before that of the class"),
        pytest.param([], [LIMIT, SPREAD], "a", id="that of the second of two parameters"),
    ],
)
def test_the_policy_of_parameters_decides(
    of_class: list[Any], of_claim: list[Any], winner: str
) -> None:
    cached, own = Cached(), device_class("own")
    own["spec"]["config"] = of_class
    cached.put("device classes", own)

    found = cached.scores(request("gpu", 30, "2Gi", deviceClassName="own"), of_claim)

    assert max(found, key=lambda name: found[name]) == winner


@pytest.fixture
async def claims(api: SimulatedApiServer) -> AsyncIterator[Served]:
    """The same two nodes, where an API server has them and kube-scheduler allocates."""
    await api.create("deviceclasses", device_class())
    for name in NAMES:
        node = node_object(name, gpus=2)
        node["metadata"]["labels"] = {"kubernetes.io/hostname": name}
        await api.create("nodes", node)
        await api.create("resourceslices", slice_of(name, gpu(0), gpu(1)))
    async with serving(api, claims=True) as served:
        await until(lambda: all(offered(served, one) for one in NAMES))
        yield served


def offered(served: Served, node: str) -> Any:
    return served.extender.state.nodes[node].offered.gpus


async def make(served: Served, name: str, **spec: Any) -> Any:
    """A pod with a claim of its own, which the extender knows."""
    await served.make("resourceclaims", claim(SHARE, name=name))
    item = pod(name, name, containers=[{"name": "c", "image": "none"}], **spec)
    made = await served.make("pods", item)
    await until(lambda: served.extender.claims.shape_of(read_pod(made)))
    return made


async def scores(served: Served, item: Any, verb: str = "prioritize-claims") -> dict[str, int]:
    rows = await served.post(f"/scheduler/{verb}", {"Pod": item, "NodeNames": NAMES})
    return {row["Host"]: row["Score"] for row in rows}


async def test_a_claim_counts_from_its_allocation_to_its_release(claims: Served) -> None:
    """What claims hold says nothing about device IDs, nor the other way round."""
    wanted = await make(claims, "p")
    assert await scores(claims, wanted) == {}

    await make(claims, "first", nodeSelector={"kubernetes.io/hostname": "b"})
    await claims.api.remove(Key("pods", "default", "p"))
    await ClaimControlPlane(claims.api).settle()
    await until(lambda: any(one.processes for one in offered(claims, "b")))

    assert await scores(claims, wanted) == {"b": 10, "a": 9}
    plain = await claims.make("pods", pod_object("plain", (30, 4)))
    assert await scores(claims, plain) == await scores(claims, plain, "prioritize") == {}
    await claims.api.remove(Key("pods", "default", "first"))
    await ClaimControlPlane(claims.api).settle()
    await until(lambda: not any(one.processes for one in offered(claims, "b")))
    assert await scores(claims, wanted) == {}


async def test_without_the_flag_no_claims_are_read(api: SimulatedApiServer) -> None:
    await api.create("nodes", node_object("a"))
    async with serving(api) as served:
        kinds = {call.resource for call in api.calls}
        assert not kinds & {"resourceslices", "resourceclaims", "deviceclasses"}
        assert await scores(served, pod("p", "p")) == {}
