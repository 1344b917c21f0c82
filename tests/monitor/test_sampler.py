"""The sampler where something cannot be read: what was known stands, and nobody is blamed."""

from dataclasses import replace

import pytest

from gpumanager.grants.grant import Grant, State
from gpumanager.ids import AllocationID
from gpumanager.monitor import sampler as sampler_module
from gpumanager.monitor.sampler import Sampler
from gpumanager.monitor.unlimited.audit import suspects
from gpumanager.units import MIB, Bytes
from tests.monitor.monitor_world import (
    EVERYTHING,
    FIRST,
    World,
    claimant,
    member,
    process,
    reader_of,
    share,
    usage,
)

SECOND_NS = 1_000_000_000
PID = 7


def sampler_of(world: World, monkeypatch: pytest.MonkeyPatch) -> Sampler:
    monkeypatch.setattr(sampler_module, "find", process)
    return Sampler(world.sources(), reader_of(world))


def busy_world() -> tuple[World, Grant]:
    """One container whose process has a seat and memory."""
    one = share(claimant())
    world = World([one], [usage(one, {PID: 100 * MIB}, charged_ns=5 * SECOND_NS)])
    world.held = {FIRST.uuid: {PID: Bytes(400 * MIB)}}
    world.members = {PID: member(claimant())}
    return world, one


async def test_books_that_cannot_be_read_for_a_moment_let_no_counter_fall_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, _ = busy_world()
    sampler = sampler_of(world, monkeypatch)
    await sampler.sample(EVERYTHING)

    world.usages = []
    (view,) = (await sampler.sample(EVERYTHING)).containers
    assert view.devices[0].charged_ns == 5 * SECOND_NS
    world.promises = []

    assert (await sampler.sample(EVERYTHING)).containers == ()


async def test_grants_of_the_journal_are_counted_by_their_state(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, one = busy_world()
    world.promises = [
        one,
        share(None, "a2", first=40),
        replace(one, id=AllocationID("a3"), released=True),
    ]

    found = await sampler_of(world, monkeypatch).sample(EVERYTHING)

    assert found.journal == {State.CONFIRMED.value: 1, State.ANSWERED.value: 1, "released": 1}


async def test_nobody_is_behind_the_shim_whose_books_cannot_be_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, one = busy_world()
    world.usages = []
    sampler = sampler_of(world, monkeypatch)

    assert list(suspects(await sampler.sample(EVERYTHING))) == []

    world.usages = [usage(one)]
    assert len(list(suspects(await sampler.sample(EVERYTHING)))) == 1


async def test_where_a_pod_s_container_is_not_told_apart_one_unread_book_is_enough(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, one = busy_world()
    other = share(claimant(container="side"), "a2", first=50)
    world.promises, world.usages = [one, other], [usage(one)]
    sampler = sampler_of(world, monkeypatch)

    assert list(suspects(await sampler.sample(EVERYTHING))) == []

    world.usages = [usage(one), usage(other)]
    assert len(list(suspects(await sampler.sample(EVERYTHING)))) == 1
