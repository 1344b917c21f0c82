"""Turns on the virtual clock: real programs behind the real shim, granted by the real arbiter."""

from collections.abc import Sequence
from typing import Any

import pytest

from gpumanager.sim.container.process import namespaces_available
from gpumanager.sim.harness import HarnessResult, Tenant, play

MISSING = namespaces_available()
pytestmark = [
    pytest.mark.namespaces,
    pytest.mark.skipif(MISSING is not None, reason=MISSING or ""),
]

POINT = 0.01


async def turns(tenants: Sequence[Tenant], seconds: float, **how: Any) -> HarnessResult:
    return await play(tenants, seconds, limiter="turns", **how)


def two(text: str, more: str = "") -> list[Tenant]:
    return [Tenant("a", 30, f"{text} {more} for=3s"), Tenant("b", 70, f"{text} for=3s")]


@pytest.mark.parametrize(
    ("text", "more"),
    [
        pytest.param("kernel=200us", "", id="200 us"),
        pytest.param("kernel=2ms", "", id="2 ms"),
        pytest.param("kernel=50us pattern=graph count=40", "", id="captured graphs"),
        pytest.param("kernel=200us", "ahead=60s", id="one never synchronises"),
        pytest.param("kernel=200us ptsz=1", "", id="the threads' own default streams"),
    ],
)
async def test_two_that_want_all_of_it_have_their_shares(text: str, more: str) -> None:
    played = await turns(two(text, more), 3.0)

    assert played.share("a", since=1) == pytest.approx(0.30, abs=POINT)
    assert played.share("b", since=1) == pytest.approx(0.70, abs=POINT)


async def test_played_twice_it_is_the_same_to_the_nanosecond() -> None:
    first, second = [await turns(two("kernel=200us"), 1.0) for _ in range(2)]

    assert first == second


async def test_four_tenants_have_their_shares() -> None:
    shares = (10, 20, 30, 40)
    played = await turns([Tenant(f"{it}", it, "kernel=200us for=3s") for it in shares], 3.0)

    for it in shares:
        assert played.share(f"{it}", since=1) == pytest.approx(it / 100, abs=POINT)


@pytest.mark.parametrize(
    ("kernel", "seconds"), [("50us", 2.0), ("200us", 3.0), ("2ms", 3.0), ("40ms", 5.0)]
)
async def test_a_ceiling_holds_whoever_is_alone(kernel: str, seconds: float) -> None:
    played = await turns([Tenant("a", 30, f"kernel={kernel} for={seconds:g}s")], seconds)

    assert played.share("a", since=1) == pytest.approx(0.30, abs=POINT)


async def test_the_processes_of_a_container_have_one_turn() -> None:
    crowd = Tenant("a", 30, "kernel=200us for=3s", processes=4)
    played = await turns([crowd, Tenant("b", 70, "kernel=200us for=3s")], 3.0)

    assert played.share("a", since=1) == pytest.approx(0.30, abs=2 * POINT)
    assert played.share("b", since=1) == pytest.approx(0.70, abs=2 * POINT)
    each = [told["kernels"] for told in played.reports["a"]["each"]]
    assert min(each) > 0.5 * max(each)


STREAMS = "kernel=200us streams=16 blocks=16 threads=256 for=2s"


@pytest.mark.xfail(
    reason="what ran side by side counts as in flight, and is charged, for much longer than it was",
    raises=AssertionError,
    strict=True,
)
async def test_streams_that_overlap_do_their_share_of_the_work() -> None:
    alone = await play([Tenant("a", 40, STREAMS)], 2.0, limiter="none")
    held = await turns([Tenant("a", 40, STREAMS)], 2.0)

    done = held.reports["a"]["kernels"] / alone.reports["a"]["kernels"]
    assert 0.9 * 0.40 < done < 1.03 * 0.40


SLOW_ROUNDS = pytest.mark.xfail(
    reason="the turns of two GPUs that share a collective do not meet: 9 and 17 % of the rounds",
    raises=AssertionError,
    strict=True,
)


@pytest.mark.parametrize(
    ("kernel", "ranks"),
    [
        ("50us", "gpus=2"),
        ("1ms", "gpus=2"),
        ("20ms", "gpus=2"),
        pytest.param("50us", "processes=2", marks=SLOW_ROUNDS),
        pytest.param("1ms", "processes=2", marks=SLOW_ROUNDS),
        ("20ms", "processes=2"),
    ],
)
async def test_collectives_of_two_gpus_end(kernel: str, ranks: str) -> None:
    """With a neighbour on the same GPUs, so that turns are taken back in the middle."""
    text = f"kernel={kernel} pattern=allreduce {ranks} blocks=264 threads=1024 for=2s"
    tenants = [Tenant("job", 50, text), Tenant("b", 30, "kernel=200us for=2s")]
    alone = await play(tenants[:1], 6.0, gpus=2, limiter="none")
    played = await turns(tenants, 6.0, gpus=2)

    done = played.reports["job"]["kernels"] / alone.reports["job"]["kernels"]
    assert 0.2 < done < 0.53
