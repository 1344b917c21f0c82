"""When grants end, as tables: each row is one grant, and what is known of its pod.

The pod under admission is `new`. The kubelet's list has the pods `alive` and `ended`, and lacks
`gone`.
"""

from dataclasses import replace

from gpumanager.deviceplugin.admission.transaction import Candidate, Transaction
from gpumanager.deviceplugin.identity.lifecycle import (
    Checkpoint,
    Conflict,
    again,
    conflict,
    ended,
    has_ended,
    never_given,
    over,
    owner,
    rejected,
    since,
    superseded,
)
from gpumanager.gpu.values import GpuUUID
from gpumanager.grants.grant import (
    Claimant,
    DevicePluginSource,
    EvidenceSource,
    Grant,
    LegacySource,
    Share,
    State,
)
from gpumanager.ids import AllocationID, PodUID
from gpumanager.kubelet.checkpoint import DeviceHolder
from gpumanager.names import VCORE, VMEMORY
from tests.deviceplugin.admission.admission_node import container, pod

ALIVE = pod("alive", container(30, 4))
ENDED = replace(pod("ended", container(30, 4)), phase="Succeeded")
VIEW = (ALIVE, ENDED)
NAME = AllocationID("a")


def claimant(name: str) -> Claimant:
    return Claimant(PodUID(f"uid-{name}"), "default", name, "main")


def answered(candidate: str = "", cores: str = "c", memory: str = "m") -> Grant:
    """Its pod is expected, or unknown. cores, memory: one ID of each, or none where empty."""
    source = DevicePluginSource("old", (cores,) if cores else (), (memory,) if memory else ())
    return Grant(NAME, source, candidate=claimant(candidate) if candidate else None)


def confirmed(name: str) -> Grant:
    return replace(answered(), state=State.CONFIRMED, pod=claimant(name))


def legacy(name: str) -> Grant:
    return replace(confirmed(name), source=LegacySource("old", ("c",), ("m",)))


def holds(name: str, cores: str = "c", memory: str = "m") -> Checkpoint:
    uid = PodUID(f"uid-{name}")
    return (
        DeviceHolder(uid, "main", VCORE, frozenset({cores})),
        DeviceHolder(uid, "main", VMEMORY, frozenset({memory})),
    )


def test_a_pod_has_ended_if_a_list_lacks_it_or_shows_that_it_never_runs_again() -> None:
    names = ("alive", "ended", "gone")

    assert [has_ended(PodUID(f"uid-{name}"), VIEW) for name in names] == [False, True, True]
    assert not has_ended(None, VIEW)
    assert not has_ended(PodUID("uid-gone"), None)


ENDS = [
    ("alive", confirmed("alive"), VIEW, False),
    ("ended", confirmed("ended"), VIEW, True),
    ("gone", confirmed("gone"), VIEW, True),
    ("expected and gone", answered("gone"), VIEW, True),
    ("unknown", answered(), VIEW, False),
    ("of gpu-manager", legacy("gone"), VIEW, False),
    ("no list", confirmed("gone"), None, False),
]


def test_a_grant_has_ended_with_its_pod_except_one_of_gpu_manager() -> None:
    assert {what: ended([one], "new", view) == {NAME} for what, one, view, _ in ENDS} == {
        what: is_over for what, _, _, is_over in ENDS
    }
    assert ended([confirmed("gone")], "old", VIEW) == frozenset()


GIVEN = [
    ("in the books", answered("alive"), holds("alive"), False),
    ("not in the books", answered("alive"), (), True),
    ("in the books of an ended pod", answered("alive"), holds("ended"), True),
    ("only its memory is in the books", answered("alive"), holds("alive", cores="x"), False),
    ("only its cores are in the books", answered("alive"), holds("alive", memory="x"), False),
    ("other devices are in the books", answered("alive"), holds("alive", "x", "y"), True),
    ("no books", answered("alive"), None, False),
    ("of an unknown pod", answered(), (), False),
    ("confirmed", confirmed("alive"), (), False),
    ("cores alone", answered("alive", memory=""), None, True),
    ("memory alone", answered("alive", cores=""), holds("alive"), True),
    (
        "a whole GPU without memory",
        replace(answered("alive", memory=""), shares={GpuUUID("g"): Share(100, 0)}),
        holds("alive"),
        False,
    ),
    (
        "proved by other evidence",
        replace(answered("alive"), source=EvidenceSource("old")),
        None,
        False,
    ),
]


def test_a_grant_was_never_given_if_a_later_admission_finds_it_half_or_not_in_the_books() -> None:
    found = {what: never_given([one], "new", books, VIEW) for what, one, books, _ in GIVEN}

    assert {what: names == (NAME,) for what, names in found.items()} == {
        what: is_over for what, _, _, is_over in GIVEN
    }
    assert never_given([answered("alive")], "old", (), VIEW) == ()


OVER = [
    ("alive", confirmed("alive"), VIEW, (), False),
    ("ended, in the books", confirmed("ended"), VIEW, holds("ended"), True),
    ("alive, by the books alone", confirmed("gone"), None, holds("gone"), False),
    ("gone, by the books alone", confirmed("gone"), None, holds("alive"), True),
    ("nothing is known", confirmed("gone"), None, None, False),
    ("answered and given", answered("alive"), VIEW, holds("alive"), False),
    ("answered and not given", answered("alive"), VIEW, (), True),
    ("answered, no books", answered("alive"), VIEW, None, False),
    ("answered, of an unknown pod, no books", answered(), VIEW, None, False),
    (
        "answered for one that is gone, and given to another",
        answered("gone"),
        VIEW,
        holds("alive"),
        False,
    ),
]


def test_a_grant_is_over_by_the_list_of_pods_or_else_by_the_books() -> None:
    found = {what: over([one], view, books) == {NAME} for what, one, view, books, _ in OVER}

    assert found == {what: is_over for what, _, _, _, is_over in OVER}


OWNERS = [
    ("confirmed", confirmed("alive"), holds("gone"), "uid-alive"),
    ("by the books", answered("gone"), holds("alive"), "uid-alive"),
    ("by the books of memory alone", answered("gone"), holds("alive", cores="x"), "uid-gone"),
    ("expected", answered("gone"), (), "uid-gone"),
    ("unknown", answered(), (), None),
]


def test_the_owner_is_the_confirmed_pod_then_that_of_the_books_then_the_expected_one() -> None:
    assert {what: owner(one, books) for what, one, books, _ in OWNERS} == {
        what: uid for what, _, _, uid in OWNERS
    }


SUPERSEDED = [
    ("its own devices", confirmed("alive"), holds("alive"), False),
    ("other cores", confirmed("alive"), holds("alive", cores="x"), True),
    ("other memory", confirmed("alive"), holds("alive", memory="x"), False),
    ("none", confirmed("alive"), holds("gone", cores="x"), False),
    ("of gpu-manager", legacy("alive"), holds("alive", cores="x"), False),
    ("not confirmed", answered("alive"), holds("alive", cores="x"), False),
    ("no books", confirmed("alive"), None, False),
]


def test_a_grant_is_superseded_if_the_books_give_its_container_other_cores() -> None:
    found = {what: superseded([one], books) == {NAME} for what, one, books, _ in SUPERSEDED}

    assert found == {what: is_over for what, _, _, is_over in SUPERSEDED}


def test_what_was_not_seen_in_between_is_seen_anew() -> None:
    assert since({"a": 1.0, "b": 2.0}, ["a", "c"], 3.0) == {"a": 1.0, "c": 3.0}


CONFLICTS = [
    ("alive, confirmed", confirmed("alive"), VIEW, "refused"),
    ("alive, answered", answered("alive"), VIEW, "suspect"),
    ("ended", confirmed("ended"), VIEW, "over"),
    ("no list, confirmed", confirmed("alive"), None, "suspect"),
    ("no list, answered", answered("gone"), None, "suspect"),
    ("other devices", answered("alive", "x", "y"), VIEW, ""),
]


def outcome(found: Conflict) -> str:
    names = {"over": found.over, "suspect": found.suspect, "refused": found.refused}
    return ",".join(name for name, value in names.items() if value)


def test_a_grant_that_holds_the_asked_ids_is_over_or_suspect_or_a_reason_to_refuse() -> None:
    found = {what: outcome(conflict([one], "new", "c", view)) for what, one, view, _ in CONFLICTS}

    assert found == {what: expected for what, _, _, expected in CONFLICTS}
    assert outcome(conflict([confirmed("alive")], "old", "c", VIEW)) == ""
    assert outcome(conflict([confirmed("ended")], "new", "c", VIEW, [NAME])) == "refused"


def opened(admission: str, *candidates: Candidate, viewed: bool = True) -> Transaction:
    sizes = {VCORE: 30}
    return Transaction(admission, AllocationID(admission), 0.0, viewed, candidates, sizes)


DONE = Candidate(ALIVE, 0, frozenset({VCORE, VMEMORY}))
HALF = Candidate(ALIVE, 0, frozenset({VCORE}))
NEW = Candidate(pod("new", container(30, 4)))
REJECTED = [
    ("complete", answered("alive"), opened("old", DONE), opened("new", NEW), False),
    ("half asked for", answered("alive"), opened("old", HALF), opened("new", NEW), True),
    ("memory alone", answered("alive", cores=""), opened("old", DONE), opened("new", NEW), True),
    ("confirmed", confirmed("alive"), opened("old", HALF), opened("new", NEW), False),
    ("the same admission", answered("alive"), opened("old", HALF), opened("old", NEW), False),
    ("the same pod", answered("alive"), opened("old", HALF), opened("new", HALF), False),
    ("an unknown pod", answered("alive"), opened("old", HALF), opened("new"), False),
    ("nothing before", answered("alive"), None, opened("new", NEW), False),
    ("nothing after", answered("alive"), opened("old", HALF), None, False),
]


def test_a_pod_is_rejected_if_another_is_admitted_before_all_of_it_was_asked_for() -> None:
    found = {what: rejected([one], was, now) for what, one, was, now, _ in REJECTED}

    assert {what: names == (NAME,) for what, names in found.items()} == {
        what: is_over for what, _, _, _, is_over in REJECTED
    }


def test_a_pod_that_asks_for_as_much_may_be_admitted_again_if_the_list_shows_no_new_one() -> None:
    other = replace(ALIVE, containers=(container(31, 4),))
    live = [confirmed("alive")]

    assert again(live, opened("new"), VIEW) == {NAME}
    assert again(live, opened("new"), (other,)) == frozenset()
    assert again(live, opened("new"), None) == frozenset()
    assert again(live, opened("new", NEW), VIEW) == frozenset()
    assert again(live, opened("new", viewed=False), VIEW) == frozenset()
    assert again([legacy("alive"), answered("alive")], opened("new"), VIEW) == frozenset()
