"""A static pod that is put back: its UID, made of its manifest, is the one that it had."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from gpumanager.kube.pod import PodView
from tests.deviceplugin.admission.admission_node import (
    ORDERS,
    AdmissionRefused,
    Node,
    container,
    gpus,
    pod,
)


def taken_away(node: Node, static: PodView) -> None:
    """Its manifest, and nobody has looked before it is put back."""
    node.delete(static.uid)
    node.forget_ended()
    node.runtime.containers.clear()


@pytest.mark.parametrize("cores", [60, 100])
@pytest.mark.parametrize("order", ORDERS)
async def test_it_is_admitted_though_the_node_has_no_other_room(
    tmp_path: Path, cores: int, order: Sequence[str]
) -> None:
    node = Node(tmp_path, gpus(1))
    static = pod("static", container(cores, 4))
    await node.run(static)
    taken_away(node, static)

    await node.admit(static, order=order)
    await node.start(static)

    assert [a.cores for a in node.allocator.node.journal.live()] == [cores]


async def test_what_it_held_before_is_free_in_the_end(tmp_path: Path) -> None:
    node = Node(tmp_path)
    static = pod("static", container(60, 4))
    await node.run(static)
    taken_away(node, static)
    await node.run(static)
    node.runtime.containers.append(node.live_container(static))

    for _ in range(2):
        node.clock.now += 60
        await node.allocator.reconcile()

    (held,) = node.allocator.node.journal.live()
    assert held.id == node.answers[static.uid, "main"].envs["VCUDA_ALLOCATION"]


@pytest.mark.parametrize("answers", [True, False])
async def test_with_what_runs_nobody_else_is_admitted(tmp_path: Path, answers: object) -> None:
    """By a kubelet that has forgotten it and admits it once more; or nobody tells who runs."""
    node = Node(tmp_path, gpus(1))
    static = pod("static", container(100, 4))
    await node.run(static)
    taken_away(node, static)
    node.runtime.containers.append(node.live_container(static))
    node.runtime.answers = bool(answers)

    with pytest.raises(AdmissionRefused):
        await node.admit(static)

    assert len(node.allocator.node.journal.live()) == 1
