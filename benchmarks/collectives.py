"""What a job that computes and exchanges in turn gets of its guarantee, on SIMULATED GPUs.

    python benchmarks/collectives.py [--driver ideal|real] [--share PERCENT] [--gpus N]
                                     [--kernel LENGTH]... [--seconds S]

Each round of the job is a kernel on each of N GPUs and then an all-reduce, whose kernels spin
until all have begun, as NCCL's do: by one process for all GPUs, or by one for each. *Rounds* are
those of the job behind the shim, in percent of those of the same job without a limiter: with half
of all GPUs it cannot have more than 50. *Received* is its part of the GPUs' time by their own
account in the seconds of work; what is not rounds of that was spun away. *Longest*: from the launch
of a round to its end. Virtual clock: a run can be repeated.
"""

import argparse
import asyncio
from dataclasses import dataclass
from itertools import product

from harness import HarnessResult, Tenant, play
from harness.tenants import LimiterKind
from machine_line import machine_line

from gpumanager.sim.machine import BEHAVIOURS, DEFAULT_BEHAVIOUR, DriverBehaviour

AFTER = 15.0
"""Seconds for the last rounds to end."""

KERNELS = ("50us", "200us", "1ms", "20ms")
WAYS = {"one process": "gpus", "a process for each GPU": "processes"}
SHAPE = "blocks=264 threads=1024"


@dataclass(frozen=True, slots=True)
class Machine:
    """gpus: how many the job has. seconds: of work."""

    gpus: int
    driver: DriverBehaviour
    seconds: float

    async def run(self, job: Tenant, limiter: LimiterKind, *, crowded: bool) -> HarnessResult:
        """The neighbour is on the first GPU only."""
        text = f"kernel=1ms {SHAPE} for={self.seconds:g}s"
        tenants = [job, Tenant("neighbour", 30, text)] if crowded else [job]
        end = self.seconds + AFTER
        return await play(tenants, end, driver=self.driver, gpus=self.gpus, limiter=limiter)

    def rounds(self, played: HarnessResult) -> float:
        """In a second."""
        told = played.reports["job"]
        return float(told["kernels"] / (2 * self.gpus) / told["seconds"])


async def main() -> None:
    parser = argparse.ArgumentParser(description="Collectives under a limit, simulated.")
    parser.add_argument("--driver", choices=BEHAVIOURS)
    parser.add_argument("--share", type=int, default=50, metavar="PERCENT")
    parser.add_argument("--gpus", type=int, default=2, metavar="N")
    parser.add_argument("--kernel", action="append", metavar="LENGTH", choices=KERNELS)
    parser.add_argument("--seconds", type=float, default=5.0)
    given = parser.parse_args()
    driver = BEHAVIOURS[given.driver] if given.driver else DEFAULT_BEHAVIOUR
    machine = Machine(given.gpus, driver, given.seconds)
    print(f"{machine_line()}; SIMULATED GPUs, virtual clock; guaranteed {given.share} % of each")
    print(f"{f'{given.gpus} GPUs':50} {'rounds, %':>10} {'received, %':>12} {'longest, ms':>14}")
    for kernel, way in product(given.kernel or KERNELS, WAYS):
        text = f"kernel={kernel} pattern=allreduce {WAYS[way]}={given.gpus} {SHAPE}"
        job = Tenant("job", given.share, f"{text} for={given.seconds:g}s")
        free = machine.rounds(await machine.run(job, "none", crowded=False))
        for crowded in (False, True):
            held = await machine.run(job, "shim", crowded=crowded)
            share = 100 * held.share("job", until=given.seconds) / given.gpus
            late = held.reports["job"]["delay_max_us"] / 1000
            part = 100 * machine.rounds(held) / free
            name = f"{kernel}, {way}{', beside a neighbour' if crowded else ''}"
            print(f"{name:50} {part:10.1f} {share:12.1f} {late:14.1f}", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
