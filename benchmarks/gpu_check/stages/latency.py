"""What a service's users wait beside training: alone, without a limiter, and behind the shim.

Two tenants as users have them (programs/tenants.c): requests of 15 kernels of 200 µs at random
times, for 60 % of the service's share, and training that never waits. Without the shim, time slices
of the GPU decide. How long users wait is a figure; what is judged is that the figures can be true:
the requests came, none was faster than its kernels, and training went on.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gpu_check.bench import Bench, program
from gpu_check.conductor import Check
from gpu_check.outcome import Finding, Verdict, passed_if
from gpu_check.place import WHOLE, Place
from gpu_check.process import lines_of

KERNELS, MICROS = 15, 200
"""Of a request."""

LOAD: Final = 0.6
"""Of its share that a service asks for."""

TOGETHER: Final = -1.0
"""A request's kernels are waited for together; or microseconds of the host behind each."""

START_SECONDS: Final = 1.5
"""Until both have their contexts and wait for the moment at which they begin."""

REQUESTS: Final = 200
"""So many at least, so that the slowest hundredth is some."""

SECONDS: Final = 10.0
NEARLY: Final = 0.9
ALONE: Final = "alone"


@dataclass(frozen=True, slots=True)
class Row:
    """share: the service's; training has the rest. kernels of so many micros are a step of it."""

    share: int
    kernels: int
    micros: int
    host_us: float = TOGETHER

    @property
    def text(self) -> str:
        asked = "requests" if self.host_us < 0 else "decoding"
        return f"{asked} at {self.share} %, training of kernels of {self.micros} us"

    @property
    def rate(self) -> float:
        """Requests a second."""
        return LOAD * self.share / WHOLE / (KERNELS * MICROS * 1e-6)

    @property
    def seconds(self) -> float:
        return min(SECONDS, 1 + REQUESTS / self.rate)


ROWS: Final = (Row(50, 100, 200), Row(50, 100, 200, host_us=20.0), Row(20, 100, 200))

Setting = Mapping[str, str]
"""The environment of a tenant's program."""


@dataclass(frozen=True, slots=True)
class Tenants:
    """The program, and the rounds of a kernel of one microsecond on this GPU."""

    path: Path
    place: Place
    rounds: float

    async def play(
        self, row: Row, service: Setting, training: Setting | None
    ) -> tuple[Mapping[str, Any], float]:
        """What the service tells, and training's part of the GPU in percent; None: it is alone."""
        begin, seconds = time.monotonic_ns() + int(START_SECONDS * 1e9), f"{row.seconds:.3f}"
        size, asked = round(self.rounds * MICROS), (f"{row.rate:.6f}", f"{row.host_us:g}")
        serve = ["serve", str(begin), seconds, str(KERNELS), str(size), *asked]
        size = round(self.rounds * row.micros)
        train = ["train", str(begin), seconds, str(row.kernels), str(size)]
        both = [self._told("serve", serve, service, row)]
        if training is not None:
            both.append(self._told("train", train, training, row))
        served, *trained = await asyncio.gather(*both)
        parts = (one["kernels"] * row.micros * 1e-6 / one["seconds"] for one in trained)
        return served, WHOLE * sum(parts)

    async def _told(
        self, name: str, words: Sequence[str], setting: Setting, row: Row
    ) -> Mapping[str, Any]:
        bound = START_SECONDS + 3 * row.seconds + 10
        lines = await lines_of([self.path, *words], setting, self.place.output(name), bound)
        told: Mapping[str, Any] = json.loads(lines[-1])
        return told


async def tenants(bench: Bench) -> Tenants:
    """Calibrated without the shim."""
    place, path = await bench.place(), program("tenants", bench.work)
    asked: list[str | Path] = [path, "calibrate", str(MICROS)]
    lines = await lines_of(asked, place.outside(), place.output("calibrate"), 20.0)
    return Tenants(path, place, json.loads(lines[-1])["rounds"] / MICROS)


async def latency(bench: Bench) -> AsyncIterator[Finding]:
    """A finding for each row; raises CheckFailed and Lost."""
    both = await tenants(bench)
    place, bare = both.place, both.place.outside()
    for row in ROWS:
        service = await place.limit(row.share, room="a")
        training = await place.limit(WHOLE - row.share, room="b")
        seen = {
            ALONE: await both.play(row, bare, None),
            "no limiter": await both.play(row, bare, bare),
            "shim": await both.play(row, place.inside(service), place.inside(training)),
        }
        place.require_books([service, training])
        yield judged(row, seen)


def judged(row: Row, seen: Mapping[str, tuple[Mapping[str, Any], float]]) -> Finding:
    """By setting: what the service told, and training's percent."""
    said = "; ".join(
        f"{setting}: p50 {served.get('p50_ms', 0):.1f}, p99 {served.get('p99_ms', 0):.1f} ms"
        + (f", training {part:.1f} %" if part else "")
        for setting, (served, part) in seen.items()
    )
    figures = {name: {**served, "training": part} for name, (served, part) in seen.items()}
    expected, least_ms = row.rate * (row.seconds - 1), KERNELS * MICROS * 1e-3
    conditions = {
        "the requests came": all(one["requests"] > expected / 2 for one, _ in seen.values()),
        "none was faster than its kernels": all(
            one.get("p50_ms", 0) > NEARLY * least_ms for one, _ in seen.values()
        ),
        "training went on beside them": all(
            part > 0 for name, (_, part) in seen.items() if name != ALONE
        ),
    }
    found = passed_if(conditions, said, figures)
    verdict = Verdict.FIGURE if found.verdict is Verdict.PASS else found.verdict
    return Finding(verdict, found.said, figures, row.text)


CHECKS: Final = (Check("latency", 90, latency),)
