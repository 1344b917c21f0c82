"""A node on which gpu-manager ran: its pods keep what they have, and nothing is given twice."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumanager.deviceplugin.device_ledger import advertised
from gpumanager.grants.device_ids import DeviceIDs
from gpumanager.ids import PodUID
from gpumanager.kube.pod import PodView
from gpumanager.legacy.checkpoint import (
    FILE_NAME,
    Inherited,
    OriginalUnreadable,
    parse_original,
    read_original,
)
from gpumanager.names import VCORE, VMEMORY
from gpumanager.units import MEMORY_BLOCK
from tests.deviceplugin.admission.admission_node import (
    JOURNAL,
    ORDERS,
    AdmissionRefused,
    Node,
    container,
    gpus,
    pod,
)

UNITS = {VCORE: "tencent.com/vcuda-core-", VMEMORY: "tencent.com/vcuda-memory-268435456-"}
SHARE, WHOLE = pod("share", container(30, 4)), pod("whole", container(100, 2))


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """GPU 0 (minor 0) has a share, GPU 1 is one pod's; both came from the original."""
    node = Node(tmp_path)
    hold(node, "share", {VCORE: range(7, 37), VMEMORY: range(4)})
    hold(node, "whole", {VCORE: range(100, 200), VMEMORY: range(10, 12)})
    write(node, share=("/dev/nvidia0", 30, 4), whole=("/dev/nvidia1", 100, 2))
    return node


def hold(node: Node, name: str, numbers: dict[str, range]) -> None:
    one = pod(name, container(len(numbers[VCORE]), len(numbers[VMEMORY])))
    node.listing.listed[one.uid] = one
    for resource, which in numbers.items():
        node.held[one.uid, "main", resource] = {f"{UNITS[resource]}{n}" for n in which}
    node.write_checkpoint()


def write(node: Node, **pods: tuple[str, int, int]) -> None:
    mapping = {
        f"uid-{name}": {"main": {"Devices": [device], "Cores": cores, "Memory": b * MEMORY_BLOCK}}
        for name, (device, cores, b) in pods.items()
    }
    (node.directory / FILE_NAME).write_text(json.dumps({"PodGPUMapping": mapping}))


def told(node: Node, resource: str) -> set[str]:
    return {one.device_id for one in node.allocator.devices(resource) if one.healthy}


async def test_its_pods_keep_their_ids_and_their_gpus(node: Node) -> None:
    await node.restart_agent()

    for (_, _, resource), ids in node.held.items():
        assert ids <= told(node, resource)
    assert {(a.owner, a.gpus[0][-1], a.exclusive) for a in node.allocator.node.journal.live()} == {
        ("uid-share", "0", False),
        ("uid-whole", "1", True),
    }


async def test_what_its_pods_hold_is_given_to_nobody_else(node: Node) -> None:
    await node.restart_agent()

    with pytest.raises(AdmissionRefused):
        await node.admit(pod("too large", container(71, 1)))
    with pytest.raises(AdmissionRefused):
        await node.admit(pod("too much memory", container(10, 13)))
    await node.run(pod("fits", container(70, 12)))


async def test_the_scheduler_sees_no_more_than_there_is(node: Node) -> None:
    await node.restart_agent()

    assert len(told(node, VCORE)) == 200
    assert len(told(node, VMEMORY)) == 32


async def test_a_container_of_its_pods_may_restart(node: Node) -> None:
    await node.restart_agent()

    await node.start(SHARE)
    await node.start(WHOLE)

    assert node.virtual.open_now == {}


async def test_released_ids_vanish_and_the_kubelet_is_told(node: Node) -> None:
    await node.restart_agent()
    told_of: list[int] = []

    async def tell() -> None:
        told_of.append(len(told(node, VCORE)))

    node.allocator.on_devices_changed = tell
    await node.allocator.reconcile()
    node.fail(SHARE.uid, "Succeeded")
    node.clock.now += 60
    await node.allocator.reconcile()
    node.fail(WHOLE.uid, "Succeeded")
    node.clock.now += 60
    await node.allocator.reconcile()
    await node.allocator.reconcile()

    assert told_of == [200, 200]
    assert not any(i.startswith("tencent.com/") for i in told(node, VCORE) | told(node, VMEMORY))
    await node.run(pod("after", container(200, 0)))


def end_before_the_kubelet_hears(node: Node, ended: PodView) -> None:
    """Its devices are free, and nobody has told the kubelet that they are no more."""
    node.heard = {resource: node.allocator.devices(resource) for resource in UNITS}
    node.delete(ended.uid)
    node.forget_ended()


@pytest.mark.parametrize("order", ORDERS)
async def test_who_is_given_ids_of_a_pod_of_its_that_has_just_ended_has_its_gpu(
    node: Node, order: Sequence[str]
) -> None:
    await node.restart_agent()
    end_before_the_kubelet_hears(node, WHOLE)
    after = pod("after", container(100, 2))

    await node.admit(after, order=order)
    await node.start(after)

    assert node.gpus_of(after) == ("/dev/nvidia1",)
    node.heard.clear()
    assert (len(told(node, VCORE)), len(told(node, VMEMORY))) == (200, 32)
    for (_, _, resource), ids in node.held.items():
        assert ids <= told(node, resource)
    with pytest.raises(AdmissionRefused):
        await node.admit(pod("too large", container(71, 1)))


@pytest.mark.parametrize("order", ORDERS)
async def test_a_share_of_both_kinds_of_ids_has_its_limits(
    tmp_path: Path, order: Sequence[str]
) -> None:
    node = Node(tmp_path, gpus(1))
    hold(node, "share", {VCORE: range(7, 37), VMEMORY: range(4)})
    write(node, share=("/dev/nvidia0", 30, 4))
    await node.restart_agent()
    await node.run(pod("other", container(20, 2)))
    end_before_the_kubelet_hears(node, SHARE)
    after = pod("after", container(80, 14))

    await node.admit(after, order=order)
    await node.start(after)

    (limit,) = node.limits(after)
    assert (limit.cores, limit.memory) == (80, 14 * MEMORY_BLOCK)
    node.heard.clear()
    assert (len(told(node, VCORE)), len(told(node, VMEMORY))) == (100, 16)


async def test_who_has_ids_of_its_from_us_is_ours_also_where_the_journal_is_lost(
    node: Node,
) -> None:
    await node.restart_agent()
    end_before_the_kubelet_hears(node, WHOLE)
    after = pod("after", container(100, 2))
    await node.run(after)
    before = {a.id: set(a.gpus) for a in node.allocator.node.journal.live()}
    (node.directory / JOURNAL).unlink()

    await node.restart_agent()

    assert {a.id: set(a.gpus) for a in node.allocator.node.journal.live()} == before
    await node.start(after)


async def test_they_survive_restarts_of_ours_also_without_its_checkpoint(node: Node) -> None:
    await node.restart_agent()
    before = node.allocator.node.journal
    (node.directory / FILE_NAME).unlink()

    await node.restart_agent()

    assert node.allocator.node.journal == before


async def test_a_pod_of_its_that_is_gone_is_not_inherited(node: Node) -> None:
    node.held = {k: ids for k, ids in node.held.items() if k[0] != WHOLE.uid}
    node.write_checkpoint()

    await node.restart_agent()

    assert [a.owner for a in node.allocator.node.journal.live()] == [SHARE.uid]


async def test_pods_that_it_admitted_while_we_were_away_are_inherited_too(node: Node) -> None:
    """A node that goes back to gpu-manager and comes here again."""
    node.held = {k: ids for k, ids in node.held.items() if k[0] != WHOLE.uid}
    node.write_checkpoint()
    await node.restart_agent()

    hold(node, "whole", {VCORE: range(100, 200), VMEMORY: range(10, 12)})
    await node.restart_agent()

    assert {a.owner for a in node.allocator.node.journal.live()} == {SHARE.uid, WHOLE.uid}


async def test_without_the_kubelets_books_as_much_is_held(node: Node) -> None:
    (node.directory / "kubelet_internal_checkpoint").unlink()
    node.held.clear()

    await node.restart_agent()

    assert {(a.owner, a.cores, a.blocks) for a in node.allocator.node.journal.live()} == {
        (SHARE.uid, 30, 4),
        (WHOLE.uid, 100, 2),
    }
    assert not any(i.startswith("uid-") for i in told(node, VCORE))
    with pytest.raises(AdmissionRefused):
        await node.admit(pod("too large", container(71, 1)))


async def test_a_checkpoint_of_its_that_cannot_be_read_is_said(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    (node.directory / FILE_NAME).write_text("{")

    await node.restart_agent()

    assert "cannot read gpu-manager's checkpoint" in caplog.text
    for (_, _, resource), ids in node.held.items():
        assert ids <= told(node, resource)


def test_its_checkpoint_is_understood() -> None:
    text = (
        b'{"PodGPUMapping":{"u1":{"c0":{"Devices":["/dev/nvidia0","/dev/nvidia3"],"Cores":200,'
        b'"Memory":268435456}},"u2":{}}}'
    )

    assert parse_original(text) == (Inherited(PodUID("u1"), "c0", (0, 3), 200, 268435456),)


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b'{"PodGPUMapping":{"u":{"c":{}}}}'])
def test_one_that_is_not_understood_is_named(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / FILE_NAME
    path.write_bytes(text)

    with pytest.raises(OriginalUnreadable, match=str(path)):
        read_original(path)


@given(st.integers(1, 4))
def test_where_nothing_is_inherited_every_device_is_advertised(count: int) -> None:
    ids = DeviceIDs(gpus(count))

    assert [d.device_id for d in advertised(ids, (), VCORE)] == [i for i, _ in ids.of(VCORE)]
