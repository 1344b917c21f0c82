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


async def test_every_node_that_has_room_is_answered(served: Served) -> None:
    pod = await served.make("pods", pod_object("p", (30, 4)))

    found = await ask(served, "filter", pod)

    assert found["NodeNames"] == NAMES
    assert (found["FailedNodes"], found["Error"]) == ({}, "")


async def test_the_fuller_node_scores_higher(served: Served) -> None:
    first = await served.make("pods", pod_object("first", (30, 4)))
    await served.bind(first, "b")

    scores = await ask(served, "prioritize", await served.make("pods", pod_object("p", (30, 4))))

    assert scores == [{"Host": "b", "Score": 10}, {"Host": "a", "Score": 9}]


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


async def test_a_second_pod_sees_the_first_before_the_watch_has_told(served: Served) -> None:
    pods = [await served.make("pods", pod_object(f"p{n}", (400, 0))) for n in range(2)]
    assert await served.bind(pods[0], "a") == ""

    found = await ask(served, "filter", pods[1])

    assert found["NodeNames"] == ["b"]
    assert found["FailedNodes"] == {"a": "Insufficient tencent.com/vcuda-core"}
    assert "Insufficient tencent.com/vcuda-core (a: " in await served.bind(pods[1], "a")


async def test_a_pod_by_that_name_but_another_uid_is_not_bound(served: Served) -> None:
    pod = await served.make("pods", pod_object("p", (30, 4)))
    old = {**pod, "metadata": {**pod["metadata"], "uid": "an-older-one"}}
    await ask(served, "filter", old)

    assert await served.bind(old, "a") != ""

    assert "nodeName" not in served.pod("p")["spec"]
    assert served.extender.state.counts["assumed"] == 0


async def test_what_a_refused_binding_held_is_free_again(served: Served) -> None:
    pod = await served.make("pods", pod_object("p", (400, 0)))
    await ask(served, "filter", pod)
    served.api.refuse(403, "Forbidden")

    assert "Forbidden" in await served.bind(pod, "a")

    assert served.extender.state.counts["assumed"] == 0
    assert await served.bind(pod, "a") == ""


async def test_a_pod_without_gpus_may_go_anywhere_and_is_not_ours_to_bind(served: Served) -> None:
    item = pod_object("p")
    item["spec"]["containers"] = [{"name": "main", "image": "none"}]
    pod = await served.make("pods", item)

    assert (await ask(served, "filter", pod, ["x", "y"]))["NodeNames"] == ["x", "y"]
    assert "asks for no GPU" in await served.bind(pod, "a")


async def test_what_no_node_could_run_is_refused_for_good(served: Served) -> None:
    found = await ask(served, "filter", await served.make("pods", pod_object("p", (150, 0))))

    assert found["NodeNames"] == []
    assert "only multiples of 100" in found["FailedAndUnresolvableNodes"]["a"]


async def test_whole_nodes_are_answered_by_whole_nodes(served: Served) -> None:
    pod = await served.make("pods", pod_object("p", (30, 4)))
    nodes = [node_object("a"), {"metadata": {"name": "c"}}]

    found = await served.post("/scheduler/predicates", {"Pod": pod, "Nodes": {"items": nodes}})

    assert found["Nodes"]["items"] == [nodes[0]]
    assert found["NodeNames"] is None
    assert found["FailedNodes"] == {"c": "node(s) were not known to the GPU scheduler yet"}


async def test_preemption_keeps_the_nodes_on_which_the_victims_are_enough(
    served: Served,
) -> None:
    pods = {}
    for node in NAMES:
        for n in range(2):
            pod = await served.make("pods", pod_object(f"{node}{n}", (200, 0)))
            assert await served.bind(pod, node) == ""
            pods[f"{node}{n}"] = pod["metadata"]["uid"]
    big = await served.make("pods", pod_object("big", (400, 0)))
    both = {"Pods": [{"UID": pods["a0"]}, {"UID": pods["a1"]}], "NumPDBViolations": 1}
    one = {"Pods": [{"UID": pods["b0"]}]}

    found = await served.post(
        "/scheduler/preempt", {"Pod": big, "NodeNameToMetaVictims": {"a": both, "b": one}}
    )

    assert found == {"NodeNameToMetaVictims": {"a": both}}


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


async def test_who_is_strict_preempts_only_where_that_would_help(served: Served) -> None:
    holder = await served.make("pods", pod_object("holder", (400, 0)))
    assert await served.bind(holder, "a") == ""
    strict = pod_object("strict", (200, 0), vcuda_policy="topology=strict")
    pod = await served.make("pods", strict)
    victims = {"a": {"Pods": [{"UID": holder["metadata"]["uid"]}]}}

    found = await served.post("/scheduler/preempt", {"Pod": pod, "NodeNameToMetaVictims": victims})

    assert found == {"NodeNameToMetaVictims": {}}


async def test_a_policy_nobody_knows_is_refused_for_good_in_words(served: Served) -> None:
    pod = await served.make("pods", pod_object("p", (30, 4), vcuda_gpu_policy="tight"))

    found = await ask(served, "filter", pod)

    said = found["FailedAndUnresolvableNodes"]["a"]
    assert "annotation tencent.com/vcuda-gpu-policy: 'tight' is not a policy for GPUs" in said


async def test_each_pod_is_placed_by_the_policy_it_names(served: Served) -> None:
    first = await served.make("pods", pod_object("first", (30, 4)))
    assert await served.bind(first, "b") == ""

    async def scores(policy: str) -> list[tuple[str, int]]:
        pod = await served.make("pods", pod_object(f"p-{policy}", (30, 4), vcuda_policy=policy))
        found = await ask(served, "prioritize", pod)
        return sorted((one["Host"], one["Score"]) for one in found)

    assert await scores("binpack") == [("a", 9), ("b", 10)]
    assert await scores("spread") == [("a", 10), ("b", 9)]


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


async def test_a_restarted_extender_learns_from_the_pods_there_are(
    api: SimulatedApiServer,
) -> None:
    await api.create("nodes", node_object("a"))
    for number in range(100):
        await api.create("pods", pod_object(f"p{number}", (1, 1), node="a" if number % 2 else ""))

    async with serving(api) as served:
        usual = served.extender.habits.mix.typical

    assert [(one.requests[0].cores, part) for one, part in usual] == [(1, 1.0)]


async def test_an_extender_learns_that_pods_leave(served: Served) -> None:
    state = served.extender.state
    for number in range(300):
        state.pod(pod_view(f"p{number}", (1, 1), node="a"), "a")
        state.pod_gone(PodUID(f"uid-p{number}"))

    assert served.extender.habits.mix.leaving == pytest.approx(1, abs=0.02)


async def test_explain_tells_why_a_pod_waits_and_where_it_went(served: Served) -> None:
    pod = await served.make("pods", pod_object("p", (500, 0)))
    await ask(served, "filter", pod)

    status, text = await served.get("/explain/default/p")

    said = json.loads(text)
    assert status == 200
    assert said["fitting"] == 0
    assert said["reasons"] == [
        {
            "reason": "node(s) didn't have enough GPUs",
            "nodes": 2,
            "example": "a",
            "detail": "5 whole GPUs asked; this machine has 4",
        }
    ]
    assert (await served.get("/explain/default/q"))[0] == 404


async def test_a_restarted_extender_knows_who_has_what(api: SimulatedApiServer) -> None:
    await api.create("nodes", node_object("a"))
    async with serving(api) as first:
        pod = await first.make("pods", pod_object("p", (200, 0)))
        assert await first.bind(pod, "a") == ""
    async with serving(api) as second:
        another = await second.make("pods", pod_object("q", (300, 0)))

        found = await ask(second, "filter", another, ["a"])

        assert found["NodeNames"] == []


async def test_a_pod_that_is_gone_leaves_its_place(served: Served) -> None:
    pod = await served.make("pods", pod_object("p", (400, 0)))
    await served.bind(pod, "a")
    await served.api.remove(Key("pods", "default", "p"))
    another = await served.make("pods", pod_object("q", (400, 0)))

    await until(lambda: served.extender.state.counts["pods"] == 0)

    await until(lambda: served.extender.state.counts["assumed"] == 0)
    assert (await ask(served, "filter", another))["NodeNames"] == NAMES


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
