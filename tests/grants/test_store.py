"""The store of grants: what is in force is on disk, and what is on disk is enforced."""

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from gpumanager.grants.grant import (
    ClaimedDevice,
    ClaimSource,
    Grant,
    LegacySource,
)
from gpumanager.grants.journal import Journal
from gpumanager.grants.journal_file import JournalFile, JournalUnwritable
from gpumanager.grants.store import GrantStore
from gpumanager.ids import AllocationID
from gpumanager.sim.in_memory import SimulatedBackEnds
from tests.grants.journals import allocation
from tests.waiting import until

CLAIM = ClaimSource("uid", "team", "c", (ClaimedDevice("gpu-x", "gpu"),))
A, B = allocation("a"), allocation("b")


class Disk(JournalFile):
    """A full disk, or one that is waited for."""

    full = False
    stuck: threading.Event | None = None
    """While it is not set, a save takes up to five seconds."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.saved: list[str] = []

    def save(self, journal: Journal) -> None:
        self.check()
        stuck, self.stuck = self.stuck, None
        if stuck:
            stuck.wait(5)
        super().save(journal)
        self.saved.append(names(journal.live()))

    def tidy(self, journal: Journal) -> None:
        self.check()
        super().tidy(journal)

    def check(self) -> None:
        if self.full:
            raise JournalUnwritable(self.path, "disk full")


@dataclass
class World:
    disk: Disk
    back_ends: SimulatedBackEnds

    def store(self) -> GrantStore:
        return GrantStore(self.disk, self.back_ends)

    async def restarted(self) -> GrantStore:
        store = GrantStore(JournalFile(self.disk.path), self.back_ends)
        await store.load()
        return store


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(Disk(tmp_path / "journal"), SimulatedBackEnds())


def names(grants: Iterable[Grant]) -> str:
    return "".join(one.id for one in grants)


async def test_a_grant_is_on_disk_once_it_is_put(world: World) -> None:
    store = world.store()
    await store.put(A, B)

    assert names(store.journal.live()) == "ab"
    assert (await world.restarted()).journal == store.journal


async def test_a_change_that_cannot_be_written_has_not_happened(world: World) -> None:
    store = world.store()
    await store.put(A)
    world.disk.full = True

    with pytest.raises(JournalUnwritable):
        await store.put(B)
    with pytest.raises(JournalUnwritable):
        await store.release([A.id])

    assert store.journal == Journal().put(A)


async def test_a_change_that_nobody_waits_for_any_more_is_written_before_the_next(
    world: World,
) -> None:
    store, world.disk.stuck = world.store(), (stuck := threading.Event())
    first = asyncio.create_task(store.put(A))
    await asyncio.sleep(0)
    first.cancel()
    second = asyncio.create_task(store.put(B))
    await asyncio.wait([second], timeout=0.1)
    stuck.set()
    await second
    await until(lambda: len(world.disk.saved) == 2)

    assert world.disk.saved == ["a", "b"]


async def test_a_released_grant_is_forgotten_once_its_directory_is_gone(world: World) -> None:
    store = world.store()
    await store.put(A, B)
    await store.serve_again(A.id)
    await store.release([A.id])

    assert store.journal == Journal().put(B)
    assert world.back_ends.enforced == {}


async def test_a_directory_that_cannot_be_removed_is_tried_again_and_hinders_no_other(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    store = world.store()
    await store.put(A, B)
    world.back_ends.broken = {"a"}
    await store.release([A.id, B.id])

    assert [(one.id, one.released) for one in store.journal.grants.values()] == [("a", True)]
    assert "cannot remove allocation a yet: busy" in caplog.text
    assert (await world.restarted()).journal.live() == ()

    world.back_ends.broken = set()
    await store.forget()

    assert store.journal == Journal()


async def test_of_gpu_manager_s_containers_no_directory_is_removed(world: World) -> None:
    store = world.store()
    await store.put(allocation("old", kind=LegacySource))
    world.back_ends.broken = {"old"}
    await store.release([AllocationID("old")])

    assert store.journal == Journal()


async def test_to_release_nothing_writes_nothing(world: World) -> None:
    await world.store().release([])

    assert not world.disk.path.exists()


async def test_a_suspicion_is_written_with_the_next_change(world: World) -> None:
    store = world.store()
    await store.put(A)
    store.suspect([])
    store.suspect([A.id])

    assert [one.suspect for one in store.journal.live()] == [True]
    assert not (await world.restarted()).journal.live()[0].suspect

    await store.put(B)

    assert [one.suspect for one in (await world.restarted()).journal.live()] == [True, False]


async def test_a_suspicion_is_cleared_of_those_that_are_known_and_suspect(world: World) -> None:
    store = world.store()
    await store.put(replace(A, suspect=True), B)
    before = store.journal
    store.clear_suspect([B.id, AllocationID("unknown")])

    assert store.journal is before

    store.clear_suspect([A.id])

    assert [one.suspect for one in store.journal.live()] == [False, False]


@pytest.mark.parametrize(
    ("write", "whole", "kept"),
    [
        (lambda _path: None, False, 0),
        (lambda path: path.write_bytes(b"{"), False, 1),
        (lambda path: JournalFile(path).save(Journal().put(A)), True, 0),
    ],
    ids=["absent", "damaged", "whole"],
)
async def test_the_journal_is_read_once_and_kept_where_it_is_damaged(
    world: World,
    write: Callable[[Path], None],
    whole: bool,  # noqa: FBT001
    kept: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    write(world.disk.path)
    store = world.store()

    assert [await store.load(), await store.load()] == [whole, whole]
    assert caplog.text.count("The file is kept as") == kept


async def test_what_is_in_force_is_enforced_again(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    store = world.store()
    await store.put(A, B, allocation("r", released=True))
    world.back_ends.broken = {"b"}
    with caplog.at_level(logging.ERROR):
        for name in ("a", "b", "r", "unknown"):
            await store.serve_again(AllocationID(name))

    assert names(world.back_ends.enforced.values()) == "a"
    assert [one.getMessage() for one in caplog.records] == ["cannot serve allocation b: no room"]


async def test_a_journal_that_cannot_be_tidied_is_an_error_in_the_log(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    store = world.store()
    world.disk.full = True
    await store.tidy()

    assert "disk full" in caplog.text
