"""What a job that computes and exchanges in turn gets of its promise, on SIMULATED GPUs.

    python benchmarks/collectives.py [--driver ideal|real] [--share PERCENT]

Each round of the job is a kernel on each of two GPUs and then an all-reduce, whose kernels spin
until both have begun, as NCCL's do: by one process for both GPUs, or by one for each. *Rounds* are
those of the job behind the shim, in percent of those of the same job without a limiter: with half
of both GPUs it cannot have more than 50. *Received* is its part of the GPUs' time by their own
account in the five seconds; what is not rounds of that was spun away. *Longest*: from the launch of
a round to its end. Virtual clock: a run can be repeated.
"""

import argparse
import asyncio
from itertools import product

from machine_line import machine_line

from gpumanager.sim.machine import BEHAVIOURS, DEFAULT_BEHAVIOUR, DriverBehaviour
from gpumanager.sim.stage import Played, Tenant, play
from gpumanager.sim.stage.company import LimiterKind

SECONDS, AFTER = 5.0, 15.0
"""Of work, and for the last rounds to end."""

GPUS = 2
KERNELS = ("200us", "1ms", "20ms")
WAYS = {"one process": "gpus=2", "a process for each GPU": "processes=2"}
SHAPE = "blocks=264 threads=1024"
NEIGHBOUR = Tenant("neighbour", 30, f"kernel=1ms {SHAPE} for={SECONDS:g}s")
"""On the first GPU only."""


async def run(
    job: Tenant, driver: DriverBehaviour, limiter: LimiterKind, *, crowded: bool
) -> Played:
    tenants = [job, NEIGHBOUR] if crowded else [job]
    return await play(tenants, SECONDS + AFTER, driver=driver, gpus=GPUS, limiter=limiter)


def rounds(played: Played) -> float:
    """In a second."""
    told = played.reports["job"]
    return float(told["kernels"] / (2 * GPUS) / told["seconds"])


async def main() -> None:
    parser = argparse.ArgumentParser(description="Collectives under a limit, simulated.")
    parser.add_argument("--driver", choices=BEHAVIOURS)
    parser.add_argument("--share", type=int, default=50, metavar="PERCENT")
    given = parser.parse_args()
    driver = BEHAVIOURS[given.driver] if given.driver else DEFAULT_BEHAVIOUR
    print(f"{machine_line()}; SIMULATED GPUs, virtual clock; promised {given.share} % of both")
    print(f"{'':50} {'rounds, %':>10} {'received, %':>12} {'longest, ms':>14}")
    for kernel, way, crowded in product(KERNELS, WAYS, (False, True)):
        text = f"kernel={kernel} pattern=allreduce {WAYS[way]} {SHAPE} for={SECONDS:g}s"
        job = Tenant("job", given.share, text)
        free = rounds(await run(job, driver, "none", crowded=False))
        held = await run(job, driver, "shim", crowded=crowded)
        share = 100 * held.share("job", until=SECONDS) / GPUS
        late = held.reports["job"]["delay_max_us"] / 1000
        name = f"{kernel}, {way}{', beside a neighbour' if crowded else ''}"
        print(f"{name:50} {100 * rounds(held) / free:10.1f} {share:12.1f} {late:14.1f}", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
