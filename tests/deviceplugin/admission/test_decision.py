"""What Allocate grants for the IDs it gets. Two GPUs of 16 blocks, and a container nobody knows."""

import re

import pytest

from gpumanager.deviceplugin.admission.decision import NO_CORES, NO_SHARING, decide
from gpumanager.deviceplugin.admission.transaction import Transaction
from gpumanager.deviceplugin.device_ledger import on_gpus
from gpumanager.gpu.values import Gpu, GpuUUID
from gpumanager.grants.grant import DevicePluginSource, Grant
from gpumanager.grants.ledger import Ledger
from gpumanager.grants.refusals import Refused
from gpumanager.ids import AllocationID
from gpumanager.names import VCORE, VMEMORY
from tests.deviceplugin.admission.admission_node import BLOCKS, gpus

LEDGER = Ledger(gpus(2))
ONE, TWO = LEDGER.topology.gpus


def ids(resource: str, *counts: tuple[int, int]) -> tuple[str, ...]:
    """counts: how many of which GPU, by its index; always its first ones."""
    named = [
        [i for i, gpu in LEDGER.ids.of(resource) if gpu.index == index][:count]
        for index, count in counts
    ]
    return tuple(i for of_gpu in named for i in of_gpu)


def held(index: int, cores: int, blocks: int) -> Grant:
    """By another pod."""
    source = DevicePluginSource("other", ids(VCORE, (index, cores)), ids(VMEMORY, (index, blocks)))
    gpu = LEDGER.topology.gpus[index]
    return on_gpus(Grant(AllocationID(f"held-{index}"), source), [gpu.uuid], exclusive=cores >= 100)


def unknown(**sizes: int) -> Transaction:
    """A container that no list of pods shows. sizes: what was asked for so far."""
    names = {"cores": VCORE, "blocks": VMEMORY}
    asked = {names[name]: size for name, size in sizes.items()}
    return Transaction("new", AllocationID("new"), 0.0, viewed=False, sizes=asked)


def memory(asked: tuple[str, ...], *live: Grant) -> Grant | Refused:
    return decide(LEDGER, live, unknown(blocks=len(asked)), VMEMORY, asked, now=0.0)


def test_memory_that_comes_first_is_on_the_gpu_that_its_ids_name() -> None:
    grant = memory(ids(VMEMORY, (1, 4)))

    assert isinstance(grant, Grant)
    assert grant.gpus == (TWO.uuid,)


def test_memory_that_comes_first_with_ids_of_two_gpus_is_on_the_one_with_the_most_room() -> None:
    grant = memory(ids(VMEMORY, (0, 2), (1, 2)), held(0, 30, 4))

    assert isinstance(grant, Grant)
    assert grant.gpus == (TWO.uuid,)
    assert grant.why == "the GPU with the most room"


@pytest.mark.parametrize(("taken", "gpu"), [(BLOCKS, TWO), (BLOCKS - 1, ONE)])
def test_cores_that_come_first_are_placed_where_a_block_is_left_for_them(
    taken: int, gpu: Gpu
) -> None:
    both = ids(VCORE, (0, 15), (1, 15))

    grant = decide(LEDGER, (held(0, 30, taken),), unknown(cores=30), VCORE, both, now=0.0)

    assert isinstance(grant, Grant)
    assert grant.gpus == (gpu.uuid,)


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        (ids(VMEMORY, (0, 7), (1, 6)), "no free GPU.*13 blocks asked; no GPU has as many free"),
        (ids(VMEMORY, (0, 9), (1, 8)), "larger than any GPU here.*17 blocks asked; no GPU has"),
    ],
    ids=["taken", "too large"],
)
def test_memory_that_comes_first_is_refused_where_no_gpu_has_the_room(
    asked: tuple[str, ...], text: str
) -> None:
    refused = memory(asked, held(0, 30, 4), held(1, 30, 4))

    assert isinstance(refused, Refused)
    assert re.search(text, refused.text)


SIX = Ledger(gpus(6))
FIRST, LAST = SIX.topology.gpus[0].uuid, SIX.topology.gpus[-1].uuid
FOUR_OF_SIX = "".join(f"; GPU {index} is closed: it is unhealthy" for index in range(4))
CLOSED: list[tuple[str, dict[GpuUUID, str], frozenset[GpuUUID], str]] = [
    ("no GPU", {}, frozenset(), ""),
    (
        "one each",
        {LAST: "another manager has it"},
        frozenset({FIRST}),
        "; GPU 0 is closed: it moves to another interface; GPU 5 is closed: another manager has it",
    ),
    (
        "all but one",
        {gpu.uuid: "it is unhealthy" for gpu in SIX.topology.gpus[:5]},
        frozenset(),
        f"{FOUR_OF_SIX}; 1 more is closed",
    ),
    (
        "all",
        {gpu.uuid: "it is unhealthy" for gpu in SIX.topology.gpus},
        frozenset(),
        f"{FOUR_OF_SIX}; 2 more are closed",
    ),
]
REST = {VCORE: "GPU 0, has 0 cores and 0 blocks free", VMEMORY: "no GPU has as many free"}


@pytest.mark.parametrize(("closed", "leaving", "end"), [case[1:] for case in CLOSED])
@pytest.mark.parametrize("resource", [VCORE, VMEMORY])
def test_a_refusal_for_want_of_room_names_the_gpus_that_are_closed_and_why(
    closed: dict[GpuUUID, str], leaving: frozenset[GpuUUID], end: str, resource: str
) -> None:
    ledger = Ledger(SIX.topology, closed=closed, leaving=leaving)
    live = [
        on_gpus(Grant(AllocationID(gpu.uuid), DevicePluginSource("o")), [gpu.uuid], exclusive=True)
        for gpu in SIX.topology.gpus
    ]
    asked = tuple(i for i, _ in SIX.ids.of(resource))[:1]

    open_ = unknown(**{"cores" if resource == VCORE else "blocks": 1})
    refused = decide(ledger, tuple(live), open_, resource, asked, now=0.0)

    assert isinstance(refused, Refused)
    assert refused.text.endswith(f"{REST[resource]}{end}")


NO_MEMORY = (
    "a share of a GPU needs memory: 30 cores and no memory asked; "
    "ask for at least 1 block of 256 MiB"
)
CORES = ids(VCORE, (0, 30))
ASKED: list[tuple[str, Transaction, str, tuple[str, ...], str]] = [
    ("memory first", unknown(blocks=4), VMEMORY, ids(VMEMORY, (0, 4)), ""),
    (
        "memory alone, of a container that was asked for both",
        unknown(cores=0, blocks=4),
        VMEMORY,
        ids(VMEMORY, (0, 4)),
        NO_CORES,
    ),
    ("cores first", unknown(cores=30), VCORE, CORES, ""),
    (
        "cores alone, of a container that was asked for both",
        unknown(cores=30, blocks=0),
        VCORE,
        CORES,
        NO_MEMORY,
    ),
]


def test_a_half_is_refused_for_what_it_lacks_only_if_the_other_half_was_asked_for() -> None:
    wrong = []
    for what, transaction, resource, asked, text in ASKED:
        answer = decide(LEDGER, (), transaction, resource, asked, now=0.0)
        if (answer.text if isinstance(answer, Refused) else "") != text:
            wrong.append((what, answer))

    assert wrong == []


def test_a_share_is_granted_unless_the_node_gives_whole_gpus_only() -> None:
    whole = ids(VCORE, (0, 100))

    answers = [
        decide(LEDGER, (), unknown(cores=30), VCORE, CORES, now=0.0),
        decide(LEDGER, (), unknown(cores=30), VCORE, CORES, now=0.0, share_mode=False),
        decide(LEDGER, (), unknown(cores=100), VCORE, whole, now=0.0, share_mode=False),
    ]

    assert [one.text if isinstance(one, Refused) else "" for one in answers] == ["", NO_SHARING, ""]
