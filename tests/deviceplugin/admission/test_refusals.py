"""What the allocator does not grant, and in which words."""

from pathlib import Path

import pytest

from gpumanager.grants.grant import ClaimedDevice, ClaimSource
from gpumanager.grants.refusals import NotResolved
from gpumanager.names import VCORE, VMEMORY
from tests.deviceplugin.admission.admission_node import (
    BLOCKS,
    ORDERS,
    AdmissionRefused,
    Node,
    container,
    gpus,
    pod,
)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


async def test_what_cannot_be_served_is_not_promised(node: Node) -> None:
    node.virtual.failing = True

    with pytest.raises(OSError, match="no space"):
        await node.admit(pod("a", container(30, 4)), order=(VCORE, VMEMORY))

    assert node.allocator.node.journal.live() == ()


REFUSALS = [
    (container(30, 0), "a share of a GPU needs memory: 30 cores and no memory asked"),
    (container(150, 4), "not a valid request: 150 cores asked; above 100 only multiples of 100"),
    (container(0, 4), "memory of a GPU without cores: .* needs tencent.com/vcuda-core too"),
    (container(30, BLOCKS + 1), "larger than any GPU here: .* the largest GPU has 16 blocks"),
    (container(100, BLOCKS + 1), "larger than any GPU here: 1 whole GPU with 17 blocks asked"),
    (container(300, 0), "requested number of devices unavailable"),
]


@pytest.mark.parametrize(("asked", "text"), REFUSALS, ids=lambda case: str(case)[:30])
@pytest.mark.parametrize("order", ORDERS)
async def test_what_cannot_be_granted_is_refused_in_words(
    node: Node, asked: object, text: str, order: tuple[str, str]
) -> None:
    refused = pod("a", asked)  # type: ignore[arg-type]

    with pytest.raises(AdmissionRefused, match=text):
        await node.admit(refused, order=order)

    assert node.allocator.node.journal.live() == ()


async def test_a_container_that_uses_a_claim_does_not_start_with_a_share(node: Node) -> None:
    """The second pod of a claim: the kubelet does not ask the claims' driver about it."""
    alone, other = pod("a", container(30, 4)), pod("b", container(30, 4))
    node.claims = {
        (alone.uid, "main"): ClaimSource("c", "default", "c", (ClaimedDevice("gpu-0", "gpu"),)),
        (other.uid, "another"): ClaimSource("c", "default", "c", ()),
    }
    await node.admit(alone)
    await node.admit(other)

    with pytest.raises(NotResolved, match=r"default/a \(main\) asks for .* beside claim default/c"):
        await node.start(alone)
    await node.start(other)

    confirmed = [one.owner for one in node.allocator.node.journal.live() if one.pod]
    assert confirmed == [other.uid]


async def test_where_sharing_is_off_a_share_is_refused(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.share_mode = False
    node.allocator = node.new_allocator()

    with pytest.raises(AdmissionRefused, match="share mode is off"):
        await node.admit(pod("a", container(30, 4)))


async def test_a_shared_gpu_is_never_given_whole(tmp_path: Path) -> None:
    node = Node(tmp_path, gpus(1))
    await node.run(pod("a", container(1, 1)))

    with pytest.raises(AdmissionRefused):
        await node.admit(pod("b", container(100, 0)))


@pytest.mark.parametrize("order", ORDERS)
async def test_a_whole_gpu_whose_pod_has_ended_is_free_whatever_is_asked_for_first(
    tmp_path: Path, order: tuple[str, str]
) -> None:
    """It held no memory, so that an offer of memory does not show that it is gone."""
    node = Node(tmp_path, gpus(1))
    whole, share = pod("whole", container(100, 0)), pod("share", container(30, 4))
    await node.run(whole)
    node.delete(whole.uid)

    await node.admit(share, order=order)

    assert [one.owner for one in node.allocator.node.journal.live()] == [share.uid]


@pytest.mark.parametrize("answers", [True, False])
async def test_a_whole_gpu_with_which_a_container_runs_or_may_run_is_not_free(
    tmp_path: Path, *, answers: bool
) -> None:
    """A kubelet that has just started may not list a pod that lives."""
    node = Node(tmp_path, gpus(1))
    whole = pod("whole", container(100, 0))
    await node.run(whole)
    node.runtime.containers.append(node.live_container(whole))
    node.runtime.answers = answers
    node.delete(whole.uid)

    with pytest.raises(AdmissionRefused, match="no free GPU"):
        await node.admit(pod("share", container(30, 4)), order=(VMEMORY, VCORE))

    assert [one.owner for one in node.allocator.node.journal.live()] == [whole.uid]
