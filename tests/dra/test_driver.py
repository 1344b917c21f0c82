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
from gpumanager.names import VCORE, VMEMORY
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
    node.virtual.kept |= {AllocationID(name): () for name in ("theirs", "of whom nobody knows")}
    await node.restart()

    await node.driver.repair()
    await node.driver.repair([AllocationID("theirs")])
    assert list(node.virtual.kept) == ["theirs", "of whom nobody knows"]
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


async def test_two_claims_in_one_container_are_refused_by_name(node: ClaimNode) -> None:
    node.api.pods["default", "p"] = pod_item("p", {"main": [("a", ""), ("b", "")]})
    node.claim("b", node.share(1, 30), pod="p")

    text = await node.refused(node.claim("a", node.share(0, 30), pod="p"))

    assert "container main of pod default/p" in text
    assert "a: gpu; b: gpu" in text


SHARE = {VCORE: "30", VMEMORY: "8"}


@pytest.mark.parametrize(
    ("container", "limits", "text"),
    [
        pytest.param(0, SHARE, "container main of pod default/a asks for", id="the claim's own"),
        pytest.param(1, SHARE, "", id="another one of its pod"),
        pytest.param(0, {VCORE: 0, VMEMORY: "0"}, "", id="amounts of nothing are no share"),
    ],
)
async def test_a_claim_is_refused_if_its_container_has_a_share_by_device_plugins(
    node: ClaimNode, container: int, limits: dict[str, Any], text: str
) -> None:
    """The claim would hide the limits of the share."""
    node.api.pods["default", "a"] = pod_item("a", {"main": [("a", "")], "other": []})
    containers = node.api.pods["default", "a"]["spec"]["containers"]
    containers[container]["resources"]["limits"] = limits

    answer = await node.driver.prepare(node.claim("a", node.share(0, 50)))

    assert isinstance(answer, Refused) == bool(text)
    assert not isinstance(answer, Refused) or answer.text.startswith(text)
    assert len(node.driver.live()) == (0 if text else 1)


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


async def test_what_a_reboot_takes_from_memory_is_there_again_before_containers_start(
    node: ClaimNode,
) -> None:
    claim = node.claim("a", node.share(0, 30))
    await node.prepare(claim)
    text = node.cdi.path(claim.uid).read_text()
    node.cdi.path(claim.uid).unlink()

    await node.restart()

    assert node.cdi.path(claim.uid).read_text() == text


async def test_a_cdi_file_that_somebody_removed_is_there_again_when_its_claim_is_asked_for(
    node: ClaimNode,
) -> None:
    claim = node.claim("a", node.share(0, 30))
    await node.prepare(claim)
    node.cdi.path(claim.uid).unlink()

    await node.prepare(claim)

    assert node.cdi.path(claim.uid).exists()


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
