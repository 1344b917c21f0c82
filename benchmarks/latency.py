"""Latency of a service beside a trainer, on a SIMULATED GPU: `python benchmarks/latency.py --help`.

The service answers requests that arrive at random, whether or not the ones before have ended; its
latency is counted from the arrival. The trainer always has work. Both are real processes behind
the real shim and manager, on the virtual clock, so that a run is repeatable. The trainer has the
rest of the GPU guaranteed. Of several services the figures are those of the slowest.
"""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from harness import HarnessResult, Tenant, play
from machine_line import machine_line

from gpumanager.errors import GpuManagerError
from gpumanager.sim.machine import REAL, DriverBehaviour

DESCRIPTION = "Latency of a service beside a trainer, on a simulated GPU."
NOTE = """SIMULATED GPU, virtual clock. Real processes, the real shim and manager.
It compares limiters against a model of a GPU, not how a real GPU divides its time."""

SHAPE = "streams=1 blocks=264 threads=1024"
"""Each kernel fills the GPU."""

TRAINERS = {
    **{f"{one}": f"kernel={one} ahead=80ms" for one in ("50us", "200us", "2ms", "10ms", "40ms")},
    "graphs": "kernel=200us pattern=graph count=25 ahead=10ms",
}
"""Steps of 40 ms, or graphs of 5 ms, with two steps in flight."""

WARM_UP_SECONDS = 2
"""At the begin, not in the figures."""

DECODING_HOST_US = 20
UNLIMITED = ("alone", "none")
US = 1000


@dataclass(frozen=True, slots=True)
class Case:
    """One cell of the table. share: percent guaranteed to the service."""

    share: int
    trainer: str
    limiter: str
    ceiling: str


@dataclass(frozen=True, slots=True)
class Row:
    """What was measured: milliseconds, and percent of the GPU's time. ratio: of p99 to alone,
    None if the service alone has no figures."""

    share: int
    trainer: str
    limiter: str
    ceiling: str
    p50: float
    p90: float
    p99: float
    ratio: float | None
    service: float
    trained: float
    lost: float


def options(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=DESCRIPTION)
    add = parser.add_argument
    add("--ceilings", type=names(("hard", "elastic")), default=["hard"], help="hard,elastic")
    add("--shares", type=numbers(1, 99), default=[10, 20, 30, 50, 70], help="percent; 10,50")
    add("--services", type=int, default=1, help="so many, each with its share")
    add("--trainers", type=names(TRAINERS), default=["200us"], help=",".join(TRAINERS))
    add("--kernels", type=int, default=15, help="of each request")
    add("--kernel-us", type=int, default=200, metavar="US", help="length of each")
    add("--decode", action="store_true", help="the service waits for each kernel")
    add("--load", type=int, default=60, metavar="PERCENT", help="of the service's share")
    add("--host-ms", type=int, default=0, metavar="MS", help="the trainer's host time a step")
    add("--wake", type=int, metavar="US", help="how long a woken thread takes to go on")
    add("--slice", type=int, metavar="US", help="the GPU's time slice, of a real driver's GPU")
    add("--switch", type=int, metavar="US", help="what it loses at a switch between processes")
    add("--seconds", type=int, default=20, help=f"more than {WARM_UP_SECONDS}, which do not count")
    add("--seed", type=int, default=7, help="of the arrivals")
    add("--json", type=Path, metavar="FILE", help="write all figures there")
    given = parser.parse_args(words)
    if given.seconds <= WARM_UP_SECONDS:
        parser.error(f"--seconds: more than {WARM_UP_SECONDS}")
    if min(given.kernels, given.kernel_us, given.load, given.services) < 1:
        parser.error("--kernels, --kernel-us, --load, --services: 1 or more")
    if given.services * max(given.shares) > 100:
        parser.error("--services: their shares are more than a GPU")
    return given


def names(known: Iterable[str]) -> Callable[[str], list[str]]:
    def read(text: str) -> list[str]:
        found = text.split(",")
        if unknown := [one for one in found if one not in known]:
            raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(known)}")
        return found

    return read


def numbers(least: int, most: int) -> Callable[[str], list[int]]:
    def read(text: str) -> list[int]:
        found = text.split(",")
        if any(not one.isdecimal() or not least <= int(one) <= most for one in found):
            raise argparse.ArgumentTypeError(f"{text!r} is not numbers from {least} to {most}")
        return [int(one) for one in found]

    return read


def service_text(given: argparse.Namespace, share: int, number: int = 0) -> str:
    """Two phases, of which the second counts."""
    seed = given.seed + 2 * number
    busy_us = given.kernels * given.kernel_us
    every = round(busy_us * 10_000 / (given.load * share))
    words = f"kernel={given.kernel_us}us pattern=poisson count={given.kernels} every={every}us"
    if given.decode:
        words += f" sync=1 host={DECODING_HOST_US}us"
    words += f" {SHAPE}"
    counted = given.seconds - WARM_UP_SECONDS
    return f"{words} seed={seed} for={WARM_UP_SECONDS}s; {words} seed={seed + 1} for={counted}s"


def trainer_text(given: argparse.Namespace, trainer: str) -> str:
    return f"{TRAINERS[trainer]} host={given.host_ms}ms {SHAPE} for={given.seconds}s"


def cases(given: argparse.Namespace) -> Iterator[Case]:
    """Alone first: the others are compared with it."""
    for share, trainer in product(given.shares, given.trainers):
        yield from (Case(share, trainer, limiter, "-") for limiter in UNLIMITED)
        yield from (Case(share, trainer, "shim", ceiling) for ceiling in given.ceilings)


def driver(given: argparse.Namespace) -> DriverBehaviour | None:
    """None: as the machine has it."""
    asked = {"slice_ns": given.slice, "switch_ns": given.switch}
    chosen = {name: us * US for name, us in asked.items() if us is not None}
    return replace(REAL, **chosen) if chosen else None


async def measure(given: argparse.Namespace, case: Case) -> HarnessResult:
    ceiling = 100 if case.ceiling == "elastic" else None
    count = 1 if case.limiter == "alone" else given.services
    tenants = [
        Tenant(f"service-{at}", case.share, service_text(given, case.share, at), ceiling)
        for at in range(count)
    ]
    rest = 100 - count * case.share
    if case.limiter != "alone" and rest > 0:
        tenants.append(Tenant("trainer", rest, trainer_text(given, case.trainer), ceiling))
    return await play(
        tenants,
        given.seconds,
        driver=driver(given),
        limiter="shim" if case.limiter == "shim" else "none",
        wake_ns=None if given.wake is None else given.wake * US,
    )


def row(case: Case, played: HarnessResult, alone: Row | None) -> Row:
    """Raises GpuManagerError if a service has not ended, and so has no figures."""
    services = [name for name in played.busy if name != "trainer"]
    if any("phases" not in played.reports[name] for name in services):
        raise GpuManagerError("the service had requests left when it was ended")
    counted = [played.reports[name]["phases"][1] for name in services]
    p50, p90, p99 = (
        max(one[f"delay_{part}_us"] for one in counted) / 1000 for part in ("p50", "p90", "p99")
    )
    trains = "trainer" in played.busy
    return Row(
        **asdict(case),
        p50=p50,
        p90=p90,
        p99=p99,
        ratio=p99 / alone.p99 if alone else None,
        service=100 * sum(played.share(name, WARM_UP_SECONDS) for name in services),
        trained=100 * played.share("trainer", WARM_UP_SECONDS) if trains else 0.0,
        lost=100 * sum(played.lost) / played.seconds,
    )


HEADING = (
    f"{'simulated':<10}{'':<20}|{'latency, ms':^25}|{'p99 to':>7} |{'% of GPU time':^25}\n"
    f"{'share':<6}{'trainer':<8}{'limiter':<16}|{'p50':>8}{'p90':>8}{'p99':>8} |{'alone':>7} |"
    f"{'service':>8}{'trainer':>9}{'lost':>7}"
)


def shown(one: Row) -> str:
    limiter = one.limiter if one.ceiling == "-" else f"{one.limiter}, {one.ceiling}"
    ratio = "-" if one.ratio is None else f"{one.ratio:.2f}"
    trained = "-" if one.trained == 0 else f"{one.trained:.1f}"
    return (
        f"{one.share:<6}{one.trainer:<8}{limiter:<16}|{one.p50:8.1f}{one.p90:8.1f}{one.p99:8.1f} |"
        f"{ratio:>7} |{one.service:8.1f}{trained:>9}{one.lost:7.1f}"
    )


def describe(given: argparse.Namespace) -> str:
    each = ", each waited for" if given.decode else ""
    wake = "" if given.wake is None else f"; wakes of {given.wake} us"
    host = f"; {given.host_ms} ms of host time a step of the trainer" if given.host_ms else ""
    gpu = "".join(
        f"; {what} of {us} us"
        for what, us in (("slices", given.slice), ("switches", given.switch))
        if us is not None
    )
    several = f"{given.services} services; " if given.services > 1 else ""
    return (
        f"{several}requests of {given.kernels} x {given.kernel_us} us{each}, {given.load} % of the "
        f"service's share, {given.seconds} s{host}{wake}{gpu}"
    )


def document(given: argparse.Namespace, rows: Sequence[Row]) -> Mapping[str, Any]:
    settings = {name: value for name, value in vars(given).items() if name != "json"}
    return {
        "machine": machine_line(),
        "simulated": True,
        "clock": "virtual",
        "options": settings,
        "rows": [asdict(one) for one in rows],
    }


async def bench(given: argparse.Namespace) -> int:
    """1 if a case failed; the others are measured all the same."""
    print(f"{machine_line()}; virtual clock\n{NOTE}\n{describe(given)}\n\n{HEADING}", flush=True)
    rows: list[Row] = []
    alone: Row | None = None
    failed = False
    begin = time.monotonic()
    for case in cases(given):
        if case.limiter == "alone":
            alone = None
        try:
            one = row(case, await measure(given, case), alone)
            if case.limiter == "alone":
                alone = one = replace(one, ratio=1.0)
        except GpuManagerError as error:
            failed = True
            print(f"{case.share:<6}{case.trainer:<8}{case.limiter}: {error}", flush=True)
            continue
        rows.append(one)
        print(shown(one), flush=True)
    print(f"\n{time.monotonic() - begin:.0f} s")
    if given.json:
        given.json.write_text(json.dumps(document(given, rows), indent=1) + "\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(asyncio.run(bench(options(sys.argv[1:]))))
