"""Containers that launch out of turn are frozen from outside, and thawed in time."""

from collections.abc import Collection, Mapping
from pathlib import Path

import pytest

from gpumanager.compute.audit import SECOND
from gpumanager.ids import AllocationID
from gpumanager.limits.pausing import (
    PAUSED_FILE,
    PROCESSES_PER_TICK,
    TICKS_TO_TAKE_EFFECT,
    Cgroup,
    Pauser,
)
from gpumanager.limits.processes import Process
from gpumanager.sim.in_memory import SimulatedFreezer

pytest_plugins = ["tests.limits.virtual_fixtures"]

A, B = AllocationID("a"), AllocationID("b")
MAIN, SIDE, OTHER = Cgroup("freezer:/a/main"), Cgroup("freezer:/a/side"), Cgroup("freezer:/b/main")
CONTAINERS = {101: (A, MAIN), 102: (A, SIDE), 201: (B, OTHER)}
TICK = 100_000_000


class Paused:
    """A Pauser of containers that are only written down. processes: by pid."""

    def __init__(self, root: Path, freezer: SimulatedFreezer | None = None) -> None:
        for name in (A, B):
            (root / name).mkdir(exist_ok=True)
        self.root = root
        self.freezer = freezer or SimulatedFreezer(dict(CONTAINERS))
        self.processes: dict[AllocationID, list[int]] = {A: [101], B: [201]}
        self.pauser = Pauser(lambda name: root / name, self.freezer)

    def keep(
        self, held: Collection[AllocationID], paused: Mapping[AllocationID, float]
    ) -> set[Cgroup]:
        """Who is frozen then."""
        self.pauser.tick(held, paused, self._of)
        return set(self.freezer.frozen)

    def _of(self, allocation: AllocationID) -> list[Process]:
        return [Process(pid, 1) for pid in self.processes[allocation]]


@pytest.fixture
def paused(tmp_path: Path) -> Paused:
    return Paused(tmp_path)


def test_who_is_paused_is_frozen_and_nobody_else(paused: Paused) -> None:
    assert paused.keep([A], {}) == set()
    assert paused.keep([A], {A: 1}) == {MAIN}
    assert paused.keep([A], {}) == set()


def test_who_was_thawed_by_somebody_or_is_new_is_frozen_at_the_next_look(paused: Paused) -> None:
    paused.keep([A], {A: 1})
    paused.freezer.thaw(MAIN)
    paused.processes[A] = [101, 102]

    assert paused.keep([A], {A: 1}) == {MAIN, SIDE}
    assert paused.keep([A], {}) == set()


def test_a_process_of_another_pod_or_of_the_host_freezes_nobody(paused: Paused) -> None:
    """As after its pid was given to somebody else."""
    paused.processes[A] = [201, 999]

    assert paused.keep([A], {A: 1}) == set()


def test_its_cgroups_are_written_down_as_long_as_a_container_may_be_frozen(paused: Paused) -> None:
    mark = paused.root / A / PAUSED_FILE

    paused.keep([A], {A: 1})
    assert mark.read_text() == f"{MAIN}\n"
    paused.keep([A], {})
    assert mark.exists()
    paused.keep([A], {A: 1})
    assert paused.keep([], {}) == set()
    assert not mark.exists()


def test_nobody_is_frozen_whom_the_next_manager_would_not_thaw(
    paused: Paused, caplog: pytest.LogCaptureFixture
) -> None:
    """A full disk, or one that cannot be written; that is said once."""
    (paused.root / A).rmdir()

    assert [paused.keep([A], {A: 1}) for _ in range(9)] == [set()] * 9
    assert len(caplog.messages) == 1


def test_the_next_manager_thaws_whom_the_last_has_frozen_though_no_process_is_known(
    paused: Paused,
) -> None:
    paused.keep([A, B], {A: 1, B: 1})
    after = Paused(paused.root, paused.freezer)
    after.processes = {A: [], B: []}

    after.pauser.resume(A)

    assert paused.freezer.frozen == {OTHER}
    assert not (paused.root / A / PAUSED_FILE).exists()


def test_the_mark_stays_where_somebody_cannot_be_thawed(
    paused: Paused, monkeypatch: pytest.MonkeyPatch
) -> None:
    paused.keep([A], {A: 1})

    def thaw(_: Cgroup) -> None:
        raise OSError("read-only")

    monkeypatch.setattr(paused.freezer, "thaw", thaw)
    paused.pauser.resume(A)

    assert (paused.root / A / PAUSED_FILE).exists()


def test_a_container_of_a_pod_that_terminates_is_thawed_and_stays_so(paused: Paused) -> None:
    paused.processes[A] = [101, 102]
    paused.keep([A], {A: 1})
    paused.freezer.terminating.add(MAIN)

    assert paused.keep([A], {A: 1}) == {SIDE}
    assert paused.keep([A], {A: 1}) == {SIDE}


def test_a_container_that_has_ended_is_forgotten(paused: Paused) -> None:
    paused.processes[A] = [101, 102]
    paused.keep([A], {A: 1})
    paused.freezer.end(MAIN)

    assert paused.keep([A], {A: 1}) == {SIDE}
    assert paused.keep([], {}) == set()
    assert not (paused.root / A / PAUSED_FILE).exists()


def test_a_look_costs_the_same_however_many_processes_there_are(paused: Paused) -> None:
    """Sleepers of another container come first: all are looked up, in turn."""
    paused.processes[A] = [*range(1000, 1000 + 3 * PROCESSES_PER_TICK), 101]

    paused.keep([A], {A: 1})
    assert paused.freezer.lookups == PROCESSES_PER_TICK
    assert paused.freezer.frozen == set()
    for _ in range(3):
        paused.keep([A], {A: 1})

    assert paused.freezer.frozen == {MAIN}


@pytest.mark.parametrize(
    ("broken", "grows", "said"),
    [
        (False, 0, ""),
        (True, 0, "its cgroup does not freeze"),
        (False, SECOND // 10, "it uses GPU time although its containers are frozen"),
    ],
)
def test_what_freezing_does_is_looked_at(
    paused: Paused, caplog: pytest.LogCaptureFixture, *, broken: bool, grows: int, said: str
) -> None:
    if broken:
        paused.freezer.broken.add(MAIN)

    for look in range(2 * TICKS_TO_TAKE_EFFECT):
        paused.keep([A], {A: 1 + look * grows})

    assert [line.rpartition(": ")[2] for line in caplog.messages] == ([said] if said else [])


def test_who_takes_a_moment_to_freeze_is_not_complained_of(
    paused: Paused, caplog: pytest.LogCaptureFixture
) -> None:
    paused.freezer.broken.add(MAIN)
    for _ in range(TICKS_TO_TAKE_EFFECT):
        paused.keep([A], {A: 1})
    paused.freezer.broken.clear()

    for _ in range(TICKS_TO_TAKE_EFFECT):
        paused.keep([A], {A: 1})

    assert caplog.messages == []
