"""The sampler where something cannot be read: what was known stands, and nobody is blamed."""

from dataclasses import replace

import pytest

from gpumanager.grants.grant import Grant
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


async def test_shares_after_a_quiet_time_are_of_the_time_since(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, one = busy_world()
    now, quiet = 0.0, False
    sources = replace(world.sources(), quiet=lambda: quiet)
    monkeypatch.setattr(sampler_module, "find", process)
    sampler = Sampler(sources, reader_of(world), lambda: now, period=15.0)
    await sampler.sample(None)
    quiet = True
    for _ in range(40):
        now += 15
        await sampler.sample(None)
    now, quiet = now + 15, False
    world.usages = [usage(one, {PID: 100 * MIB}, charged_ns=25 * SECOND_NS // 2)]

    (view,) = (await sampler.sample(None)).containers

    assert view.devices[0].share == pytest.approx(50)
