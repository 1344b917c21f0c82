"""Claims on a node: what is prepared, also by an agent that died, and what is left of them."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from gpumanager.dra.driver import ClaimRef
from gpumanager.grants.journal_file import JournalFile, JournalUnwritable
from gpumanager.grants.refusals import Refused, RetryLater
from gpumanager.ids import AllocationID
from gpumanager.limits.values import Limit
from gpumanager.units import Bytes
from tests.deviceplugin.admission.admission_node import gpus
from tests.dra.claim_node import ClaimNode, pod_item
from tests.waiting import until

MIB256 = 256 << 20


@pytest.fixture
async def node(tmp_path: Path) -> ClaimNode:
    found = ClaimNode(tmp_path)
    await found.restart()
    return found


def spec(node: ClaimNode, claim: ClaimRef) -> Any:
    return json.loads(node.cdi.path(claim.uid).read_text())


async def test_a_share_becomes_a_directory_a_cdi_device_and_an_answer(node: ClaimNode) -> None:
    claim = node.claim("a", node.share(1, 30, "2Gi"))

    (device,) = await node.prepare(claim)

    ((name, (limit,)),) = node.virtual.open_now.items()
    assert limit == Limit(node.topology.gpus[1].uuid, Bytes(2048 << 20), 30, 30)
    assert (device.request_names[0], device.pool_name, device.device_name) == (
        "gpu",
        "n1",
        node.device(1),
    )
    assert device.share_id == f"share-{node.device(1)}-gpu"
    assert list(device.cdi_device_ids) == [f"gpu.tencent.com/claim={name}-0"]
    (described,) = spec(node, claim)["devices"]
    edits = described["containerEdits"]
    assert described["name"] == f"{name}-0"
    assert f"VCUDA_GPUS={node.topology.gpus[1].uuid}" in edits["env"]
    assert "JULIA_CUDA_USE_COMPAT=false" in edits["env"]
    assert {one["containerPath"] for one in edits["mounts"]} >= {"/etc/vcuda", "/usr/local/nvidia"}
    assert edits["deviceNodes"][0]["path"] == "/dev/nvidia1"


async def test_a_claim_gets_graphics_if_one_of_its_containers_may_have_them(
    node: ClaimNode,
) -> None:
    compute = [{"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "compute"}]
    pods = {
        name: pod_item(name, {"a": [(name, "")], "b": [(name, "")]}) for name in ("none", "one")
    }
    for name, item in pods.items():
        for container in item["spec"]["containers"][: 2 if name == "none" else 1]:
            container["env"] = compute
        node.api.pods["default", name] = item
        await node.prepare(node.claim(name, node.share(0, 30)))

    assert sorted(node.virtual.drivers.values()) == ["compute", "nvidia"]
    await node.restart()
    assert sorted(node.virtual.drivers.values()) == ["compute", "nvidia"]


async def test_a_claim_is_asked_for_once_and_answered_the_same_ever_after(node: ClaimNode) -> None:
    claim = node.claim("a", node.share(0, 30))
    first = await node.prepare(claim)
    text = node.cdi.path(claim.uid).read_text()
    asked = node.api.asked
    node.api.items.clear()
    node.api.silent = True

    again = await node.prepare(claim)
    await node.restart()
    after = await node.prepare(claim)

    assert first == again == after
    assert node.cdi.path(claim.uid).read_text() == text
    assert node.api.asked == asked
    assert len(node.virtual.open_now) == 1


async def test_a_claim_prepared_twice_at_once_is_granted_once(node: ClaimNode) -> None:
    claim = node.claim("a", node.share(0, 60))

    one, other = await asyncio.gather(node.prepare(claim), node.prepare(claim))

    assert one == other
    assert len(node.virtual.kept) == 1


async def test_a_driver_that_is_given_up_upon_has_the_answer_for_the_next_call(
    node: ClaimNode,
) -> None:
    claim = node.claim("a", node.share(0, 60))
    call = asyncio.create_task(node.driver.prepare(claim))
    await asyncio.sleep(0)
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)

    await node.prepare(claim)

    assert len(node.virtual.kept) == len(node.driver.live()) == 1


async def test_what_was_unprepared_leaves_nothing_and_may_be_unprepared_again(
    node: ClaimNode,
) -> None:
    claim = node.claim("a", node.share(0, 30))
    await node.prepare(claim)
    node.api.items.clear()

    await node.driver.unprepare(claim)
    await node.driver.unprepare(claim)
    await node.driver.unprepare(ClaimRef("default", "never", "uid-never"))

    assert node.left() == (set(), set(), set())
    assert node.api.stale == {"uid-a", "uid-never"}
    assert node.driver.live() == ()


async def test_names_are_never_used_again_when_a_claim_comes_back(node: ClaimNode) -> None:
    claim = node.claim("a", node.share(0, 30))
    (first,) = await node.prepare(claim)
    await node.driver.unprepare(claim)
    node.claim("a", node.share(1, 30))

    (second,) = await node.prepare(claim)

    assert second.device_name == node.device(1)
    assert second.cdi_device_ids != first.cdi_device_ids


async def test_a_share_that_is_still_in_use_is_refused_whatever_the_scheduler_says(
    node: ClaimNode,
) -> None:
    await node.prepare(node.claim("a", node.share(0, 70)))

    text = await node.refused(node.claim("b", node.share(0, 40)))

    assert "40 cores" in text
    assert "70 cores and 4 blocks by claim default/a (request gpu)" in text
    assert len(node.virtual.kept) == 1


async def test_memory_is_refused_as_cores_are(node: ClaimNode) -> None:
    await node.prepare(node.claim("a", node.share(0, 10, "3Gi")))

    assert "not free" in await node.refused(node.claim("b", node.share(0, 10, "2Gi")))


async def test_a_whole_gpu_excludes_shares_and_has_no_socket(node: ClaimNode) -> None:
    await node.prepare(node.claim("a", node.share(0, 100, "4Gi")))

    assert node.virtual.kept == {}
    assert "100 cores" in await node.refused(node.claim("b", node.share(0, 1)))


async def test_a_refused_claim_is_prepared_when_there_is_room(node: ClaimNode) -> None:
    first, second = node.claim("a", node.share(0, 70)), node.claim("b", node.share(0, 70))
    await node.prepare(first)
    await node.refused(second)

    await node.driver.unprepare(first)

    await node.prepare(second)


async def test_an_older_claim_of_the_name_is_not_mistaken(node: ClaimNode) -> None:
    node.claim("a", node.share(0, 70), uid="uid-new")

    text = await node.refused(ClaimRef("default", "a", "uid-old"))

    assert "uid-new" in text


async def test_a_silent_api_server_is_asked_again(node: ClaimNode) -> None:
    claim = node.claim("a", node.share(0, 70))
    node.api.silent = True
    with pytest.raises(RetryLater):
        await node.driver.prepare(claim)

    node.api.silent = False

    await node.prepare(claim)


async def test_nothing_is_held_that_cannot_be_written_down(
    node: ClaimNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(JournalFile, "_extended", full)
    with pytest.raises(JournalUnwritable):
        await node.driver.prepare(node.claim("a", node.share(0, 70)))

    assert node.left() == (set(), set(), set())


async def test_a_grant_that_could_not_be_synced_is_gone_once_it_is_unprepared(
    node: ClaimNode,
) -> None:
    """Its line may be on the disk: the agent after this one would hold it for nobody."""
    claim = node.claim("a", node.share(0, 70))
    node.journal.syncs = False
    with pytest.raises(JournalUnwritable):
        await node.driver.prepare(claim)
    node.journal.syncs = True

    await node.driver.unprepare(claim)
    await node.restart()

    assert node.driver.live() == ()
    assert node.left() == (set(), set(), set())


async def test_a_claim_that_is_unprepared_while_the_api_server_is_slow_is_not_granted(
    node: ClaimNode,
) -> None:
    """The kubelet gave up, the pod was deleted: nobody would unprepare it a second time."""
    claim = node.claim("a", node.share(0, 70))
    node.api.gate.clear()
    preparing = asyncio.create_task(node.driver.prepare(claim))
    await until(lambda: node.api.asked)

    await node.driver.unprepare(claim)
    node.api.gate.set()

    assert isinstance(await preparing, Refused)
    assert node.left() == (set(), set(), set())
    assert await node.prepare(claim)


async def test_a_claim_that_could_not_be_served_after_a_start_is_served_later(
    node: ClaimNode,
) -> None:
    claim = node.claim("a", node.share(0, 70))
    await node.prepare(claim)
    node.virtual.failing = True
    await node.restart()
    assert node.virtual.open_now == {}
    node.virtual.failing = False

    await node.driver.repair()

    assert len(node.virtual.open_now) == 1


async def test_directories_are_kept_without_a_journal_while_containers_run_with_them(
    node: ClaimNode,
) -> None:
    (node.root / "allocations.json").unlink()
    node.virtual.kept[AllocationID("theirs")] = ()
    await node.restart()

    await node.driver.repair()
    await node.driver.repair([AllocationID("theirs")])
    assert list(node.virtual.kept) == ["theirs"]
    await node.driver.repair([])

    assert node.virtual.kept == {}


async def test_requests_of_one_container_are_one_budget(node: ClaimNode) -> None:
    """A container that names no request has all of them; both of its devices lead there."""
    claim = node.claim(
        "a", node.share(0, 30, request="small"), node.share(1, 60, "2Gi", request="large/t1")
    )

    one, other = await node.prepare(claim)

    assert (one.request_names[0], other.request_names[0]) == ("small", "large")
    ((name, limits),) = node.virtual.open_now.items()
    assert [limit.cores for limit in limits] == [30, 60]
    first, second = spec(node, claim)["devices"]
    assert [first["name"], second["name"]] == [f"{name}-0", f"{name}-1"]
    nodes = [[n["path"] for n in d["containerEdits"]["deviceNodes"]] for d in (first, second)]
    assert "/dev/nvidia0" in nodes[0]
    assert "/dev/nvidia1" not in nodes[0]
    assert "/dev/nvidia1" in nodes[1]
    assert first["containerEdits"]["mounts"] == second["containerEdits"]["mounts"]


async def test_requests_of_two_containers_are_two_budgets(node: ClaimNode) -> None:
    node.api.pods["default", "a"] = pod_item("a", {"x": [("a", "one")], "y": [("a", "two")]})
    claim = node.claim(
        "a", node.share(0, 30, request="one"), node.share(0, 60, request="two"), pod="a"
    )

    await node.prepare(claim)

    assert sorted(limit.cores for (limit,) in node.virtual.open_now.values()) == [30, 60]
    paths = {
        mount["hostPath"]
        for device in spec(node, claim)["devices"]
        for mount in device["containerEdits"]["mounts"]
        if mount["containerPath"] == "/etc/vcuda"
    }
    assert len(paths) == 2


async def test_a_request_of_several_containers_is_one_budget(node: ClaimNode) -> None:
    node.api.pods["default", "a"] = pod_item("a", {"x": [("a", "gpu")], "y": [("a", "gpu")]})

    await node.prepare(node.claim("a", node.share(0, 30)))

    assert len(node.virtual.open_now) == 1


@pytest.mark.parametrize(
    "uses",
    [
        {"main": [("a", ""), ("b", "")]},
        {"main": [("a", "gpu"), ("b", "gpu")]},
    ],
)
async def test_two_claims_in_one_container_are_refused_by_name(
    node: ClaimNode, uses: dict[str, list[tuple[str, str]]]
) -> None:
    node.api.pods["default", "p"] = pod_item("p", uses)
    node.claim("b", node.share(1, 30), pod="p")

    text = await node.refused(node.claim("a", node.share(0, 30), pod="p"))

    assert "container main of pod default/p" in text
    assert "a: gpu; b: gpu" in text


async def test_a_request_combined_in_one_container_and_alone_in_another_is_refused(
    node: ClaimNode,
) -> None:
    node.api.pods["default", "p"] = pod_item("p", {"x": [("a", "")], "y": [("a", "two")]})

    text = await node.refused(
        node.claim("a", node.share(0, 30, request="one"), node.share(0, 30, request="two"), pod="p")
    )

    assert "container x of pod default/p" in text


async def test_admin_access_sees_a_gpu_that_is_all_in_use_and_holds_nothing(
    node: ClaimNode,
) -> None:
    await node.prepare(node.claim("a", node.share(0, 70)))
    looking = {**node.share(0, 100, "4Gi"), "adminAccess": True}

    (device,) = await node.prepare(node.claim("monitor", looking))
    await node.prepare(node.claim("b", node.share(0, 30)))

    (edits,) = (
        one["containerEdits"] for one in spec(node, ClaimRef("", "", "uid-monitor"))["devices"]
    )
    assert "/etc/vcuda" not in {one["containerPath"] for one in edits["mounts"]}
    assert device.device_name == node.device(0)
    assert "/dev/nvidia0" in {one["path"] for one in edits["deviceNodes"]}


async def test_a_whole_gpu_beside_a_share_in_one_container_is_held_by_the_shim(
    node: ClaimNode,
) -> None:
    await node.prepare(
        node.claim("a", node.share(0, 100, "4Gi", request="w"), node.share(1, 30, request="s"))
    )

    ((limits),) = node.virtual.open_now.values()
    assert [(limit.cores, limit.memory // MIB256) for limit in limits] == [(100, 16), (30, 4)]


async def test_a_container_may_have_whole_gpus_of_several_requests_that_others_have_alone(
    node: ClaimNode,
) -> None:
    """As the scheduler maps an init container to the GPUs of both app containers."""
    uses = {"init": [("a", "x"), ("a", "y")], "first": [("a", "x")], "second": [("a", "y")]}
    node.api.pods["default", "p"] = pod_item("p", uses)
    whole = (node.share(0, 100, "4Gi", "x"), node.share(1, 100, "4Gi", "y"))

    answer = await node.prepare(node.claim("a", *whole, pod="p"))

    assert [one.request_names[0] for one in answer] == ["x", "y"]
    assert [one.cores for one in node.driver.live()] == [100, 100]


async def test_a_container_may_not_have_a_share_and_a_whole_gpu_that_another_has_alone(
    node: ClaimNode,
) -> None:
    uses = {"both": [("a", "x"), ("a", "y")], "first": [("a", "x")]}
    node.api.pods["default", "p"] = pod_item("p", uses)
    mixed = (node.share(0, 30, request="x"), node.share(1, 100, "16Gi", "y"))

    said = await node.refused(node.claim("a", *mixed, pod="p"))

    assert "container both of pod default/p uses GPUs that cannot be served" in said


def opaque(source: str, *requests: str, **parameters: Any) -> Any:
    kind = {"apiVersion": "gpu.tencent.com/v1alpha1", "kind": "VcudaConfig"}
    return {
        "source": source,
        "requests": list(requests),
        "opaque": {"driver": "gpu.tencent.com", "parameters": kind | parameters},
    }


async def test_parameters_of_the_claim_win_over_those_of_its_class(node: ClaimNode) -> None:
    config = [opaque("FromClass", coreLimit=50), opaque("FromClaim", coreLimit=90)]
    await node.prepare(node.claim("a", node.share(0, 30), config=config))

    (((limit),),) = node.virtual.open_now.values()
    assert (limit.cores, limit.ceiling) == (30, 90)


async def test_parameters_of_one_request_hold_beside_a_whole_gpu(node: ClaimNode) -> None:
    whole = node.share(0, 100, "4Gi", request="w")
    config = [opaque("FromClaim", "s", coreLimit=60)]

    await node.prepare(node.claim("a", whole, node.share(1, 30, request="s"), config=config))

    (limits,) = node.virtual.open_now.values()
    assert [limit.ceiling for limit in limits] == [100, 60]


async def test_requests_of_one_container_with_different_parameters_are_refused(
    node: ClaimNode,
) -> None:
    """Both have one budget: the second one's would not hold, in silence."""
    shares = (node.share(0, 30, request="one"), node.share(1, 30, request="two"))
    config = [opaque("FromClass", coreLimit=50), opaque("FromClaim", "two", coreLimit=90)]

    text = await node.refused(node.claim("a", *shares, config=config))

    assert "requests one, two are used by the same containers, and their coreLimit" in text


async def test_what_a_reboot_takes_from_memory_is_there_again_before_containers_start(
    node: ClaimNode,
) -> None:
    claim = node.claim("a", node.share(0, 30))
    await node.prepare(claim)
    text = node.cdi.path(claim.uid).read_text()
    node.cdi.path(claim.uid).unlink()

    await node.restart()

    assert node.cdi.path(claim.uid).read_text() == text


async def test_a_gpu_that_comes_back_after_a_reboot_is_in_the_cdi_file_again(
    node: ClaimNode,
) -> None:
    """The kubelet does not ask again: its containers start with what the file says."""
    claim = node.claim("a", node.share(1, 30))
    await node.prepare(claim)
    text, (limits,) = node.cdi.path(claim.uid).read_text(), node.virtual.open_now.values()
    node.cdi.path(claim.uid).unlink()
    all_gpus, node.topology = node.topology, gpus(1)
    await node.restart()
    assert node.cdi.path(claim.uid).read_text() != text

    await node.driver.adopt(all_gpus)

    assert node.cdi.path(claim.uid).read_text() == text
    assert list(node.virtual.open_now.values()) == [limits]


@pytest.mark.parametrize("damage", ["", "no journal"])
async def test_without_its_journal_an_agent_knows_its_grants_by_the_cdi_files(
    node: ClaimNode, damage: str
) -> None:
    claim = node.claim("a", node.share(0, 70), node.share(1, 100, "4Gi", request="two"))
    answer = await node.prepare(claim)
    text = node.cdi.path(claim.uid).read_text()
    node.api.items.clear()
    journal = node.root / "allocations.json"
    journal.write_text(damage) if damage else journal.unlink()

    await node.restart()
    after = await node.prepare(claim)
    await node.restart()

    assert after == answer
    assert node.cdi.path(claim.uid).read_text() == text
    assert "70 cores" in await node.refused(node.claim("b", node.share(0, 40)))
    await node.driver.unprepare(claim)
    assert node.left() == (set(), set(), set())


async def test_a_cdi_file_that_cannot_be_read_is_left_alone(node: ClaimNode) -> None:
    claim = node.claim("a", node.share(0, 70))
    await node.prepare(claim)
    (node.root / "allocations.json").unlink()
    node.cdi.path(claim.uid).write_text("{")

    await node.restart()

    assert node.driver.live() == ()
    assert node.cdi.path(claim.uid).exists()
