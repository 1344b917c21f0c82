"""What every health source does: the real one over simulated NVML, and the fake of other tests."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from gpu_faults import FOREVER, SimulatedFaults

from gpumanager.gpu.health.state import HealthEvent
from gpumanager.gpu.nvml import NvmlError
from tests.gpu.health.health_worlds import (
    SimulatedSource,
    SimulatedWorld,
    ToldWorld,
    World,
    simulated_world,
)
from tests.native.sim_box import sim_box

AT_ONCE = 0.0
LONG = 120.0
"""Bound of a wait that has something to wait for."""


@pytest.fixture(params=["told", "simulated"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    if request.param == "told":
        yield ToldWorld()
        return
    with simulated_world() as world:
        yield world


def test_gpus_that_are_well_answer_without_a_problem(world: World) -> None:
    assert world.source.gpus() == world.gpus
    for gpu in world.gpus:
        finding = world.source.probe(gpu)
        assert finding.problem == ""
        assert not finding.double_bits
        assert (finding.remap_pending, finding.remap_failed) == (False, False)
        assert finding.recovery == ""


def test_a_wait_in_which_nothing_happens_ends_without_events(world: World) -> None:
    assert world.source.wait(0.05) == ()
    assert world.source.tells_events()


def test_events_come_with_their_gpu_in_order_and_once(world: World) -> None:
    world.source.wait(AT_ONCE)

    world.xid(world.gpus[1], 79)
    world.xid(world.gpus[0], 31)

    assert world.source.wait(LONG) == (HealthEvent(world.gpus[1], 79),)
    assert world.source.wait(LONG) == (HealthEvent(world.gpus[0], 31),)
    assert world.source.wait(AT_ONCE) == ()


def test_what_happened_before_anybody_waited_is_not_told(world: World) -> None:
    world.xid(world.gpus[0], 79)

    assert world.source.wait(AT_ONCE) == ()


def test_a_memory_error_is_an_event_and_is_counted(world: World) -> None:
    world.source.wait(AT_ONCE)

    world.double_bit_error(world.gpus[0])

    assert world.source.wait(LONG) == (HealthEvent(world.gpus[0]),)
    assert world.source.probe(world.gpus[0]).double_bits == 1
    assert not world.source.probe(world.gpus[1]).double_bits


def test_a_row_that_waits_for_a_reset_and_one_that_cannot_be_replaced_are_found(
    world: World,
) -> None:
    world.remap(world.gpus[0], pending=True, failed=False)
    world.remap(world.gpus[1], pending=False, failed=True)

    first, second = (world.source.probe(gpu) for gpu in world.gpus)

    assert (first.remap_pending, first.remap_failed) == (True, False)
    assert (second.remap_pending, second.remap_failed) == (False, True)


def test_a_lost_gpu_is_told_without_its_name_found_by_a_probe_and_costs_no_other(
    world: World,
) -> None:
    world.source.wait(AT_ONCE)

    world.lose(world.gpus[0])

    assert world.source.wait(LONG) == (HealthEvent(None),)
    assert world.source.wait(AT_ONCE) == ()
    assert "fallen off the bus" in world.source.probe(world.gpus[0]).problem
    assert world.source.probe(world.gpus[1]).problem == ""
    assert world.source.gpus() == world.gpus[1:]
    world.xid(world.gpus[1], 31)
    assert world.source.wait(LONG) == (HealthEvent(world.gpus[1], 31),)


def test_a_gpu_that_is_back_is_listed_and_tells_of_events_again(world: World) -> None:
    world.source.wait(AT_ONCE)
    world.lose(world.gpus[0])
    world.source.wait(LONG)
    world.source.wait(AT_ONCE)

    world.restore(world.gpus[0])

    assert world.source.gpus() == world.gpus
    assert world.source.probe(world.gpus[0]).problem == ""
    world.xid(world.gpus[0], 13)
    assert world.source.wait(LONG) == (HealthEvent(world.gpus[0], 13),)


def test_a_driver_that_is_gone_is_an_error_and_once_it_is_back_all_is_as_before(
    world: World,
) -> None:
    world.source.wait(AT_ONCE)

    world.unload()

    for _ in range(2):
        with pytest.raises(NvmlError):
            world.source.wait(LONG)
    with pytest.raises(NvmlError, match="kernel module is not loaded"):
        world.source.gpus()
    with pytest.raises(NvmlError):
        world.source.probe(world.gpus[0])

    world.load()

    assert world.source.gpus() == world.gpus
    assert world.source.wait(AT_ONCE) == ()
    world.xid(world.gpus[0], 13)
    assert world.source.wait(LONG) == (HealthEvent(world.gpus[0], 13),)


def test_without_events_a_wait_is_a_pause_and_probes_still_find_what_is_wrong(world: World) -> None:
    world.without_events()

    assert world.source.wait(0.05) == ()
    assert not world.source.tells_events()
    world.lose(world.gpus[1])
    assert world.source.wait(0.05) == ()
    assert world.source.probe(world.gpus[1]).problem


def test_a_gpu_that_nobody_knows_has_a_problem(world: World) -> None:
    unknown = type(world.gpus[0])("GPU-00000000-0000-0000-0000-0000000000ff")

    assert "does not know it" in world.source.probe(unknown).problem


def test_what_comes_and_goes_is_seen_when_it_is_opened_anew(world: World) -> None:
    world.unplug(world.gpus[0])
    world.source.reopen()

    assert world.source.gpus() == world.gpus[1:]
    assert "does not know it" in world.source.probe(world.gpus[0]).problem

    world.restore(world.gpus[0])
    assert world.source.gpus() == world.gpus[1:]
    world.source.reopen()

    assert world.source.gpus() == world.gpus
    assert world.source.probe(world.gpus[0]).problem == ""


def test_simulated_nvml_hangs_for_one_gpu_until_it_is_told_to_go_on() -> None:
    with sim_box() as box, ThreadPoolExecutor(1) as thread:
        world, other = SimulatedWorld(box), SimulatedSource(box)
        first, second = world.gpus
        world.source.gpus()
        other.gpus()
        SimulatedFaults(box.gpus).slow(FOREVER, first)

        hanging = thread.submit(world.source.probe, first)
        assert other.probe(second).problem == ""
        assert not hanging.done()
        SimulatedFaults(box.gpus).slow(0, first)

        assert hanging.result(LONG).problem == ""
        for source in (world.source, other):
            source.close()
