"""What happened to a pod on its node, told in sentences; and who sits where."""

from dataclasses import replace
from typing import Any

import pytest

from gpumanager.cli.tree import as_json as tree_json
from gpumanager.cli.tree import shares_by_gpu
from gpumanager.gpu.tree import branches, islands
from gpumanager.gpu.values import Bond, Level, topology
from gpumanager.grants.grant import Claimant, Grant, LegacySource, State
from gpumanager.ids import PodUID
from gpumanager.monitor.events import Events
from gpumanager.view.node import NodeView, read_node
from gpumanager.view.story import pod_story, story
from tests.view.view_world import (
    BUSY,
    MACHINE,
    container,
    device,
    document,
    gpu,
    node_of,
    promise,
    seen,
    snapshot,
)


def told(*grants: Grant, events: Events | None = None) -> NodeView:
    """A busy node, whose containers have these grants instead of their own."""
    known = {one.id: one for one in grants}
    views = [replace(one, grant=known.get(one.grant.id, one.grant)) for one in BUSY]
    running = [one for one in views if one.grant.state is State.CONFIRMED]
    found = snapshot(running)
    others = tuple((one, ()) for one in grants if one.id not in {o.grant.id for o in running})
    found = replace(found, live=(*found.live, *others))
    return read_node(document(found, events=events))


def tale(*grants: Grant, pod: str = "team/train-0", **more: Any) -> str:
    return " ".join(story(pod, told(*grants, **more)))


def test_a_container_that_runs_is_told_its_gpu_the_rule_and_what_it_uses() -> None:
    said = tale(promise())

    assert "Container main has 30 % and 4 GiB of GPU 0 (A100-SXM4-40GB) since" in said
    assert "Chosen for a share of one GPU: the fullest GPU that still has room." in said
    assert "uses 3.9 GiB of 4 GiB now." in said
    assert "It was refused memory 3 times" in said
    assert "ask for more than 16 tencent.com/vcuda-memory" in said
    assert "It takes 29.8 % of the GPU's time; granted: 30 %." in said


def test_who_waits_is_told_how_to_get_more_and_who_may_burst_is_not() -> None:
    waiting = device(throttled=5, launches=9, throttled_ns=2_000_000_000)
    bursting = device(throttled=5, launches=9, ceiling=60)

    def of(found: Any) -> str:
        now = seen(container("team/train-0", found)).node
        assert now is not None
        return " ".join(story("team/train-0", now))

    assert "5 of its 9 launches had to wait, 2.0s in all" in of(waiting)
    assert "tencent.com/vcuda-core-limit lets it take" in of(waiting)
    assert "tencent.com/vcuda-core-limit" not in of(bursting)
    assert "granted: 30 %, up to 60 %." in of(bursting)


def test_a_promise_that_has_not_started_and_one_made_for_another_are_told_as_such() -> None:
    other = Claimant(PodUID("uid-other"), "team", "other", "main")
    open_ = promise(state=State.ANSWERED, candidate=promise().pod, pod=None)

    assert "was granted 30 %" in tale(open_)
    assert "It has not started yet" in tale(open_)
    assert "while team/other was thought to be admitted" in tale(promise(candidate=other))
    assert "this one has ended" in tale(promise(suspect=True))
    assert "gpu-manager granted it" in tale(promise(source=LegacySource("legacy")))


def test_what_went_wrong_at_admission_is_told_once_and_counted() -> None:
    who = promise().pod
    assert who is not None
    events = Events(clock=lambda: 7.0)
    for _ in range(3):
        events.postponed(who, "its devices are in use")
    events.refused(who, "no GPU has 30 cores left")
    events.swapped(who, Claimant(PodUID("uid-other"), "team", "other", "main"))

    said = tale(events=events)

    assert "was put off, 3 times, lately at" in said
    assert said.count("its devices are in use") == 1
    assert "was refused at" in said
    assert "That is final for the pod" in said
    assert "on what had been granted for team/other (main)" in said


def test_of_a_pod_that_is_not_here_nothing_is_told() -> None:
    assert tale(promise(), pod="team/nobody") == ""


# The tree.


def test_the_tree_has_every_gpu_once_with_who_sits_on_it() -> None:
    whole = container("lab/all:main", device(0), device(1), whole=True).grant
    node = node_of(promise(), whole, promise("old/gone:main", suspect=True))

    record = tree_json(node.topology, shares_by_gpu(node), "node-a")

    (switch,) = record["tree"]
    assert (switch["level"], switch["gpus"]) == ("PIX", [0, 1])
    seats = [[one["pod"] for one in leaf["gpu"]["containers"]] for leaf in switch["below"]]
    assert seats == [["train-0", "all"], ["all"]]
    assert record["nvlink_islands"] == [{"gpus": [0, 1], "least": 12, "most": 12}]


def test_where_nobody_knows_who_sits_there_nothing_is_claimed() -> None:
    (switch,) = tree_json(MACHINE, None)["tree"]

    assert "containers" not in switch["below"][0]["gpu"]


def test_islands_are_what_nvlinks_join_and_nothing_else() -> None:
    none, one, two = Bond(Level.SYS), Bond(Level.PIX, 1), Bond(Level.SYS, 2)
    chain = topology(
        [gpu(0), gpu(1), gpu(2), gpu(3)],
        [
            [None, one, none, none],
            [one, None, two, none],
            [none, two, None, none],
            [none, none, none, None],
        ],
    )

    (island,) = islands(chain)

    assert (island.members, island.least, island.most) == ((0, 1, 2), 0, 2)
    assert [part.members for part in branches(chain)] == [(0, 1), (2,), (3,)]


# The API server's side.


def test_a_pod_s_events_and_annotations_are_told() -> None:
    pod = {
        "metadata": {
            "annotations": {
                "tencent.com/predicate-node": "node-a",
                "tencent.com/predicate-gpu-idx-0": "2",
                "tencent.com/gpu-assigned": "true",
            }
        },
        "spec": {
            "nodeName": "node-a",
            "containers": [
                {"name": "main", "resources": {"limits": {"tencent.com/vcuda-core": "30"}}}
            ],
        },
        "status": {
            "phase": "Pending",
            "conditions": [{"type": "PodScheduled", "status": "False", "message": "no room"}],
        },
    }
    events: list[dict[str, Any]] = [
        {"reason": "Later", "message": "b", "lastTimestamp": "2026-01-02T00:00:00Z", "count": 3},
        {"reason": "First", "message": "a\x1b[2J", "lastTimestamp": "2026-01-01T00:00:00Z"},
    ]

    said = pod_story(pod, events)

    assert (
        said[0] == "Container main asks for tencent.com/vcuda-core 30, tencent.com/vcuda-memory 0."
    )
    assert "Its phase is Pending, on node node-a." in said
    assert "PodScheduled is not so: no room" in said
    assert "Container number 0 has GPU 2 (of /dev/nvidia)." in said
    assert said[-2:] == (
        "2026-01-01T00:00:00Z First: a?[2J",
        "2026-01-02T00:00:00Z Later, 3 times: b",
    )


@pytest.mark.parametrize("pod", [{}, {"spec": None, "status": {}}, {"spec": {"containers": "x"}}])
def test_a_pod_of_an_unknown_shape_is_still_told(pod: dict[str, Any]) -> None:
    assert pod_story(pod, [{}])
