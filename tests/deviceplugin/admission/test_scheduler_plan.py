"""The scheduler's plan: followed where it fits, never a reason to refuse."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumanager.kube.plan import planned
from gpumanager.kube.pod import ContainerKind
from tests.deviceplugin.admission.admission_node import Node, container, gpus, pod

UUIDS = [gpu.uuid for gpu in gpus(4).gpus]


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path, gpus(4))


def by_uuid(**containers: list[int]) -> str:
    said = {name: {"gpus": [UUIDS[n] for n in numbers]} for name, numbers in containers.items()}
    return json.dumps({"version": 1, "plan": "p1", "containers": said})


async def test_a_plan_by_index_is_followed(node: Node) -> None:
    asked = pod("a", container(30, 4), predicate_gpu_idx_0="2")

    await node.run(asked)

    assert node.gpus_of(asked) == ("/dev/nvidia2",)
    assert "scheduler" in node.allocator.node.journal.live()[0].why


async def test_each_container_has_its_own_plan_and_an_init_container_goes_where_the_first_goes(
    node: Node,
) -> None:
    asked = pod(
        "a",
        container(10, 1, "prepare", ContainerKind.INIT),
        container(100, 0, "first"),
        container(100, 0, "second"),
        predicate_gpu_idx_0="3",
        predicate_gpu_idx_1="1",
    )

    await node.run(asked)

    assert node.gpus_of(asked, "first") == ("/dev/nvidia3",)
    assert node.gpus_of(asked, "second") == ("/dev/nvidia1",)


async def test_a_plan_that_does_not_fit_any_more_is_not_followed_and_refuses_nobody(
    node: Node,
) -> None:
    await node.run(pod("before", container(80, 4), predicate_gpu_idx_0="2"))
    asked = pod("a", container(30, 4), predicate_gpu_idx_0="2")

    await node.run(asked)

    assert node.gpus_of(asked) != ("/dev/nvidia2",)
    (own,) = (one for one in node.allocator.node.journal.live() if one.owner == asked.uid)
    assert own.why.endswith("the scheduler planned GPU 2, held by default/before (main)")


async def test_what_the_plan_says_of_one_of_two_pods_is_not_followed_for_the_other(
    node: Node,
) -> None:
    """Two new pods at once: nobody knows which it is."""
    first, second = (pod(n, container(30, 4), predicate_gpu_idx_0=n) for n in ("2", "3"))
    node.listing.listed[second.uid] = second

    await node.run(first)

    assert "scheduler" not in node.allocator.node.journal.live()[0].why


@pytest.mark.parametrize(
    ("index", "plan", "gpus_"),
    [
        pytest.param("2", "", [2], id="by index"),
        pytest.param("2", by_uuid(main=[3]), [3], id="by UUID before one by index"),
        pytest.param("0,3", "", [0, 3], id="several"),
        *((index, "", []) for index in ("", "9", "x", "-1", "2,", "²")),
        *(
            ("", plan, [])
            for plan in ("{", "[]", '{"version": 2}', '{"version": 1}', by_uuid(b=[1]))
        ),
    ],
)
def test_a_plan_names_gpus_of_the_container_or_says_nothing(
    index: str, plan: str, gpus_: list[int]
) -> None:
    cores = 100 * len(gpus_) if len(gpus_) > 1 else 30
    asked = pod("a", container(cores, 4), predicate_gpu_idx_0=index, vcuda_plan=plan)

    found = planned(gpus(4), asked, asked.containers[0])

    assert [gpu.index for gpu in found] == gpus_


@given(st.text(), st.text())
def test_any_annotation_is_a_plan_or_none(index: str, plan: str) -> None:
    asked = pod("a", container(30, 4), predicate_gpu_idx_0=index, vcuda_plan=plan)

    found = planned(gpus(4), asked, asked.containers[0])

    assert set(found) <= set(gpus(4).gpus)
