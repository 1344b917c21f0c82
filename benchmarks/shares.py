"""Compute shares: what containers were promised and what they got, on a SIMULATED GPU.

    python benchmarks/shares.py [--seconds N]

A simulated node with one GPU, the real agent, the real shim, and one pod for each tenant that
launches kernels as fast as it is let, queued ahead or waiting for each. What a tenant got is the
simulated GPU's own account, over the time from its first launch to the end of its last kernel, so
the start is in it. Who waits for each kernel cannot fill the GPU even alone: the first rows show
what the whole GPU gives, and nobody is entitled to more. It tests the control law against the model
of a GPU; it says nothing of how a real GPU divides its time.
"""

import argparse
import asyncio
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from machine_line import machine_line

from gpumanager.names import VCORE, VMEMORY
from gpumanager.sim.machines import load_machine
from gpumanager.sim.node import SimulatedNode
from gpumanager.sim.pods import Container, ContainerKind, Pod
from vcuda_shim import PROGRAMS

MACHINE = "single"
KERNELS = ("50us", "2ms", "20ms")
WHOLE = (100,)
ALONE = (10, 30, 50, 90)
TOGETHER = ((30, 60), (10, 20, 30, 40))
BAR_POINTS, BAR_DELIVERED = 1.0, 98.0


@dataclass(frozen=True, slots=True)
class Round:
    """Tenants of one GPU at the same time: their promises, and what all of them launch."""

    promises: tuple[int, ...]
    kernel: str
    sync_each: bool

    @property
    def text(self) -> str:
        tenants = "/".join(f"{one} %" for one in self.promises)
        return f"{tenants:<24} {self.kernel:>5} {'sync each' if self.sync_each else 'async':<9}"


@dataclass(frozen=True, slots=True)
class Got:
    """Percent that each tenant of a round got. most: what these launches can get at all."""

    round: Round
    shares: tuple[float, ...]
    most: float = 100.0

    @property
    def entitled(self) -> tuple[float, ...]:
        return tuple(min(promise, self.most) for promise in self.round.promises)

    @property
    def errors(self) -> tuple[float, ...]:
        """In points of the GPU's time; positive: more than entitled to."""
        pairs = zip(self.shares, self.entitled, strict=True)
        return tuple(share - entitled for share, entitled in pairs)

    @property
    def delivered(self) -> float:
        """Percent of the entitlement that the tenant got who got the least of it."""
        pairs = zip(self.shares, self.entitled, strict=True)
        return min(100 * share / entitled for share, entitled in pairs)


def rounds() -> Iterator[Round]:
    for promises in (WHOLE, *((one,) for one in ALONE), *TOGETHER):
        for kernel in KERNELS:
            for sync_each in (False, True):
                yield Round(promises, kernel, sync_each)


def pod(name: str, cores: int, one: Round, seconds: float) -> Pod:
    words = [PROGRAMS / "cuda-play", "launch", "--kernel", one.kernel, "--seconds", f"{seconds:g}"]
    command = (*map(str, words), *(["--sync-each"] if one.sync_each else []))
    asks = {VCORE: cores, VMEMORY: 4}
    return Pod("default", name, (Container("main", ContainerKind.APP, command, asks=asks),))


async def run(node: SimulatedNode, number: int, one: Round, seconds: float) -> tuple[float, ...]:
    """Percent of the GPU that each tenant got."""
    pods = [
        pod(f"round-{number}-{tenant}", cores, one, seconds)
        for tenant, cores in enumerate(one.promises)
    ]
    results = await node.run(pods)
    shares = [result.measured.share for result in results]
    if None in shares:
        raise SystemExit(f"{one.text}: a tenant did not run: {[r.refused for r in results]}")
    return tuple(share for share in shares if share is not None)


def report(got: Got) -> None:
    if got.round.promises == WHOLE:
        print(f"{got.round.text}  {got.shares[0]:5.1f}", flush=True)
        return
    shares = " ".join(f"{share:5.1f}" for share in got.shares)
    errors = " ".join(f"{error:+5.1f}" for error in got.errors)
    print(f"{got.round.text}  {shares:<24} {errors:<24} {got.delivered:6.1f}", flush=True)


def summary(text: str, everything: Sequence[Got]) -> None:
    errors = [abs(error) for got in everything for error in got.errors]
    mean, delivered = statistics.mean(errors), min(got.delivered for got in everything)
    print(
        f"{text:<24} mean absolute error {mean:5.2f} points, most {max(errors):5.2f}, "
        f"least delivered {delivered:5.1f} %"
    )


def conclude(everything: Sequence[Got]) -> None:
    print()
    for kernel in KERNELS:
        summary(f"kernels of {kernel}", [got for got in everything if got.round.kernel == kernel])
    summary("one tenant", [got for got in everything if len(got.shares) == 1])
    summary("several tenants", [got for got in everything if len(got.shares) > 1])
    summary("all", everything)
    print(f"bars: mean error {BAR_POINTS} points, {BAR_DELIVERED} % delivered to each tenant")


async def measure(seconds: float) -> list[Got]:
    """All rounds but those of the whole GPU, which only say what there is to get."""
    most: dict[tuple[str, bool], float] = {}
    everything = []
    async with SimulatedNode(load_machine(MACHINE)) as node:
        for number, one in enumerate(rounds()):
            shares, kind = await run(node, number, one, seconds), (one.kernel, one.sync_each)
            got = Got(one, shares, most.setdefault(kind, shares[0]))
            report(got)
            if one.promises != WHOLE:
                everything.append(got)
    return everything


async def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("--seconds", type=float, default=4.0, help="that each round launches")
    seconds = arguments.parse_args().seconds
    print(machine_line())
    print(f"SIMULATED GPU, launching for {seconds:g} s each")
    print(
        f"{'promised':<24}{'kernel':>6} {'':<9}  {'got, %':<24} {'error, points':<24} delivered, %"
    )
    begin = time.monotonic()
    conclude(await measure(seconds))
    print(f"{time.monotonic() - begin:.0f} s")


if __name__ == "__main__":
    asyncio.run(main())
