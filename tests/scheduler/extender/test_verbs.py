"""The extender over HTTP, with a simulated API server behind it."""

import json
from typing import Any

import pytest

from gpumanager.ids import PodUID
from gpumanager.kube.pod import PodView
from gpumanager.names import LABEL_QUOTA_POOL
from gpumanager.placement.preference import read_preference
from gpumanager.scheduler.node import Holder
from gpumanager.scheduler.quota.limits import NodeClass
from gpumanager.scheduler.quota.rules import Check, QuotaRules
from gpumanager.scheduler.scoring.pod_shape import PodShape
from gpumanager.scheduler.scoring.unschedulable_reasons import Unfit
from gpumanager.sim.cluster.objects import Key
from gpumanager.sim.cluster.server import SimulatedApiServer
from tests.scheduler.scheduler_world import node_object, plan, pod_object
from tests.scheduler.scheduler_world import pod as pod_view
from tests.scheduler.served_extender import Served, serving
from tests.waiting import until

pytest_plugins = ["tests.scheduler.extender_fixtures"]

NAMES = ["a", "b"]


def notes(item: Any) -> dict[str, str]:
    found = item["metadata"]["annotations"]
    return {key.removeprefix("tencent.com/"): text for key, text in found.items()}


async def ask(served: Served, verb: str, pod: Any, names: list[str] | None = None) -> Any:
    return await served.post(f"/scheduler/{verb}", {"Pod": pod, "NodeNames": names or NAMES})


async def test_a_bound_pod_has_the_original_s_annotations_and_the_plan(served: Served) -> None:
    pod = await served.make("pods", pod_object("p", (200, 0), (30, 4)))
    await ask(served, "filter", pod)

    assert await served.bind(pod, "a") == ""

    bound = served.pod("p")
    assert bound["spec"]["nodeName"] == "a"
    said = notes(bound)
    assert said["predicate-node"] == "a"
    assert said["gpu-assigned"] == "false"
    assert int(said["predicate-time"]) > 0
    assert said["predicate-gpu-idx-0"] == "2,3"  # minors run the other way
    assert said["predicate-gpu-idx-1"] == "1"
    containers = json.loads(said["vcuda-plan"])["containers"]
    assert containers["app-0"] == {"gpus": ["GPU-a-0", "GPU-a-1"]}
    assert containers["app-1"] == {"gpus": ["GPU-a-2"]}


async def test_a_pod_that_returns_is_placed_again_and_nothing_stale_is_left(
    served: Served,
) -> None:
    left: dict[str, Any] = {
        "predicate_gpu_idx_0": "0",
        "predicate_gpu_idx_1": "1",
        "gpu_assigned": "false",
        "predicate_time": "1",
        "vcuda_plan": plan(app_0=["GPU-b-3"]),
    }
    pod = await served.make("pods", pod_object("p", (30, 4), **left))

    assert (await ask(served, "filter", pod))["NodeNames"] == NAMES
    assert await served.bind(pod, "a") == ""

    said = notes(served.pod("p"))
    assert "predicate-gpu-idx-1" not in said
    assert json.loads(said["vcuda-plan"])["containers"]["app-0"] == {"gpus": ["GPU-a-0"]}


async def test_a_bind_that_is_asked_for_again_is_done(served: Served) -> None:
    pod = await served.make("pods", pod_object("p", (30, 4)))
    assert await served.bind(pod, "a") == ""
    before = served.pod("p")

    assert await served.bind(pod, "a") == ""
    assert "on a already" in await served.bind(pod, "b")

    assert served.pod("p") == before


async def test_a_pod_by_that_name_but_another_uid_is_not_bound(served: Served) -> None:
    pod = await served.make("pods", pod_object("p", (30, 4)))
    old = {**pod, "metadata": {**pod["metadata"], "uid": "an-older-one"}}
    await ask(served, "filter", old)

    assert await served.bind(old, "a") != ""

    assert "nodeName" not in served.pod("p")["spec"]
    assert served.extender.state.counts["assumed"] == 0


async def test_a_pod_without_gpus_may_go_anywhere_and_is_not_ours_to_bind(served: Served) -> None:
    item = pod_object("p")
    item["spec"]["containers"] = [{"name": "main", "image": "none"}]
    pod = await served.make("pods", item)

    assert (await ask(served, "filter", pod, ["x", "y"]))["NodeNames"] == ["x", "y"]
    assert "asks for no GPU" in await served.bind(pod, "a")


async def test_whole_nodes_are_answered_by_whole_nodes(served: Served) -> None:
    pod = await served.make("pods", pod_object("p", (30, 4)))
    nodes = [node_object("a"), {"metadata": {"name": "c"}}]

    found = await served.post("/scheduler/predicates", {"Pod": pod, "Nodes": {"items": nodes}})

    assert found["Nodes"]["items"] == [nodes[0]]
    assert found["NodeNames"] is None
    assert found["FailedNodes"] == {"c": "node(s) were not known to the GPU scheduler yet"}


async def test_victims_and_violated_budgets_are_answered_as_they_were_sent(
    served: Served,
) -> None:
    holder = await served.make("pods", pod_object("holder", (400, 0)))
    assert await served.bind(holder, "a") == ""
    big = await served.make("pods", pod_object("big", (400, 0)))
    uid, spare = holder["metadata"]["uid"], "no-gpus-but-in-the-way"
    victims = {"Pods": [{"UID": spare}, {"UID": uid}], "NumPDBViolations": 3}
    whole = {"Pods": [{"metadata": {"uid": uid, "name": "holder"}}], "NumPDBViolations": 2}

    by_name = await served.post(
        "/scheduler/preempt",
        {"Pod": big, "NodeNameToMetaVictims": {"a": victims, "b": {"Pods": []}, "gone": victims}},
    )
    by_object = await served.post(
        "/scheduler/preempt", {"Pod": big, "NodeNameToVictims": {"a": whole, "b": {"Pods": None}}}
    )

    assert by_name == {"NodeNameToMetaVictims": {"a": victims}}
    assert by_object["NodeNameToMetaVictims"] == {
        "a": {"Pods": [{"UID": uid}], "NumPDBViolations": 2}
    }


async def test_a_policy_nobody_knows_is_refused_for_good_in_words(served: Served) -> None:
    pod = await served.make("pods", pod_object("p", (30, 4), vcuda_gpu_policy="tight"))

    found = await ask(served, "filter", pod)

    said = found["FailedAndUnresolvableNodes"]["a"]
    assert "annotation tencent.com/vcuda-gpu-policy: 'tight' is not a policy for GPUs" in said


async def test_a_cluster_may_have_another_policy(api: SimulatedApiServer) -> None:
    for name in NAMES:
        await api.create("nodes", node_object(name))
    async with serving(api, preference=read_preference("spread")) as served:
        first = await served.make("pods", pod_object("first", (30, 4)))
        assert await served.bind(first, "b") == ""

        found = await ask(served, "prioritize", await served.make("pods", pod_object("p", (30, 4))))
        second = await served.make("pods", pod_object("second", (30, 4)))
        assert await served.bind(second, "b") == ""

        assert {one["Host"]: one["Score"] for one in found} == {"a": 10, "b": 9}
        plan_of = json.loads(notes(served.pod("second"))["vcuda-plan"])["containers"]
        assert plan_of["app-0"] == {"gpus": ["GPU-b-1"]}


async def test_an_extender_learns_that_pods_leave(served: Served) -> None:
    state = served.extender.state
    for number in range(300):
        state.pod(pod_view(f"p{number}", (1, 1), node="a"), "a")
        state.pod_gone(PodUID(f"uid-p{number}"))

    assert served.extender.habits.mix.leaving == pytest.approx(1, abs=0.02)


async def test_the_probes_tell_how_it_is(served: Served) -> None:
    assert await served.get("/healthz") == (200, "ok\n")
    assert await served.get("/readyz") == (200, "ready, leading\n")
    assert (await served.get("/version"))[0] == 200
    status, text = await served.get("/metrics")
    assert status == 200
    assert 'gpumanager_extender_objects{kind="nodes"} 2.0' in text


class Forbidding(QuotaRules):
    """The pool closed is not for pods of the default namespace; counts who holds what."""

    def __init__(self) -> None:
        super().__init__()
        self.held_by: dict[tuple[str, str], str] = {}

    def permits(self, pod: PodView, ask: PodShape) -> Check | None:
        def check(kind: NodeClass) -> Unfit | None:
            return Unfit("forbidden here", "by rule") if kind.pool == "closed" else None

        return check if pod.namespace == "default" else None

    def held(self, node: str, kind: NodeClass, uid: PodUID, holder: Holder) -> None:
        self.held_by[node, uid] = holder.namespace

    def gone(self, node: str, uid: PodUID) -> None:
        del self.held_by[node, uid]


async def test_rules_about_pods_are_asked_in_every_verb(api: SimulatedApiServer) -> None:
    rules = Forbidding()
    for name, pool in zip(NAMES, ("open", "closed"), strict=True):
        item = node_object(name)
        item["metadata"]["labels"] = {LABEL_QUOTA_POOL: pool}
        await api.create("nodes", item)
    async with serving(api, rules=rules) as served:
        pod = await served.make("pods", pod_object("p", (30, 4)))

        found = await ask(served, "filter", pod)
        victims = {name: {"Pods": [{"UID": "any"}]} for name in NAMES}
        left = await served.post(
            "/scheduler/preempt", {"Pod": pod, "NodeNameToMetaVictims": victims}
        )

        assert (found["NodeNames"], found["FailedNodes"]) == (["a"], {"b": "forbidden here"})
        assert left["NodeNameToMetaVictims"].keys() == {"a"}
        assert "forbidden here (b: by rule)" in await served.bind(pod, "b")
        assert rules.held_by == {}
        assert await served.bind(pod, "a") == ""
        assert rules.held_by == {("a", pod["metadata"]["uid"]): "default"}
        await api.remove(Key("pods", "default", "p"))
        await until(lambda: not rules.held_by)
