"""Sums on a node of two GPUs with 16 blocks each, as tables."""

from dataclasses import replace

import pytest

from gpumanager.gpu.values import GpuUUID
from gpumanager.grants.grant import DevicePluginSource, Grant, Share
from gpumanager.grants.ledger import Ledger
from gpumanager.ids import AllocationID
from gpumanager.names import VCORE, VMEMORY
from gpumanager.placement.values import FreeGpu
from tests.deviceplugin.admission.admission_node import BLOCKS, gpus

ONE, TWO = gpus(2).gpus
SOURCE = DevicePluginSource("admission")


def grant(cores: int, blocks: int, *on: GpuUUID, suspect: bool = False) -> Grant:
    shares = dict.fromkeys(on or (ONE.uuid,), Share(cores, blocks))
    return Grant(AllocationID(f"{cores}-{blocks}"), SOURCE, shares, suspect=suspect)


@pytest.fixture
def ledger() -> Ledger:
    return Ledger(gpus(2))


FREE = [
    ("nothing is held", [], FreeGpu(100, BLOCKS, 0, BLOCKS)),
    ("two shares", [grant(30, 4), grant(20, 2)], FreeGpu(50, 10, 2, BLOCKS)),
    ("a whole GPU", [grant(100, 4)], FreeGpu(0, 0, 1, BLOCKS)),
    ("a share of another GPU", [grant(30, 4, TWO.uuid)], FreeGpu(100, BLOCKS, 0, BLOCKS)),
    ("a share of both", [grant(30, 4, ONE.uuid, TWO.uuid)], FreeGpu(70, 12, 1, BLOCKS)),
    (
        "a share of a GPU that is gone",
        [grant(30, 4, GpuUUID("?"))],
        FreeGpu(100, BLOCKS, 0, BLOCKS),
    ),
    ("a suspect share", [grant(30, 4, suspect=True)], FreeGpu(100, BLOCKS, 0, BLOCKS)),
]


def test_a_gpu_has_free_what_the_grants_that_count_leave(ledger: Ledger) -> None:
    expected = {what: (free, free, free) for what, _, free in FREE}
    found = {
        what: (
            ledger.books(grants).of(ONE),
            ledger.unheld(grants).of(ONE),
            ledger.book(grants, ONE),
        )
        for what, grants, _ in FREE
    }

    assert found == expected


def test_the_same_grants_in_turn_are_summed_anew(ledger: Ledger) -> None:
    found = [ledger.books(grants).of(ONE).cores for grants in ([grant(30, 4)], [], [grant(40, 4)])]

    assert found == [70, 100, 60]


SOME, NONE = FreeGpu(70, 12, 1, BLOCKS), FreeGpu(0, 0, 1, BLOCKS)
WITHHELD: list[tuple[str, frozenset[GpuUUID], frozenset[GpuUUID], tuple[FreeGpu, ...]]] = [
    ("nothing", frozenset(), frozenset(), (SOME, SOME, SOME)),
    ("it is closed", frozenset({ONE.uuid}), frozenset(), (NONE, NONE, NONE)),
    ("it leaves", frozenset(), frozenset({ONE.uuid}), (NONE, SOME, SOME)),
    ("another", frozenset({TWO.uuid}), frozenset({TWO.uuid}), (SOME, SOME, SOME)),
]
"""Free for a new container; for one that finds no other GPU; for a call that names the GPU."""


def test_nothing_is_free_of_a_closed_gpu_and_for_new_containers_of_a_leaving_one(
    ledger: Ledger,
) -> None:
    held, found = [grant(30, 4)], {}
    for what, closed, leaving, _ in WITHHELD:
        ledger.closed, ledger.leaving = dict.fromkeys(closed, "unfit"), leaving
        books = (ledger.books(held), ledger.books(held, leaving=True))
        found[what] = (*(one.of(ONE) for one in books), ledger.book(held, ONE))
        assert ledger.unheld(held).of(ONE) == SOME

    assert found == {what: free for what, _, _, free in WITHHELD}


FITS = [
    ("all cores and all memory", [grant(70, 12)], grant(30, 4), True),
    ("a core too many", [grant(71, 4)], grant(30, 4), False),
    ("a block too many", [grant(30, 13)], grant(30, 4), False),
    ("more memory than the GPU has", [], grant(30, BLOCKS + 1), False),
    ("a whole GPU that is free", [], grant(100, BLOCKS), True),
    ("a whole GPU with more memory than it has", [], grant(100, BLOCKS + 1), False),
    ("a whole GPU beside a share", [grant(1, 1)], grant(100, BLOCKS), False),
    ("a share beside a whole GPU", [grant(100, 1)], grant(1, 1), False),
    ("beside grants of another GPU", [grant(100, 1, TWO.uuid)], grant(30, 4), True),
    ("on one of two GPUs only", [grant(80, 1, TWO.uuid)], grant(30, 4, ONE.uuid, TWO.uuid), False),
    ("beside a suspect grant", [grant(100, BLOCKS, suspect=True)], grant(30, 4), True),
    ("on a GPU that is gone", [], grant(30, 4, GpuUUID("?")), False),
]


def test_a_grant_fits_where_its_gpus_have_the_cores_and_the_memory(ledger: Ledger) -> None:
    assert {what: ledger.fits(others, one) for what, others, one, _ in FITS} == {
        what: fits for what, _, _, fits in FITS
    }


def test_a_block_that_the_gpu_had_once_is_no_block_too_many(ledger: Ledger) -> None:
    """A grant of more memory than the GPU has now, by the IDs that are gone."""
    last = next(i for i, gpu in ledger.ids.of(VMEMORY) if gpu == ONE).rsplit("-", 1)[0]
    gone = tuple(f"{last}-{BLOCKS + index}" for index in range(2))
    source = DevicePluginSource("admission", (), gone)
    fits = [
        ledger.fits([], replace(grant(30, blocks), source=source))
        for blocks in (BLOCKS + 2, BLOCKS + 3)
    ]

    assert fits == [True, False]


def test_nothing_fits_on_a_gpu_of_another_interface(ledger: Ledger) -> None:
    ledger.foreign = frozenset({TWO.uuid})

    assert not ledger.fits([], grant(30, 4, TWO.uuid))
    assert ledger.fits([], grant(30, 4))


def test_amounts_without_device_ids_are_counted_once_each(ledger: Ledger) -> None:
    assert ledger.repeated([grant(30, 4), grant(30, 4)]) == (0, 0, 0)
    assert ledger.unheld([grant(30, 4), grant(30, 4)]).of(ONE) == FreeGpu(40, BLOCKS - 8, 2, BLOCKS)


def test_capacity_that_an_app_container_has_from_its_init_container_is_counted_once(
    ledger: Ledger,
) -> None:
    ids = [tuple(i for i, _ in ledger.ids.of(resource)) for resource in (VCORE, VMEMORY)]

    def of(name: str, cores: slice, memory: slice) -> Grant:
        source = DevicePluginSource("admission", ids[0][cores], ids[1][memory])
        share = Share(len(source.core_ids), len(source.memory_ids))
        return Grant(AllocationID(name), source, {ONE.uuid: share})

    init, app = of("init", slice(30), slice(4)), of("app", slice(20, 70), slice(2, 8))

    assert ledger.books([init, app]).of(ONE) == FreeGpu(30, BLOCKS - 8, 2, BLOCKS)
    assert ledger.books([init, init]).of(ONE) == FreeGpu(70, BLOCKS - 4, 1, BLOCKS)
