"""A node read from its agent's document, which is as the published schema says."""

from typing import Any

import pytest

from gpumanager.units import GIB
from gpumanager.view.figures import of_percent
from gpumanager.view.node import NotAnAgent, Seen, read_node
from tests.view.view_world import (
    AGENT,
    BUSY,
    CLUSTER_NODE,
    container,
    device,
    document,
    seen,
    snapshot,
)


def test_what_the_monitor_tells_of_a_container_is_read_back() -> None:
    node = read_node(document(snapshot(BUSY)))

    first, second = node.gpus
    (one, train), (_, answers) = node.on(first)
    assert (node.node, node.version, node.driver_answers) == ("node-a", "1.2.3", True)
    assert (first.index, first.cores_granted_percent) == (0, 50)
    assert (one.name, train.memory_limit_bytes) == ("team/train-0:main", 4 * GIB)
    assert (train.share_percent, train.memory_refusals, train.throttled_seconds) == (29.8, 3, 12.3)
    assert (answers.share_granted_percent, answers.share_ceiling_percent) == (20, 60)
    assert [one.name for one, _ in node.on(second)] == ["lab/whole-one:main"]


def test_of_a_whole_gpu_only_what_the_driver_tells_is_shown() -> None:
    two = container("a/b", device(0), device(1), whole=True)
    node, several = (read_node(document(snapshot(one))) for one in (BUSY, [two]))
    ((_, row),) = node.on(node.gpus[1])

    assert (row.memory_used_bytes, row.share_percent, row.memory_refusals) == (None, None, None)
    assert (row.held, row.taken) == (31 * GIB, 30)
    assert [len(several.on(gpu)) for gpu in several.gpus] == [1, 1]


def test_a_name_cannot_write_to_the_terminal() -> None:
    hostile = container("team/\x1b[31mred", device())

    (row,) = read_node(document(snapshot([hostile]))).containers

    assert row.pod == "?[31mred"


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"node": "x"},
        {"node": 1, "gpus": [{}], "containers": []},
        {"containers": "x"},
        {**document(snapshot()), "gpus": [{"index": 0, "memory_bytes": float("inf")}]},
    ],
)
def test_another_document_is_no_agent_s(said: dict[str, Any]) -> None:
    with pytest.raises(NotAnAgent, match="not as this version's node agent does"):
        read_node(said)


def test_a_silent_driver_and_a_missing_registration_are_read() -> None:
    node = read_node(document(snapshot(answered=False)))

    assert not node.driver_answers
    assert node.not_registered == ()


def test_as_json_it_is_the_agent_s_own_document() -> None:
    record = seen(*BUSY).as_json()

    assert record == {"agent": AGENT, **document(snapshot(BUSY))}
    first = record["containers"][0]["gpus"][0]
    assert (first["memory_limit_bytes"], first["memory_refusals"]) == (4 * GIB, 3)
    assert Seen("http://x", trouble="gone").as_json() == {"agent": "http://x", "error": "gone"}


def test_pods_stand_on_the_gpus_that_they_have() -> None:
    node = read_node(CLUSTER_NODE, "1.2.3")

    assert (node.node, node.version) == ("node-a", "1.2.3")
    assert [gpu.healthy for gpu in node.gpus] == [True, False]
    shares = [
        [(one.short, device.share_granted_percent) for one, device in node.on(gpu)]
        for gpu in node.gpus
    ]
    assert shares == [
        [("a/mixed", 30), ("a/one", 60), ("a/two", 100)],
        [("a/mixed", 60), ("a/two", 100)],
    ]


def test_what_the_extender_does_not_know_is_a_dash() -> None:
    node = read_node(CLUSTER_NODE)
    _, row = node.on(node.gpus[0])[0]

    assert (row.memory_used_bytes, row.share_percent, row.memory_refusals) == (None, None, None)
    assert of_percent(row.taken, row.share_granted_percent) == "-/30%"
