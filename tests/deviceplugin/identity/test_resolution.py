"""Which container has which grant by the kubelet's books, as tables. IDs are single letters."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from gpumanager.deviceplugin.device_ledger import on_gpus
from gpumanager.deviceplugin.identity.resolution import (
    BookedContainer,
    confirmed,
    contested,
    corrected,
    holding,
    match,
    named,
    rivals,
    takes,
)
from gpumanager.deviceplugin.identity.verdict import Checkpoint
from gpumanager.grants.grant import Claimant, DevicePluginSource, Grant, LegacySource, Share, State
from gpumanager.grants.ledger import Ledger
from gpumanager.grants.refusals import NotResolved
from gpumanager.ids import AllocationID, PodUID
from gpumanager.kube.pod import ContainerKind, ContainerView
from gpumanager.kubelet.checkpoint import DeviceHolder
from gpumanager.names import VCORE, VMEMORY
from tests.deviceplugin.admission.admission_node import container, gpus, pod

ALIVE = pod("alive", container(30, 4), vcuda_core_limit="60")
ENDED = replace(pod("ended", container(30, 4)), phase="Failed")
VIEW = (ALIVE, ENDED)


def holds(name: str, cores: str, memory: str, of: str = "main") -> Checkpoint:
    uid = PodUID(f"uid-{name}")
    rows = ((VCORE, cores), (VMEMORY, memory))
    return tuple(DeviceHolder(uid, of, what, frozenset(ids)) for what, ids in rows if ids)


def booked(name: str, cores: str, memory: str, of: str = "main") -> BookedContainer:
    return BookedContainer(PodUID(f"uid-{name}"), of, frozenset(cores), frozenset(memory))


def answered(name: str, cores: str = "c", memory: str = "m", candidate: str = "") -> Grant:
    expected = claimant(candidate) if candidate else None
    source = DevicePluginSource("old", tuple(cores), tuple(memory))
    return Grant(AllocationID(name), source, candidate=expected)


def claimant(name: str, of: str = "main") -> Claimant:
    return Claimant(PodUID(f"uid-{name}"), "default", name, of)


def owned(name: str, pod_: str, cores: str = "c", memory: str = "m", of: str = "main") -> Grant:
    grant = answered(name, cores, memory)
    return replace(grant, state=State.CONFIRMED, pod=claimant(pod_, of))


TWO_CONTAINERS = (*holds("alive", "c", "m"), *holds("alive", "c", "n", "app"))
HOLDING: list[tuple[str, Checkpoint, tuple[BookedContainer, ...]]] = [
    ("nobody", (), ()),
    ("a container", holds("alive", "c", "m"), (booked("alive", "c", "m"),)),
    ("more than these IDs", holds("alive", "cd", "m"), ()),
    (
        "two containers with the same cores",
        TWO_CONTAINERS,
        (booked("alive", "c", "m"), booked("alive", "c", "n", "app")),
    ),
    (
        "a container beside one with other cores",
        (*holds("alive", "c", "m"), *holds("alive", "d", "n", "app")),
        (booked("alive", "c", "m"),),
    ),
    (
        "two pods of which one has ended",
        (*holds("ended", "c", "m"), *holds("alive", "c", "m")),
        (booked("alive", "c", "m"),),
    ),
    ("a pod that has ended, alone", holds("ended", "c", "m"), (booked("ended", "c", "m"),)),
    ("memory of these letters", holds("alive", "", "c"), ()),
]


def test_the_books_name_the_containers_of_the_pod_that_holds_these_cores() -> None:
    found = {what: holding(books, VCORE, "c", VIEW) for what, books, _ in HOLDING}

    assert found == {what: containers for what, _, containers in HOLDING}


def test_devices_that_the_books_give_to_two_living_pods_belong_to_nobody_yet() -> None:
    books = (*holds("alive", "c", "m"), *holds("other", "c", "m"))

    with pytest.raises(NotResolved, match="uid-alive and uid-other"):
        holding(books, VCORE, "c", (ALIVE, pod("other")))
    with pytest.raises(NotResolved):
        holding(books, VCORE, "c", None)


MAIN, APP, LAST = (booked("alive", "c", "m", of) for of in ("main", "app", "last"))
MATCHES: list[tuple[str, list[Grant], list[BookedContainer], str]] = [
    ("its grant", [answered("1")], [MAIN], "1"),
    ("the newest of the same IDs", [answered("1"), answered("2")], [MAIN], "2"),
    ("one for each, in the order of admission", [answered("1"), answered("2")], [MAIN, APP], "12"),
    ("the newest two of three", [answered(n) for n in "123"], [MAIN, APP], "23"),
    ("one answer for two containers", [answered("1")], [MAIN, APP], "11"),
    ("the confirmed one", [owned("1", "alive"), answered("2")], [MAIN], "1"),
    (
        "the confirmed one, and the newest for the other",
        [answered("1"), owned("2", "alive", of="app"), answered("3")],
        [MAIN, APP],
        "32",
    ),
    ("not that of another pod", [owned("1", "other"), answered("2")], [MAIN], "2"),
    ("not a newer one of another pod", [answered("1"), owned("2", "other")], [MAIN], "1"),
    ("that of another container of its pod", [owned("1", "alive", of="app")], [MAIN], "1"),
    ("not one with more cores", [answered("1"), answered("2", "cd")], [MAIN], "1"),
]


def test_each_container_gets_the_grant_that_is_confirmed_for_it_or_else_the_newest() -> None:
    found = {
        what: "".join(grant.id for grant, _ in match(tuple(live), tuple(containers)))
        for what, live, containers, _ in MATCHES
    }

    assert found == {what: names for what, _, _, names in MATCHES}


@pytest.mark.parametrize(
    ("live", "one", "text"),
    [
        ((), MAIN, "no record of answering"),
        ((owned("1", "other"),), MAIN, "no record of answering"),
        ((answered("1"),), booked("alive", "", "m"), "GPU memory without"),
    ],
    ids=["nobody's", "another pod's", "no cores"],
)
def test_a_container_without_a_grant_is_not_resolved(
    live: tuple[Grant, ...], one: BookedContainer, text: str
) -> None:
    with pytest.raises(NotResolved, match=text):
        match(tuple(live), (one,))


CORRECTED = [
    ("as the books have it", answered("1", "c", "mn"), holds("alive", "c", "mn"), "mn"),
    ("memory of other cores", answered("1", "c", "mn"), holds("alive", "c", "n"), "n"),
    ("memory of two containers", answered("1", "c", "mn"), TWO_CONTAINERS, "mn"),
    ("not in the books", answered("1", "c", "mn"), holds("alive", "d", "n"), "mn"),
    ("confirmed", owned("1", "alive", "c", "mn"), holds("alive", "c", "n"), "mn"),
]


def test_a_grant_that_is_not_confirmed_keeps_the_memory_that_the_books_give_to_its_cores() -> None:
    found = {
        what: "".join(corrected(one, books).ids.memory_ids) for what, one, books, _ in CORRECTED
    }

    assert found == {what: memory for what, _, _, memory in CORRECTED}


OURS = owned("ours", "alive")
RIVALS: list[tuple[str, Grant, Checkpoint, str]] = [
    ("other devices", owned("1", "other", "d", "n"), (), ""),
    ("not in the books", owned("1", "other"), (), "over"),
    ("in the books", owned("1", "other"), holds("other", "c", "m"), "standing"),
    (
        "in the books with some of them",
        owned("1", "other", "cd"),
        holds("other", "cd", "n"),
        "standing",
    ),
    ("in the books with others", owned("1", "other", "c", "mn"), holds("other", "d", "n"), "over"),
    ("answered, not in the books", answered("1", candidate="other"), (), "over"),
    ("answered, in the books", answered("1"), holds("other", "c", "m"), ""),
    ("of the same pod", owned("1", "alive", of="app"), (), ""),
]


def names(grants: Iterable[Grant]) -> list[str]:
    return [one.id for one in grants]


def test_a_grant_of_the_same_devices_is_over_unless_the_books_have_it() -> None:
    wrong = []
    for what, other, books, expected in RIVALS:
        over, standing = map(names, rivals((OURS, other), OURS, books))
        if (over, standing) != (["1"] * (expected == "over"), ["1"] * (expected == "standing")):
            wrong.append((what, over, standing))

    assert wrong == []


CONTESTED = [
    ("confirmed, with the same cores", owned("1", "alive", "c", "x"), True),
    ("confirmed, with the same memory", owned("1", "alive", "x", "m"), True),
    ("confirmed, with other devices", owned("1", "alive", "x", "y"), False),
    ("suspect", replace(owned("1", "alive", "x", "y"), suspect=True), True),
    ("ended", owned("1", "ended"), False),
    ("answered", answered("1", candidate="alive"), False),
    ("its own", owned("1", "new"), False),
]


def test_containers_that_start_contest_the_confirmed_grants_whose_devices_they_have() -> None:
    found = {
        what: names(contested((one,), [booked("new", "c", "m")], VIEW))
        for what, one, _ in CONTESTED
    }

    assert {what: bool(one) for what, one in found.items()} == {
        what: is_contested for what, _, is_contested in CONTESTED
    }
    assert takes([booked("new", "c", "z")], answered("1"))
    assert takes([booked("new", "z", "m")], answered("1"))
    assert not takes([booked("new", "y", "z")], answered("1"))


LEDGER = Ledger(gpus(1))
CORES, MEMORY = (tuple(i for i, _ in LEDGER.ids.of(what)) for what in (VCORE, VMEMORY))


def on_gpu(cores: int, memory: int) -> Grant:
    grant = answered("1", candidate="alive")
    source = DevicePluginSource("old", CORES[:cores], MEMORY[:memory])
    uuids = [LEDGER.topology.gpus[0].uuid]
    return on_gpus(replace(grant, source=source), uuids, exclusive=cores >= 100)


def in_books(cores: int, memory: int) -> BookedContainer:
    one = booked("alive", "", "")
    return replace(one, core_ids=frozenset(CORES[:cores]), memory_ids=frozenset(MEMORY[:memory]))


def test_a_confirmed_grant_is_as_large_as_the_books_say_and_has_the_ceiling_of_its_pod() -> None:
    suspect = replace(on_gpu(30, 4), suspect=True)

    found = confirmed(LEDGER, suspect, in_books(30, 2), ALIVE)

    assert list(found.shares.values()) == [Share(30, 2)]
    assert (found.state, found.pod, found.suspect) == (State.CONFIRMED, claimant("alive"), False)
    assert (found.ids.core_ids, found.ids.memory_ids) == (CORES[:30], MEMORY[:2])
    assert (found.ceiling, found.graphics) == (60, True)


def test_a_grant_that_is_confirmed_without_a_list_keeps_what_is_known_of_its_pod() -> None:
    expected = replace(on_gpu(30, 4), ceiling=50, graphics=False)
    other = replace(expected, candidate=claimant("other"))

    found = confirmed(LEDGER, expected, in_books(30, 4), None)
    unknown = confirmed(LEDGER, other, in_books(30, 4), None)

    assert (found.pod, found.ceiling, found.graphics) == (claimant("alive"), 50, False)
    assert unknown.pod == Claimant(PodUID("uid-alive"), "", "", "main")


def test_only_a_whole_gpu_is_confirmed_without_memory() -> None:
    assert confirmed(LEDGER, on_gpu(100, 0), in_books(100, 0), ALIVE).exclusive
    with pytest.raises(NotResolved, match="a share of a GPU without"):
        confirmed(LEDGER, on_gpu(30, 0), in_books(30, 0), ALIVE)


def test_a_grant_of_gpu_manager_is_confirmed_as_it_is() -> None:
    inherited = replace(on_gpu(30, 4), source=LegacySource("old", ("theirs",), ()))

    found = confirmed(LEDGER, inherited, in_books(30, 0), ALIVE)

    assert found == replace(inherited, pod=claimant("alive"))


def test_a_grant_without_a_name_gets_name_ceiling_and_graphics_of_its_pod() -> None:
    nameless = replace(owned("1", "alive"), pod=Claimant(PodUID("uid-alive"), "", "", "main"))
    views = (
        ContainerView("main", ContainerKind.APP, 30, 4, graphics=False),
        ContainerView("other", ContainerKind.APP, 30, 4),
    )

    (found,) = named([nameless], (replace(ALIVE, containers=views),))

    assert (found.pod, found.ceiling, found.graphics) == (claimant("alive"), 60, False)
    assert named([nameless], None) == ()
    assert named([owned("1", "alive"), answered("2")], VIEW) == ()
