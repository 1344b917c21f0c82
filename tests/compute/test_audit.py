"""Who takes much more GPU time than it pays for, by samples that name one process each."""

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpumanager.compute.audit import GROSS, SECOND, Audit, Payer
from gpumanager.gpu.usage.samples import GpuUtilization, ProcessSample

PERIOD = SECOND // 6
STEP = SECOND // 60


@dataclass
class Tenant:
    """Takes a share of the time in kernels of a length, and pays a part of it as it takes it."""

    name: str
    share: float
    pays: float = 1.0
    kernel: int = STEP
    took: float = 0.0
    running: float = 0.0
    charged: float = 0.0
    owed: float = 0.0

    @property
    def pid(self) -> int:
        return ord(self.name)

    def work(self, now: int) -> None:
        """Begin a kernel whenever its share allows."""
        if self.running <= 0 and self.took + self.owed <= self.share * now:
            self.running = float(self.kernel)

    def run(self, step: float) -> None:
        self.running -= step
        self.took += step
        self.charged += step * self.pays


@dataclass
class Gpu:
    """Time slices among tenants with work; a driver that names one process in a sixth of a second,
    asked every half second or so."""

    tenants: list[Tenant]
    asked_every: int = SECOND // 2
    strangers: float = 0.0
    seed: int = 0
    now: int = 0
    audit: Audit = field(default_factory=Audit)
    collected: dict[str, float] = field(default_factory=dict)

    def run(self, seconds: float) -> None:
        chance = random.Random(self.seed)
        busy, percent = 0, 0
        samples: list[ProcessSample] = []
        winner: int | None = None
        now, until = self.now, self.now + seconds * SECOND
        taken, asked = now + chance.randrange(PERIOD), now + self.asked_every
        while now < until:
            now += STEP
            for tenant in self.tenants:
                tenant.work(now)
            working = [one for one in self.tenants if one.running > 0]
            pid: int | None = None
            if chance.random() < self.strangers:
                pid = 9
            elif working:
                turn = working[(now // STEP) % len(working)]
                turn.run(STEP)
                pid = turn.pid
            busy += STEP if pid is not None else 0
            if now - STEP <= taken < now:
                winner = pid
            if now % PERIOD < STEP:
                percent = min(100, 100 * busy // PERIOD)
                if winner is not None and percent:
                    samples.append(ProcessSample(winner, now, percent))
                busy, winner, taken = 0, None, now + chance.randrange(PERIOD)
            if now >= asked:
                asked = now + self.asked_every + chance.randrange(SECOND // 10)
                self._ask(now, samples, percent)
                samples = []
        self.now = now

    def _ask(self, now: int, samples: list[ProcessSample], percent: int) -> None:
        """NVML's answer: each process with its own last stamp, and a mean over all new samples."""
        rows = {
            one.pid: ProcessSample(
                one.pid, one.ended_ns, sum(s.percent for s in samples if s.pid == one.pid)
                // len(samples)
            )
            for one in samples
        }  # fmt: skip
        payers = [
            Payer((one.name, 0), frozenset([one.pid]), round(one.charged + one.owed))
            for one in self.tenants
        ]
        for (name, _), debt in self.audit.enter(
            GpuUtilization(now, tuple(rows.values()), percent), payers
        ).items():
            (tenant,) = (one for one in self.tenants if one.name == name)
            tenant.owed += debt
            self.collected[name] = self.collected.get(name, 0.0) + debt


def unpaid(tenant: Tenant) -> float:
    return tenant.took - tenant.charged - tenant.owed


@st.composite
def honest(draw: st.DrawFn) -> list[Tenant]:
    """Up to four, who fit on a GPU."""
    shares = draw(st.lists(st.integers(5, 60), min_size=1, max_size=4))
    while sum(shares) > 95:
        shares.pop()
    lengths = st.sampled_from([STEP, 3 * STEP, 9 * STEP, 30 * STEP, 300 * STEP])
    return [
        Tenant(name, share / 100, kernel=draw(lengths))
        for name, share in zip("abcd", shares, strict=False)
    ]


@settings(max_examples=20, deadline=None)
@given(honest(), st.sampled_from([SECOND // 10, SECOND // 2, 2 * SECOND]), st.integers(0, 1000))
def test_who_pays_is_never_charged_in_the_end(
    tenants: list[Tenant], asked_every: int, seed: int
) -> None:
    gpu = Gpu(tenants, asked_every, seed=seed)

    gpu.run(120)

    assert gpu.collected == {}


@pytest.mark.parametrize("pays", [0.0, 0.2, 0.5])
def test_who_pays_for_a_part_is_charged_for_most_of_the_rest(pays: float) -> None:
    cheat, other = Tenant("a", 0.6, pays), Tenant("b", 0.3)
    gpu = Gpu([cheat, other])
    gpu.run(120)
    before = unpaid(cheat), cheat.took

    gpu.run(120)

    # beside the tenth: draws that fall on an idle moment, and the bound that still grows
    assert unpaid(cheat) - before[0] < 2 * GROSS * 120 * SECOND
    assert gpu.collected.get("b", 0.0) == 0


def test_who_pays_nothing_is_found_out_within_a_few_seconds() -> None:
    cheat = Tenant("a", 0.6, 0.0)
    gpu = Gpu([cheat, Tenant("b", 0.3)])

    gpu.run(10)

    assert cheat.owed > 0
    assert gpu.collected == {"a": cheat.owed}


def test_who_pays_for_nearly_all_is_left_alone() -> None:
    gpu = Gpu([Tenant("a", 0.6, 1 - GROSS), Tenant("b", 0.3)])

    gpu.run(300)

    assert gpu.collected == {}


def test_a_process_of_no_container_is_charged_to_nobody() -> None:
    gpu = Gpu([Tenant("a", 0.2), Tenant("b", 0.3)], strangers=0.5)

    gpu.run(120)

    assert gpu.collected == {}


def test_a_driver_that_never_tells_finds_nobody() -> None:
    audit = Audit()

    for number in range(100):
        payer = Payer(("a", 0), frozenset([1]), 0)
        assert audit.enter(GpuUtilization(number * SECOND // 2, None, 100), [payer]) == {}
