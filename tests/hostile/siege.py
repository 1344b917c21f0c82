"""One GPU under all attacks at once, and five honest containers on it.

    python tests/hostile/siege.py --seconds 600 [--seed N] [--peace]

Nobody honest is refused, ended, or gets more than a point less than its promise, or than in the
same run without attacks where that was less; that run goes first, with --peace alone. The agent is
the same process afterwards, and has not grown. Shares are by the simulated GPU's own account, over
all the time.
"""

import argparse
import asyncio
import contextlib
import os
import random
import secrets
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import random_attacks
from hostile_node import HostileNode, hostile

from gpumanager.sim.pods import Pod
from gpumanager.sim.results import ContainerResult

SHARES: Final = (10, 10, 15, 20, 30)
BLOCKS, HELD_MIB, CHURNED_MIB = 8, 1600, 128
"""Of an honest container: 2 GiB, most of which is in use."""

START_SECONDS: Final = 10.0
END_SECONDS: Final = 300.0
SHORT: Final = 1.0
"""Percent of the GPU's time."""
GROWN: Final = 32 << 20
GROWN_DESCRIPTORS: Final = 64
MACHINE: Final = "single"
POLITE: Final = ("nice", "-n", "19")
"""The attackers' CPU: in a cluster their cgroup holds them, here nothing does."""


@dataclass(frozen=True, slots=True)
class Agent:
    """What the agent takes of its host, in bytes and open files."""

    pid: int
    memory: int
    descriptors: int

    @classmethod
    def look(cls, pid: int) -> "Agent":
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        count = len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208 - no files to look at
        return cls(pid, pages * os.sysconf("SC_PAGE_SIZE"), count)

    def __str__(self) -> str:
        return f"{self.memory >> 20} MiB, {self.descriptors} descriptors"


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one run. shares: what each honest container got, by name; None for nothing."""

    shares: Mapping[str, float | None]
    troubles: Sequence[str]


def honest(seconds: float) -> Iterator[Pod]:
    for index, share in enumerate(SHARES):
        words = ("honest.py", seconds, HELD_MIB, CHURNED_MIB)
        yield hostile(f"honest-{index}-{share}", *words, cores=share, memory=BLOCKS)


def victim(node: HostileNode) -> tuple[int, int]:
    """A process of somebody honest: its pid and its start time, as a guess may hit them."""
    pid = next(one.pid for one in node.node.gpus.processes() if one.pid)
    stat = Path(f"/proc/{pid}/stat").read_text()
    return pid, int(stat.rpartition(")")[2].split()[19])


def attackers(seconds: float, seed: int, framed: tuple[int, int]) -> Iterator[Pod]:
    programs: tuple[tuple[object, ...], ...] = (
        ("random_moves.py", seed, seconds, "pages"),
        ("random_moves.py", seed + 1, seconds, "hello"),
        ("write_meter.py", seconds, "overflow"),
        ("write_meter.py", seconds, "zero"),
        ("write_meter.py", seconds, "clock"),
        ("frame.py", seconds, *framed),
        ("flood.py", int(2000 * seconds), "junk"),
        ("flood.py", int(2000 * seconds), "hello"),
        ("lock_all_slots.py", seconds),
        ("many_processes.py", 100, seconds),
        ("ask_to_be_measured.py", seconds),
        ("change_pages.py", "root", seconds),
    )
    for index, (program, *words) in enumerate(programs):
        one = hostile(f"attacker-{index}", str(program), *words, cores=1, memory=3)
        (main,) = one.containers
        yield replace(one, containers=(replace(main, command=(*POLITE, *main.command)),))


def judge(node: HostileNode, result: ContainerResult, seconds: float) -> Iterator[str]:
    name, said = result.pod.name, node.said[result.pod.name]
    if result.exit_code != 0:
        yield f"{name} ended with {result.exit_code}: {said[-3:]}"
    elif not said or not said[-1].startswith("ended refused 0 "):
        yield f"{name} was refused: {said[:3]}"
    if result.measured.memory_peak > result.memory_limit:
        yield f"{name} held {result.measured.memory_peak >> 20} MiB in {seconds} s"


def judge_agent(before: Agent, after: Agent) -> Iterator[str]:
    if after.pid != before.pid:
        yield "the agent was started again"
    if after.memory > before.memory + GROWN:
        yield f"the agent has grown: {before}, then {after}"
    if after.descriptors > before.descriptors + GROWN_DESCRIPTORS:
        yield f"the agent has more descriptors: {before}, then {after}"


async def besiege(
    node: HostileNode, stack: contextlib.AsyncExitStack, seconds: float, seed: int
) -> list["asyncio.Task[int]"]:
    """All attacks at once; the tasks among them end by themselves."""
    for one in attackers(seconds, seed, victim(node)):
        await stack.enter_async_context(node.beside(one))
    chance = random.Random(seed)
    names = ("annotations", "environment", "doors")
    return [
        asyncio.create_task(random_attacks.ATTACKS[name](node, chance, seconds)) for name in names
    ]


async def run(seconds: float, seed: int, *, peace: bool) -> Outcome:
    flags: dict[str, Any] = {"query-port": random_attacks.free_port(), "behind-the-shim": "end"}
    async with HostileNode(MACHINE, **flags) as node, contextlib.AsyncExitStack() as stack:
        running = [await stack.enter_async_context(node.beside(one)) for one in honest(seconds)]
        await asyncio.sleep(START_SECONDS)
        tasks = [] if peace else await besiege(node, stack, seconds, seed)
        await asyncio.sleep(START_SECONDS)
        before = Agent.look(node.node.agent.pid)
        async with asyncio.timeout(seconds + END_SECONDS):
            results = [result for one in running for result in await one]
        after = Agent.look(node.node.agent.pid)
        accounts = node.node.gpus.tenants()
        busy = (sum(gpu.busy_ns for gpu in one.devices.values()) / 1e9 for one in accounts)
        print("seconds of the GPU, of each:", sorted(round(one, 1) for one in busy if one))
        tries = await asyncio.gather(*tasks, return_exceptions=True)
        troubles = [words for one in results for words in judge(node, one, seconds)]
        troubles += [
            *judge_agent(before, after),
            *(str(t) for t in tries if not isinstance(t, int)),
        ]
        print(f"{'peace' if peace else 'siege'}: agent {before}, then {after}; tries {tries}")
        for pod_name, lines in node.said.items():
            print(f"  {pod_name}: {len(lines)} lines, the last: {lines[-1:]}")
        return Outcome({one.pod.name: one.measured.share for one in results}, troubles)


def compare(peace: Outcome, siege: Outcome) -> Iterator[str]:
    for name, alone in peace.shares.items():
        attacked = siege.shares[name]
        print(f"  {name}: {alone} % without attacks, {attacked} % under them")
        promise = float(name.rpartition("-")[2])
        if min(alone or 0, promise) - (attacked or 0) > SHORT:
            yield f"{name} is short: {attacked} % after {alone} %"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=secrets.randbits(31))
    parser.add_argument("--peace", action="store_true", help="without attacks alone")
    given = parser.parse_args(arguments)
    print(f"seed {given.seed}, {given.seconds:g} s", flush=True)
    peace = asyncio.run(run(given.seconds, given.seed, peace=True))
    troubles = [*peace.troubles]
    if given.peace:
        print(peace.shares)
    else:
        siege = asyncio.run(run(given.seconds, given.seed, peace=False))
        troubles += [*siege.troubles, *compare(peace, siege)]
    print("\n".join(troubles) or "nobody was harmed")
    return 1 if troubles else 0


if __name__ == "__main__":
    sys.exit(main())
