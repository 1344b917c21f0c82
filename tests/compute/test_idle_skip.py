"""A GPU on which nothing happens is left alone, and nobody can tell from what he is granted."""

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from gpumanager.compute.shares import RENEWED_NS, STILL_NS, SharedGpu, Shares
from gpumanager.compute.values import Holder, Reading, ShareLease
from gpumanager.gpu.usage.samples import GpuUtilization, ProcessSample
from tests.compute.model_node import GPU, TICK

BEGIN = 10**12
LONG = STILL_NS // TICK + 20
"""Looks after which nobody is awake."""
NAMES = ("a", "b", "c")


def reading(name: str, charged: int = 0, pid: int = 0, ceiling: float = 0.3) -> Reading:
    pids = frozenset({pid} if pid else ())
    return Reading((name, 0), GPU, 0.3, ceiling, pids, BEGIN + charged, charged, charged, 0)


class Sleepless(SharedGpu):
    """Takes every look."""

    def tick(
        self, now: int, readings: Sequence[Reading], answer: GpuUtilization | None
    ) -> dict[Holder, ShareLease]:
        return self._work(now, readings, answer)


def still(node: Shares, looks: int, *readings: Reading, since: int = BEGIN) -> list[int]:
    """How many were granted something at each look."""
    return [len(node.tick(since + n * TICK, readings, {})) for n in range(looks)]


def test_a_gpu_on_which_nothing_happened_for_long_is_looked_at_no_more() -> None:
    granted = still(Shares(), LONG, reading("a"), reading("b"))

    assert granted[:10] == [2] * 10
    assert 0 in granted[-RENEWED_NS // TICK :]


def test_what_was_granted_is_renewed_before_the_lease_ends() -> None:
    granted = still(Shares(), 2 * LONG, reading("a"), reading("b"))

    gaps = "".join("x" if one else "." for one in granted[LONG:]).split("x")
    assert max(map(len, gaps)) < RENEWED_NS // TICK


def test_whoever_stirs_is_seen_at_that_very_look() -> None:
    node = Shares()
    still(node, LONG, reading("a"), reading("b"))

    grants = node.tick(BEGIN + LONG * TICK, [reading("a", charged=TICK // 10), reading("b")], {})

    assert set(grants) == {("a", 0), ("b", 0)}


def test_a_stranger_on_the_gpu_wakes_it() -> None:
    node = Shares()
    still(node, LONG, reading("a"))
    now = BEGIN + LONG * TICK

    grants = node.tick(
        now, [reading("a")], {GPU: GpuUtilization(now, (ProcessSample(99, now, 50),), 50)}
    )

    assert set(grants) == {("a", 0)}


steps = st.lists(
    st.tuples(
        st.sampled_from((1, 3, 30, LONG, LONG + 7)),  # looks
        st.dictionaries(st.sampled_from(NAMES), st.integers(1, TICK), max_size=2),  # charges
        st.booleans(),  # whether the driver tells
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=60, deadline=None)
@given(steps, st.sampled_from((0.3, 1.0)))
def test_all_get_what_they_would_get_if_every_look_were_taken(
    history: list[tuple[int, dict[str, int], bool]], ceiling: float
) -> None:
    sleeper, sleepless = SharedGpu(), Sleepless()
    now, charged = BEGIN, dict.fromkeys(NAMES, 0)
    standing: dict[Holder, ShareLease] = {}
    for looks, charges, tells in history:
        for name, amount in charges.items():
            charged[name] += amount
        samples = tuple(
            ProcessSample(pid, now, 50) for pid, name in enumerate(NAMES, 1) if name in charges
        )
        for look in range(looks):
            now += TICK
            readings = [reading(n, charged[n], pid, ceiling) for pid, n in enumerate(NAMES, 1)]
            answer = GpuUtilization(now, () if look else samples, 0 if look or not samples else 50)
            told = answer if tells else None
            granted = sleeper.tick(now, readings, told)
            every = sleepless.tick(now, readings, told)
            assert granted in ({}, every)
            standing |= granted
            assert unpaid(standing) == unpaid(every)


def unpaid(grants: dict[Holder, ShareLease]) -> dict[Holder, ShareLease]:
    """Without what is charged once."""
    return {holder: replace(grant, debt_ns=0) for holder, grant in grants.items()}
