"""GPUs that fall ill, go and come: nobody new gets them, and nobody loses what he has."""

from pathlib import Path

import pytest

from gpumanager.gpu.values import topology
from gpumanager.grants.device_ids import Device
from gpumanager.kube.pod import ContainerKind
from gpumanager.names import VCORE, VMEMORY
from gpumanager.units import CORES_PER_GPU, MEMORY_BLOCK
from tests.deviceplugin.admission.admission_node import (
    BLOCKS,
    JOURNAL,
    ORDERS,
    AdmissionRefused,
    Node,
    container,
    gpus,
    pod,
)

BOTH = gpus(2)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path, BOTH)


def unhealthy(node: Node, resource: str = VCORE) -> list[Device]:
    return [device for device in node.allocator.devices(resource) if not device.healthy]


@pytest.mark.parametrize("order", ORDERS)
async def test_a_pod_that_comes_after_a_gpu_fell_ill_gets_another(
    node: Node, order: tuple[str, str]
) -> None:
    await node.run(pod("before", container(30, 4)))

    node.allocator.node.mark_unhealthy([BOTH.gpus[0].uuid])

    await node.admit(after := pod("after", container(30, 4)), order=order)
    await node.start(after)
    assert node.gpus_of(after) == ("/dev/nvidia1",)


async def test_what_is_held_of_a_sick_gpu_is_counted_though_nothing_of_it_is_free(
    node: Node,
) -> None:
    await node.run(pod("before", container(30, 4)))
    first, live = BOTH.gpus[0], node.allocator.node.journal.live()

    node.allocator.node.mark_unhealthy([first.uuid])

    assert node.allocator.ledger.books(live).of(first).cores == 0
    assert node.allocator.ledger.unheld(live).of(first).cores == CORES_PER_GPU - 30


async def test_devices_of_a_sick_gpu_that_a_kubelet_gives_all_the_same_get_room_elsewhere(
    node: Node,
) -> None:
    sick = {device.device_id for device in node.allocator.devices(VCORE)[:30]}
    node.allocator.node.mark_unhealthy([BOTH.gpus[0].uuid])

    answer = await node.allocator.allocate(VCORE, sorted(sick))

    assert [device.host_path for device in getattr(answer, "devices", ())][:1] == ["/dev/nvidia1"]


async def test_who_was_admitted_before_starts_with_its_limits_on_the_sick_gpu(node: Node) -> None:
    held = pod("held", container(30, 4))
    await node.admit(held)

    node.allocator.node.mark_unhealthy([BOTH.gpus[0].uuid])
    await node.start(held)

    (limit,) = node.limits(held)
    assert (limit.gpu, limit.cores) == (BOTH.gpus[0].uuid, 30)


async def test_an_app_container_leaves_the_sick_gpu_of_its_init_container(node: Node) -> None:
    init = container(30, 4, "init", ContainerKind.INIT)
    before = pod("both", init, container(30, 4))
    node.listing.listed[before.uid] = before
    reusable: dict[str, set[str]] = {VCORE: set(), VMEMORY: set()}
    await node._admit_container(before, init, reusable, None)

    node.allocator.node.mark_unhealthy([BOTH.gpus[0].uuid])
    await node._admit_container(before, before.containers[1], reusable, None)
    node.write_checkpoint()
    await node.start(before)

    assert node.gpus_of(before, "init") == ("/dev/nvidia0",)
    assert node.gpus_of(before) == ("/dev/nvidia1",)


async def test_a_gpu_that_is_well_again_is_given_again(node: Node) -> None:
    node.allocator.node.mark_unhealthy([gpu.uuid for gpu in BOTH.gpus])
    assert len(unhealthy(node)) == 2 * CORES_PER_GPU

    node.allocator.node.mark_unhealthy([])

    assert unhealthy(node) == []
    await node.run(pod("a", container(200, 0)))


async def test_devices_of_a_gpu_that_is_missing_stay_while_they_are_held_and_no_longer(
    node: Node,
) -> None:
    held = pod("held", container(30, 4))
    await node.run(held)
    cores = node.held[held.uid, "main", VCORE]

    node.topology = topology(BOTH.gpus[1:], [[None]])
    await node.restart_agent()

    assert {device.device_id for device in unhealthy(node)} == cores
    assert {d.device_id for d in unhealthy(node, VMEMORY)} == node.held[held.uid, "main", VMEMORY]
    await node.run(other := pod("other", container(100, 0)))
    assert node.gpus_of(other) == ("/dev/nvidia1",)

    node.fail(held.uid)
    node.forget_ended(other.uid)
    node.write_checkpoint()
    await node.allocator.reconcile()
    await node.allocator.reconcile()

    assert unhealthy(node) == []


async def test_a_gpu_that_comes_back_is_whose_it_was(node: Node) -> None:
    held = pod("held", container(30, 4))
    await node.run(held)
    node.topology = topology(BOTH.gpus[1:], [[None]])
    await node.restart_agent()

    await node.allocator.node.adopt(BOTH)

    assert unhealthy(node) == []
    assert len(node.allocator.devices(VCORE)) == 2 * CORES_PER_GPU
    with pytest.raises(AdmissionRefused):
        await node.admit(pod("two", container(200, 0)))
    await node.run(more := pod("more", container(70, 4)))
    assert set(node.gpus_of(more)) <= {"/dev/nvidia0", "/dev/nvidia1"}


async def test_a_gpu_that_appears_while_another_is_sick_changes_nothing_for_the_sick_one(
    tmp_path: Path,
) -> None:
    node = Node(tmp_path, topology(BOTH.gpus[:1], [[None]]))
    node.allocator.node.mark_unhealthy([BOTH.gpus[0].uuid])

    await node.allocator.node.adopt(BOTH)

    await node.run(one := pod("one", container(30, 4)))
    assert node.gpus_of(one) == ("/dev/nvidia1",)
    assert BOTH.gpus[0] in node.allocator.node.topology.gpus
    assert len(unhealthy(node)) == CORES_PER_GPU


async def test_a_container_whose_devices_name_a_missing_gpu_has_its_limits_on_the_one_it_has(
    node: Node,
) -> None:
    """A kubelet may give devices of a GPU that is sick; the share is then on another."""
    first, second = BOTH.gpus
    cores = [d.device_id for d in node.allocator.devices(VCORE)][CORES_PER_GPU:][:30]
    blocks = [d.device_id for d in node.allocator.devices(VMEMORY)][BLOCKS:][:4]
    held = pod("held", container(30, 4))
    node.listing.listed[held.uid] = held
    node.allocator.node.mark_unhealthy([second.uuid])
    node.answers[held.uid, "main"] = await node.allocator.allocate(VCORE, cores)  # type: ignore[assignment]
    await node.allocator.allocate(VMEMORY, blocks)
    node.held = {(held.uid, "main", VCORE): {*cores}, (held.uid, "main", VMEMORY): {*blocks}}
    node.write_checkpoint()
    assert node.gpus_of(held) == (f"/dev/nvidia{first.minor}",)

    node.topology = topology([first], [[None]])
    await node.restart_agent()
    assert not {*cores, *blocks} & {*node.allocator.ledger.ids.ordered([*cores, *blocks])}
    await node.start(held)

    (limit,) = node.limits(held)
    assert (limit.gpu, limit.cores, limit.memory) == (first.uuid, 30, 4 * MEMORY_BLOCK)


async def test_of_a_whole_gpu_whose_container_alone_knows_it_is_held_when_it_is_seen(
    node: Node,
) -> None:
    held = pod("held", container(100, 0))
    await node.run(held)
    node.runtime.containers.append(node.live_container(held))
    (node.directory / JOURNAL).unlink()
    node.held.clear()
    node.write_checkpoint()
    node.runtime.answers = False
    await node.restart_agent()

    node.runtime.answers = True
    for _ in range(6):
        await node.allocator.reconcile()

    assert [a.owner for a in node.allocator.node.journal.live()] == [held.uid]
    await node.run(other := pod("other", container(100, 0)))
    assert node.gpus_of(other) != node.gpus_of(held)
