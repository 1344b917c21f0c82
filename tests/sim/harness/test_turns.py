"""Turns on the virtual clock: real programs behind the real shim, granted by the real arbiter."""

import os
import signal
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from harness import Tenant, play
from harness.tenants import Program, TenantGroup
from virtual_clock import VirtualClock

from gpumanager.limits.turns import AllocationTurns, Turns

pytestmark = pytest.mark.namespaces

POINT = 0.01


async def test_a_container_without_turns_keeps_its_share_beside_those_that_take_them() -> None:
    """Nothing tells its shim what runs beside it, so that it guesses what a launch takes."""
    text = "kernel=200us for=3s"
    old = Tenant("old", 30, text, ceiling=100, older=True)
    tenants = [old, Tenant("a", 50, text), Tenant("b", 20, text)]
    played = await play(tenants, 3.0)

    assert played.share("old", since=1) == pytest.approx(0.30, abs=4 * POINT)
    assert 0.80 * 0.50 < played.share("a", since=1) < 0.51
    assert 0.80 * 0.20 < played.share("b", since=1) < 0.21


async def test_beside_a_container_without_turns_those_that_take_them_have_their_shares() -> None:
    """Its time is not charged to them: they had 35 and 13 %. Its own bucket guesses what a launch
    takes, and gives it 24 % of 30."""
    text = "kernel=2ms for=6s"
    tenants = [Tenant("old", 30, text, older=True), Tenant("b", 50, text), Tenant("c", 20, text)]

    played = await play(tenants, 6.0)

    assert played.share("b", since=1) > 0.88 * 0.50
    assert played.share("c", since=1) > 0.88 * 0.20
    assert 0.22 < played.share("old", since=1) < 0.33


async def test_the_processes_of_a_container_have_one_turn() -> None:
    """What the GPU loses when it switches between them is theirs."""
    text = "kernel=200us for=2s"
    played = await play([Tenant("a", 30, text, processes=4), Tenant("b", 70, text)], 2.0)

    lost = sum(played.lost) / played.seconds
    assert lost < 3.5 * POINT
    assert 0.30 - lost - POINT < played.share("a", since=1) < 0.30 + POINT
    assert played.share("b", since=1) == pytest.approx(0.70, abs=2 * POINT)
    each = [told["kernels"] for told in played.reports["a"]["each"]]
    assert min(each) > 0.2 * max(each)


STREAMS = "kernel=200us streams=16 blocks=16 threads=256 for=2s"


async def test_streams_that_overlap_do_their_share_of_the_work() -> None:
    alone = await play([Tenant("a", 40, STREAMS)], 2.0, limiter="none")
    held = await play([Tenant("a", 40, STREAMS)], 2.0)

    done = held.reports["a"]["kernels"] / alone.reports["a"]["kernels"]
    bucket = 0.1 / 2.0
    assert 0.9 * 0.40 < done < 0.40 + bucket + POINT


@pytest.mark.parametrize("ranks", ["gpus=2", "processes=2"])
async def test_collectives_of_long_kernels_end(ranks: str) -> None:
    """With a neighbour on the same GPU: two of 20 ms that are in flight at the end of a turn."""
    text = f"kernel=20ms pattern=allreduce {ranks} blocks=264 threads=1024 for=2s"
    tenants = [Tenant("job", 50, text), Tenant("b", 30, "kernel=200us for=2s")]
    alone = await play(tenants[:1], 6.0, gpus=2, limiter="none")
    played = await play(tenants, 6.0, gpus=2)

    done = played.reports["job"]["kernels"] / alone.reports["job"]["kernels"]
    assert 0.8 * 0.50 < done < 0.53


def at_change(patch: pytest.MonkeyPatch, act: Callable[[Tenant], object]) -> None:
    """Do this where a tenant's guarantee would be made another in the middle of the run."""
    guarantee = TenantGroup.guarantee

    async def guaranteed(self: TenantGroup, tenant: Tenant) -> Any:
        if tenant.cores == 1:
            return act(tenant)
        return await guarantee(self, tenant)

    patch.setattr(TenantGroup, "guarantee", guaranteed)


def longest_pause(steps: Sequence[float], interval: float) -> float:
    """Seconds in which nothing was received."""
    longest = now = 0
    for step in steps:
        now = 0 if step > 0 else now + 1
        longest = max(longest, now)
    return longest * interval


@pytest.mark.parametrize(("victim", "at"), [(30, 1.0), (70, 1.003), (30, 1.017)])
async def test_when_one_is_killed_the_other_goes_on(
    monkeypatch: pytest.MonkeyPatch, victim: int, at: float
) -> None:
    programs: list[Program] = []
    begin, check = Program.begin, Program.check

    async def begun(self: Program, *words: Any) -> None:
        programs.append(self)
        await begin(self, *words)

    def kill(_: Tenant) -> None:
        (one,) = (program for program in programs if program.name == "victim-0")
        assert one._process is not None
        os.kill(one._process.pid, signal.SIGKILL)

    def checked(self: Program) -> None:
        if self.name != "victim-0":
            check(self)

    monkeypatch.setattr(Program, "begin", begun)
    monkeypatch.setattr(Program, "check", checked)
    at_change(monkeypatch, kill)

    interval = 0.001
    text = "kernel=2ms for=2s"
    tenants = [
        Tenant("victim", victim, text, changes=((at, 1),)),
        Tenant("other", 100 - victim, text, ceiling=100),
    ]
    played = await play(tenants, 2.0, interval=interval)

    after = played.busy["other"][round(at / interval) :]
    assert longest_pause(after[:900], interval) <= 0.020
    assert sum(after[100:900]) > 0.98 * 800 * interval


async def test_without_the_arbiter_each_goes_on_by_its_guarantee(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clocks: list[VirtualClock] = []
    made: list[Turns] = []
    world, init = VirtualClock.world, Turns.__init__
    stopped: list[bool] = []

    def seen(self: VirtualClock) -> int:
        clocks.append(self)
        return world(self)

    def initialised(self: Turns, *words: Any, **how: Any) -> None:
        made.append(self)
        init(self, *words, **how)

    def stop(_: Tenant) -> None:
        clocks[0].end_world()
        made[0].stop()
        stopped.append(True)

    def unless_stopped(tell: Callable[..., None]) -> Callable[..., None]:
        return lambda *words: None if stopped else tell(*words)

    monkeypatch.setattr(VirtualClock, "world", seen)
    monkeypatch.setattr(Turns, "__init__", initialised)
    for name in ("close", "remove"):
        monkeypatch.setattr(AllocationTurns, name, unless_stopped(getattr(AllocationTurns, name)))
    at_change(monkeypatch, stop)
    interval = 0.01
    tenants = [
        Tenant("a", 30, "kernel=200us for=3s", changes=((1.0, 1),)),
        Tenant("b", 70, "kernel=200us for=3s"),
    ]
    played = await play(tenants, 3.0, interval=interval, managed=False)
    assert stopped

    for name, share in (("a", 0.30), ("b", 0.70)):
        assert longest_pause(played.busy[name][100:], interval) <= 0.100
        assert 0.5 * share < played.share(name, since=1.2) < 1.3 * share


async def test_a_trainer_at_its_limit_does_not_run_further_ahead() -> None:
    """Its ceiling holds it back, and not its window. That grew to 40 ms: requests took 22 ms."""
    full = "blocks=264 threads=1024"
    service = f"kernel=200us pattern=poisson count=15 every=10ms seed=7 {full} for=8s"
    trainer = f"kernel=200us ahead=80ms host=15ms {full} for=8s"

    tenants = [Tenant("service", 50, service), Tenant("trainer", 50, trainer)]
    played = await play(tenants, 8.0, wake_ns=50_000)

    assert played.reports["service"]["phases"][0]["delay_p99_us"] < 15_000
    assert played.share("trainer", since=2) > 0.98 * 0.50
