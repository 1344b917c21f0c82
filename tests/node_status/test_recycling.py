"""Which pods are deleted for their owners to make them anew."""

from dataclasses import replace
from typing import Any

import pytest

from gpumanager.deviceplugin.identity.resolution import BookedContainer, match
from gpumanager.grants.refusals import NotResolved
from gpumanager.ids import PodUID
from gpumanager.kube.backoff import RateLimit
from gpumanager.kube.pod import PodView, read_pod
from gpumanager.node_status.pod_reconciler import HOPELESS_SECONDS, cause, hopeless, recyclable
from tests.kube.api_world import pod_object

OURS = "Allocate failed due to rpc error: code = Unknown desc = no room, which is unexpected"
UNAVAILABLE = (
    "Allocate failed due to requested number of devices unavailable for tencent.com/vcuda-core. "
    "Requested: 30, Available: 0, which is unexpected"
)
OWNED: dict[str, Any] = {"ownerReferences": [{"kind": "ReplicaSet", "name": "r"}]}
STATIC: dict[str, Any] = {
    "annotations": {"kubernetes.io/config.mirror": "h", "kubernetes.io/config.hash": "h"}
}


def pod(
    message: str = OURS,
    *,
    phase: str = "Failed",
    reason: str = "UnexpectedAdmissionError",
    priority: int = 0,
    status: Any = None,
    **metadata: Any,
) -> PodView:
    item = pod_object("p", "n", **{"uid": "u", **OWNED, **metadata})
    item["spec"]["priority"] = priority
    item["status"] = {"phase": phase, "reason": reason, "message": message, **(status or {})}
    return read_pod(item)


def is_deleted(one: PodView) -> bool:
    return recyclable([one], {}, 0.0) == (one,)


@pytest.mark.parametrize(
    "refused",
    [pod(OURS), pod(UNAVAILABLE), pod(priority=1_999_999_999)],
    ids=["by us", "by the kubelet", "just below critical"],
)
def test_a_pod_that_this_node_did_not_admit_is_deleted(refused: PodView) -> None:
    assert is_deleted(refused)


@pytest.mark.parametrize(
    "stays",
    [
        pod(phase="Pending"),
        pod(reason="OutOfcpu"),
        pod("Allocate failed due to requested number of devices unavailable for example.com/fpga"),
        pod(ownerReferences=[]),
        pod(ownerReferences=[{"kind": "ReplicaSet", "name": "r"}, {"kind": "Pod", "name": "p"}]),
        pod(ownerReferences=[{"kind": "Node", "name": "n"}]),
        pod(**STATIC),
        pod(priority=2_000_000_000),
        pod(priority=2_000_001_000),
        pod(deletionTimestamp="2026-01-01T00:00:00Z"),
        replace(pod(), containers=()),
    ],
    ids=[
        "not failed",
        "for another reason",
        "another's resource",
        "naked",
        "a pod's",
        "a node's",
        "static",
        "critical",
        "node-critical",
        "going already",
        "asks for no GPU",
    ],
)
def test_no_other_pod_is_deleted(stays: PodView) -> None:
    assert not is_deleted(stays)


def waiting(message: str) -> PodView:
    state = {"waiting": {"reason": "PreStartHookError", "message": message}}
    statuses = {"containerStatuses": [{"name": "main", "state": state}]}
    return pod("", phase="Pending", reason="", status=statuses)


def lost() -> PodView:
    """A container with what PreStartContainer says of one that has no record."""
    container = BookedContainer(PodUID("u"), "main", frozenset({"a-c-0"}), frozenset())
    with pytest.raises(NotResolved) as said:
        match((), (container,))
    return waiting(f"rpc error: code = Unknown desc = {said.value}")


def test_a_container_that_can_never_start_is_given_up_after_a_while() -> None:
    since: dict[PodUID, float] = {}

    assert recyclable([lost()], since, 100.0) == ()
    assert recyclable([lost()], since, 100.0 + HOPELESS_SECONDS - 1) == ()
    assert recyclable([lost()], since, 100.0 + HOPELESS_SECONDS) == (lost(),)


def test_one_that_came_to_itself_meanwhile_begins_anew() -> None:
    since: dict[PodUID, float] = {}

    recyclable([lost()], since, 100.0)
    recyclable([waiting("image is pulled")], since, 130.0)

    assert recyclable([lost()], since, 190.0) == ()


def test_a_container_that_waits_for_something_else_is_left_alone() -> None:
    assert not hopeless(waiting("rpc error: its devices are still held by default/other"))


def test_a_budget_is_spent_and_comes_back() -> None:
    budget: RateLimit | None = RateLimit(burst=2, seconds=10.0)
    for _ in range(2):
        assert budget is not None
        budget = budget.take(100.0)
    assert budget is not None

    assert budget.take(105.0) is None
    assert budget.take(110.0) is not None


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (OURS, "no room"),
        ("rpc error: code = Unknown desc = a, which is odd", "a, which is odd"),
        ("no quotation", "no quotation"),
    ],
)
def test_the_plugin_s_own_words_are_found_in_the_kubelet_s(message: str, said: str) -> None:
    assert cause(pod(message)) == said
