"""The one owner of the node: what each interface may grant, and why not."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from gpumanager.grants.device_ids import IndistinctGPUs
from gpumanager.grants.grant import (
    Claimant,
    ClaimedDevice,
    ClaimSource,
    DevicePluginSource,
    EvidenceSource,
    Grant,
    Share,
)
from gpumanager.grants.journal_file import JournalFile
from gpumanager.grants.node import Node
from gpumanager.grants.offers import GpuOffer
from gpumanager.grants.store import GrantStore
from gpumanager.ids import AllocationID, PodUID
from gpumanager.names import CLAIMS, DEVICE_PLUGINS
from gpumanager.sim.in_memory import SimulatedBackEnds
from tests.deviceplugin.admission.admission_node import BLOCKS, gpus

TWO = gpus(2)
A, B = (gpu.uuid for gpu in TWO.gpus)
POD = Claimant(PodUID("u"), "team", "job", "main")


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(TWO, GrantStore(JournalFile(tmp_path / "journal"), SimulatedBackEnds()))


def by_devices(name: str = "d", **more: Any) -> Grant:
    return Grant(
        AllocationID(name), DevicePluginSource("adm"), {A: Share(30, 2)}, candidate=POD, **more
    )


def by_claim(*, admin: bool = False) -> Grant:
    source = ClaimSource("uid", "team", "c", (ClaimedDevice("gpu-x", "gpu"),), admin=admin)
    return Grant(AllocationID("c"), source, {A: Share(30, 2)})


async def test_a_gpu_of_which_nothing_is_known_is_open_to_both(node: Node) -> None:
    for interface in (DEVICE_PLUGINS, CLAIMS):
        assert not node.closed(interface)
        assert [node.free(interface).of(gpu).cores for gpu in TWO.gpus] == [100, 100]


async def test_a_gpu_that_one_interface_has_granted_is_not_the_other_s(node: Node) -> None:
    await node.grant(by_devices())

    assert node.closed(CLAIMS)[A] == "team/job (main) holds it"
    assert A not in node.closed(DEVICE_PLUGINS)
    assert node.free(DEVICE_PLUGINS).of(TWO.gpus[0]).cores == 70
    assert not node.ledger(CLAIMS).fits((), by_claim())

    await node.release([AllocationID("d")])
    assert A not in node.closed(CLAIMS)


async def test_a_claim_that_only_looks_takes_its_gpu_from_nobody(node: Node) -> None:
    await node.grant(by_claim(admin=True))
    assert A not in node.closed(DEVICE_PLUGINS)

    await node.release([AllocationID("c")])
    await node.grant(by_claim())
    assert A in node.closed(DEVICE_PLUGINS)


async def test_who_holds_a_gpu_is_told_without_device_ids(node: Node) -> None:
    """They are hundreds, and the text is for the user of a claim."""
    for source in (DevicePluginSource("adm", ("0-c-0", "0-c-1")), EvidenceSource("adm")):
        await node.grant(replace(by_devices(), source=source, candidate=None))
        assert node.closed(CLAIMS)[A] == "an unknown pod holds it"


async def test_a_claim_that_only_looks_is_not_said_to_hold_its_gpu(node: Node) -> None:
    node.offer({A: GpuOffer(CLAIMS), B: GpuOffer(CLAIMS)})
    await node.grant(replace(by_claim(admin=True), pod=POD))

    assert node.closed(DEVICE_PLUGINS)[A] == "it is offered by the interface claims"


async def test_what_device_plugins_granted_may_still_run_when_it_is_suspect(node: Node) -> None:
    await node.grant(by_devices(suspect=True))

    assert A in node.closed(CLAIMS)
    assert node.free(DEVICE_PLUGINS).of(TWO.gpus[0]).cores == 100


@pytest.mark.parametrize(
    ("interface", "other"), [(DEVICE_PLUGINS, CLAIMS), (CLAIMS, DEVICE_PLUGINS)]
)
async def test_a_gpu_that_the_other_interface_offers_is_closed(
    node: Node, interface: str, other: str
) -> None:
    node.offer({A: GpuOffer(other), B: GpuOffer(interface, leaving=True)})

    assert node.closed(interface)[A] == f"it is offered by the interface {other}"
    assert node.ledger(interface).closed.keys() == {A}
    assert node.leaving == node.closing == {B}


async def test_an_unhealthy_gpu_is_closed_to_device_plugins_and_claims_may_tolerate_it(
    node: Node,
) -> None:
    node.mark_unhealthy([A])

    assert node.closed(DEVICE_PLUGINS)[A] == "it is unhealthy"
    assert A not in node.closed(CLAIMS)
    node.mark_unhealthy([])
    assert A not in node.closed(DEVICE_PLUGINS)


async def test_another_manager_s_gpu_is_closed_to_both(node: Node) -> None:
    node.withdraw(frozenset({B}))

    assert {node.closed(one)[B] for one in (DEVICE_PLUGINS, CLAIMS)} == {"another manager has it"}


@pytest.mark.parametrize(("text", "cordoned"), [("*", {A, B}), (f" {B} ,GPU-no", {B}), ("", set())])
async def test_a_cordon_names_gpus_by_their_uuids(
    node: Node, text: str, cordoned: set[str]
) -> None:
    node.cordon(text)

    assert node.cordoned == cordoned
    assert not node.closed(CLAIMS)


async def test_subscribers_are_called_for_changes_and_not_for_repetitions(node: Node) -> None:
    calls: list[int] = []
    node.subscribe(lambda: calls.append(1))
    offers = {A: GpuOffer(DEVICE_PLUGINS), B: GpuOffer(CLAIMS)}

    node.offer(offers)
    node.offer(dict(offers))
    assert len(calls) == 1
    await node.grant(replace(by_devices(), shares={B: Share(30, 2)}))
    node.offer(offers)
    assert len(calls) == 2, "a grant of the other interface, on a GPU of claims"
    node.mark_unhealthy([A])
    node.withdraw(frozenset())
    await node.adopt(gpus(3))
    assert len(calls) == 5


async def test_a_ledger_is_of_the_gpus_there_are_now(node: Node) -> None:
    before = node.ledger(DEVICE_PLUGINS)
    await node.adopt(gpus(2, BLOCKS * 2))

    assert before.topology is TWO
    assert node.ledger(DEVICE_PLUGINS).topology is node.topology


async def test_gpus_that_cannot_be_told_apart_change_nothing(node: Node) -> None:
    twins = replace(TWO, gpus=(TWO.gpus[0], replace(TWO.gpus[1], uuid=A)))

    with pytest.raises(IndistinctGPUs):
        await node.adopt(twins)

    assert node.topology is TWO
    assert B not in node.closed(DEVICE_PLUGINS)
    assert [gpu for gpu in (A, B) if node.ledger(CLAIMS).topology.by_uuid(gpu) is None] == []


async def test_a_gpu_is_held_by_its_grants_and_by_its_device_ids(node: Node) -> None:
    assert node.held() == set()

    of_b = DevicePluginSource("adm", tuple(node.ledger(DEVICE_PLUGINS).ids.on([TWO.gpus[1]])))
    await node.grant(replace(by_devices(), source=of_b))
    assert node.held() == {A, B}

    await node.grant(replace(by_devices(), source=DevicePluginSource("adm", ("gone-c-1",))))
    assert node.held() == {A}


@dataclass(frozen=True, slots=True)
class OtherSource(DevicePluginSource):
    """Of a third interface."""


async def test_a_third_interface_is_a_source_and_a_row(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = {DEVICE_PLUGINS: EvidenceSource, CLAIMS: ClaimSource, "third": OtherSource}
    monkeypatch.setattr("gpumanager.grants.node.SOURCES", rows)
    third = replace(by_devices(), source=OtherSource("adm"))
    node.store.journal = node.store.journal.put(third)

    assert node.grants("third") == (third,)
    assert A not in node.closed("third")
    assert node.free("third").of(TWO.gpus[0]).cores == 70
    for other in (DEVICE_PLUGINS, CLAIMS):
        assert node.closed(other)[A] == "team/job (main) holds it"
    node.offer({A: GpuOffer("third"), B: GpuOffer(CLAIMS)})
    assert node.closed("third")[B] == "it is offered by the interface claims"
