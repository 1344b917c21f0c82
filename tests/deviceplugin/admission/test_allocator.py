"""The allocator as the kubelet sees it: whole admissions, and what they leave behind."""

from dataclasses import replace
from pathlib import Path

import pytest

from gpumanager.grants.grant import State
from gpumanager.grants.refusals import NotResolved
from gpumanager.ids import AllocationID
from gpumanager.kube.pod import ContainerKind
from gpumanager.names import VCORE, VMEMORY
from gpumanager.units import MEMORY_BLOCK
from tests.deviceplugin.admission.admission_node import (
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


@pytest.mark.parametrize("order", ORDERS)
async def test_a_share_gets_its_gpu_its_limits_and_its_directory(
    node: Node, order: tuple[str, str]
) -> None:
    asked = pod("a", container(30, 8))

    await node.admit(asked, order=order)
    (admitted,) = node.limits(asked)
    await node.start(asked)

    answer = node.answers[asked.uid, "main"]
    name = answer.envs["VCUDA_ALLOCATION"]
    assert [device.host_path for device in answer.devices] == [
        "/dev/nvidia0",
        "/dev/nvidiactl",
        "/dev/nvidia-uvm",
    ]
    assert [(mount.container_path, mount.host_path) for mount in answer.mounts] == [
        ("/usr/local/nvidia", str(node.directory / "alloc" / name / "driver")),
        ("/etc/vcuda", str(node.directory / "alloc" / name)),
    ]
    assert answer.envs["LD_LIBRARY_PATH"] == "/usr/local/nvidia/lib64"
    assert answer.envs["VCUDA_GPUS"] == node.topology.gpus[0].uuid
    assert answer.annotations == {
        VCORE: "30",
        VMEMORY: str(8 * MEMORY_BLOCK),
        "tencent.com/vcuda-device": "/dev/nvidia0",
    }
    (limit,) = node.limits(asked)
    assert limit == admitted
    assert (limit.memory, limit.cores, limit.ceiling) == (8 * MEMORY_BLOCK, 30, 30)


async def test_the_driver_of_a_share_is_the_one_that_its_real_pod_asks_for(node: Node) -> None:
    drawing, computing = container(30, 8), replace(container(30, 8), graphics=False)
    expected, real = pod("expected", drawing), pod("real", computing)
    node.listing.listed[real.uid] = real
    await node.allocator.kubelet_started()
    await node.admit(expected)
    name = AllocationID(node.answers[expected.uid, "main"].envs["VCUDA_ALLOCATION"])
    assert node.virtual.drivers[name] == "nvidia"

    node.held = {(real.uid, *key[1:]): ids for key, ids in node.held.items()}
    node.write_checkpoint()
    await node.start(real)

    assert node.virtual.drivers[name] == "compute"
    await node.restart_agent()
    assert node.virtual.drivers[name] == "compute"


async def test_whole_gpus_are_the_driver_alone_and_no_limit(tmp_path: Path) -> None:
    node = Node(tmp_path, gpus(4))
    asked = pod("a", container(200, 4))

    await node.run(asked)

    assert node.gpus_of(asked) == ("/dev/nvidia0", "/dev/nvidia1")
    assert [mount.host_path for mount in node.answers[asked.uid, "main"].mounts] == ["/vol/origin"]
    assert node.virtual.open_now == {}


async def test_both_resources_of_a_container_are_on_one_gpu(node: Node) -> None:
    await node.run(pod("a", container(60, 4)))
    second, third = pod("b", container(60, 12)), pod("c", container(30, 12))

    await node.run(second)
    await node.run(third)

    assert node.gpus_of(second) == ("/dev/nvidia1",)
    assert node.gpus_of(third) == ("/dev/nvidia0",)


async def test_an_init_containers_devices_are_used_again_and_counted_once(tmp_path: Path) -> None:
    node = Node(tmp_path, gpus(1))
    asked = pod(
        "a",
        container(80, 12, "prepare", ContainerKind.INIT),
        container(80, 12, "main"),
    )

    await node.run(asked)

    first, second = node.answers[asked.uid, "prepare"], node.answers[asked.uid, "main"]
    assert first.envs["VCUDA_ALLOCATION"] != second.envs["VCUDA_ALLOCATION"]
    assert node.limits(asked, "prepare")[0].memory == node.limits(asked, "main")[0].memory
    await node.run(pod("b", container(20, 4)))


async def test_an_app_container_may_ask_for_more_than_its_init_container_had(
    node: Node,
) -> None:
    asked = pod("a", container(20, 2, "prepare", ContainerKind.INIT), container(50, 9, "main"))

    await node.run(asked)

    assert node.limits(asked)[0].cores == 50
    assert node.gpus_of(asked) == node.gpus_of(asked, "prepare")


async def test_an_ended_pods_devices_go_to_the_next_pod_that_needs_them(tmp_path: Path) -> None:
    node = Node(tmp_path, gpus(1))
    first, second = pod("a", container(90, 16)), pod("b", container(90, 16))
    await node.run(first)
    gone = node.answers[first.uid, "main"].envs["VCUDA_ALLOCATION"]
    node.fail(first.uid, "Succeeded")

    await node.run(second)

    assert gone not in node.virtual.open_now
    assert [a.owner for a in node.allocator.node.journal.live()] == [second.uid]


async def test_devices_of_a_pod_that_runs_are_refused_to_another(tmp_path: Path) -> None:
    node = Node(tmp_path, gpus(1))
    first, second = pod("a", container(60, 8)), pod("b", container(60, 8))
    await node.run(first)
    node.held.clear()  # the kubelet's books are broken

    with pytest.raises(AdmissionRefused, match=r"belongs to default/a \(main\), which still runs"):
        await node.admit(second)


@pytest.mark.parametrize("half", [VCORE, VMEMORY])
async def test_a_pod_rejected_halfway_leaves_nothing_behind(tmp_path: Path, half: str) -> None:
    node = Node(tmp_path, gpus(1))
    rejected, following = pod("a", container(50, 8)), pod("b", container(60, 10))

    await node.admit(rejected, order=(half,))
    node.held.clear()
    await node.run(following)

    assert [a.owner for a in node.allocator.node.journal.live()] == [following.uid]
    assert len(node.virtual.open_now) == 1


async def test_a_pod_rejected_after_all_was_answered_gives_way_when_its_devices_are_needed(
    tmp_path: Path,
) -> None:
    node = Node(tmp_path, gpus(1))
    rejected, following = pod("a", container(50, 8)), pod("b", container(60, 10))

    await node.admit(rejected)
    node.held.clear()  # refused by something else; the list of pods still says Pending
    await node.run(following)

    assert [a.owner for a in node.allocator.node.journal.live()] == [following.uid]
    assert len(node.virtual.open_now) == 1


async def test_the_container_that_starts_decides_whose_an_allocation_is(node: Node) -> None:
    one, two = pod("a", container(30, 4)), pod("b", container(30, 4))
    node.listing.listed |= {one.uid: one, two.uid: two}
    await node.allocator.kubelet_started()

    await node.run(one)
    await node.run(two)

    owners = {a.pod.uid: a for a in node.allocator.node.journal.live() if a.pod}
    assert owners.keys() == {one.uid, two.uid}
    for each in (one, two):
        assert set(owners[each.uid].ids.core_ids) == node.held[each.uid, "main", VCORE]


async def test_a_restarted_container_is_settled_as_before(node: Node) -> None:
    asked = pod("a", container(30, 4))
    await node.run(asked)
    before = node.allocator.node.journal

    await node.start(asked)

    assert node.allocator.node.journal == before


async def test_a_container_the_kubelet_does_not_know_yet_does_not_start(node: Node) -> None:
    asked = pod("a", container(30, 4))
    await node.admit(asked)
    (node.directory / "kubelet_internal_checkpoint").unlink()

    with pytest.raises(NotResolved, match="does not say yet"):
        await node.start(asked)

    node.write_checkpoint()
    await node.start(asked)
    assert [a.state for a in node.allocator.node.journal.live()] == [State.CONFIRMED]


async def test_without_a_list_of_pods_admissions_go_by_order_and_start_right(
    node: Node,
) -> None:
    node.listing.readable = False
    one, two = pod("a", container(30, 4)), pod("b", container(40, 6))

    await node.run(one)
    await node.run(two)

    assert [(limit.cores, limit.memory) for p in (one, two) for limit in node.limits(p)] == [
        (30, 4 * MEMORY_BLOCK),
        (40, 6 * MEMORY_BLOCK),
    ]


async def test_devices_taken_from_several_gpus_get_real_capacity_on_one(node: Node) -> None:
    asked = pod("a", container(30, 4))
    node.listing.listed[asked.uid] = asked
    zero, one = (f"{i:08x}" for i in range(2))
    cores = [f"{gpu}-c-{slot}" for gpu in (zero, one) for slot in range(15)]

    await node.allocator.allocate(VCORE, cores)
    await node.allocator.allocate(VMEMORY, [f"{one}-m-{slot}" for slot in range(4)])

    (promise,) = node.allocator.node.journal.live()
    assert len(promise.gpus) == 1
    assert (promise.cores, promise.blocks) == (30, 4)


async def test_the_same_allocate_again_is_answered_the_same(node: Node) -> None:
    asked = pod("a", container(30, 4))
    node.listing.listed[asked.uid] = asked
    ids = [f"{0:08x}-c-{slot}" for slot in range(30)]

    assert await node.allocator.allocate(VCORE, ids) == await node.allocator.allocate(VCORE, ids)
    assert len(node.allocator.node.journal.live()) == 1


async def test_a_pod_whose_request_is_not_understood_is_still_served(node: Node) -> None:
    asked = pod("a", container(30, 4))
    odd = replace(asked, containers=(container(None, None),))

    await node.admit(asked)
    node.listing.listed[asked.uid] = odd
    await node.start(asked)

    assert node.limits(asked)[0].cores == 30
