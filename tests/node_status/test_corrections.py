"""Which annotations of a pod are wrong, and what is written instead."""

from typing import Any

from gpumanager.grants.grant import State
from gpumanager.kube.pod import PodView, read_pod
from gpumanager.names import ANNOTATION_GPU_ASSIGNED, ANNOTATION_PREDICATE_GPU_INDEX
from gpumanager.node_status.pod_reconciler import corrections, healed
from tests.kube.api_world import pod_object
from tests.node_status.grants import gpu, granted, two_gpus

IDX = ANNOTATION_PREDICATE_GPU_INDEX
FIRST, SECOND = two_gpus().gpus


def pod(uid: str = "u", *, containers: tuple[str, ...] = ("main",), **metadata: Any) -> PodView:
    item = pod_object("p", "n", uid=uid, **metadata)
    item["spec"]["containers"] = [{"name": name} for name in containers]
    item["spec"]["initContainers"] = [{"name": "init"}]
    return read_pod(item)


def wrong(*grants: Any, of: PodView) -> dict[str, str]:
    return {k: v for _, found in corrections(grants, [of], two_gpus()) for k, v in found.items()}


def test_a_container_is_named_by_its_place_among_the_app_containers() -> None:
    grants = [granted("u", FIRST, container="b"), granted("u", SECOND, container="init")]

    assert wrong(*grants, of=pod(containers=("a", "b"))) == {
        f"{IDX}1": "4",
        ANNOTATION_GPU_ASSIGNED: "true",
    }


def test_several_gpus_are_named_in_the_order_of_their_minors() -> None:
    assert wrong(granted("u", SECOND, FIRST), of=pod())[f"{IDX}0"] == "4,5"


def test_what_is_right_already_is_not_written() -> None:
    true = {f"{IDX}0": "4", ANNOTATION_GPU_ASSIGNED: "true"}

    assert wrong(granted("u", FIRST), of=pod(annotations=true)) == {}


def test_only_what_is_wrong_is_written() -> None:
    swapped = {f"{IDX}0": "5", ANNOTATION_GPU_ASSIGNED: "true"}

    assert wrong(granted("u", FIRST), of=pod(annotations=swapped)) == {f"{IDX}0": "4"}


def test_an_allocation_that_is_not_settled_says_nothing_yet() -> None:
    assert wrong(granted("u", FIRST, state=State.ANSWERED), of=pod()) == {}


def test_a_pod_that_has_ended_is_left_as_it_is() -> None:
    item = pod_object("p", "n", uid="u")
    item["status"] = {"phase": "Succeeded"}

    assert wrong(granted("u", FIRST), of=read_pod(item)) == {}


def test_a_gpu_that_is_gone_is_not_guessed() -> None:
    assert wrong(granted("u", gpu(7)), of=pod()) == {}


def test_a_first_plan_is_no_correction_worth_telling() -> None:
    unplanned = pod(annotations={ANNOTATION_GPU_ASSIGNED: "false"})

    (found,) = corrections([granted("u", FIRST)], [unplanned], two_gpus())

    assert healed(*found) == ""
