"""A node under all attacks at once, and honest containers on it.

    python -m tests.hostile.siege --seconds 600 [--seed N] [--without NAME,…] [--only NAME,…]

Five honest containers and the attackers fill one GPU; whatever has no room there attacks from a
second one. A sixth honest container starts processes all the time. Held is: nobody honest is
refused, ended, or gets more than a point less than its promise, or than in the same run without
attacks where that was less; the agent is the same process afterwards, has not grown, and answers
its probes. Shares are by the simulated GPU's own account, over the time of the attacks. The
exit status is 1 where that does not hold.

Not here: the extender, which runs on no node and takes no part in what a node promised
(test_extender_strangers.py).
"""

import argparse
import asyncio
import contextlib
import os
import random
import secrets
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from gpumanager.settings import ON_BYPASS
from gpumanager.sim.agent import AgentDied
from gpumanager.sim.manifest.pods import Pod
from gpumanager.sim.results import ContainerResult
from tests.hostile import random_attacks
from tests.hostile.hostile_node import HostileNode, hostile

SHARES: Final = (10, 10, 15, 20, 30)
BLOCKS, HELD_MIB, CHURNED_MIB = 8, 1600, 128
"""Of an honest container: 2 GiB, most of which is in use."""
NEWCOMER: Final = "newcomers"

PEACE_SECONDS: Final = 120.0
"""At most, without attacks."""
START_SECONDS: Final = 10.0
END_SECONDS: Final = 300.0
NEW_POD_SECONDS: Final = 5.0
SHORT: Final = 1.0
"""Percent of the GPU's time."""
GROWN: Final = 32 << 20
GROWN_DESCRIPTORS: Final = 64
GROWN_THREADS: Final = 8
PROBE_SECONDS: Final = 10.0
"""The kubelet ends an agent that fails six probes, 10 s apart."""
MACHINE: Final = str(Path(__file__).with_name("siege.yaml"))
POLITE: Final = ("nice", "-n", "19")
"""The attackers' CPU: in a cluster their cgroup holds them, here nothing does."""


@dataclass(frozen=True, slots=True)
class Attacker:
    """A program of `tenants/`, in a container of its own.

    words: of its command line; SECONDS, PORT, VICTIM and SEED are known when it starts. each: it
    is run again and again, for so many seconds at most; 0: it goes on by itself.
    """

    name: str
    does: str
    words: tuple[object, ...]
    each: float = 0


SECONDS, PORT, VICTIM, SEED = "SECONDS", "PORT", "VICTIM", "SEED"
ON_PAGES: Final = ("random_moves.py", SEED, SECONDS, "pages")
ATTACKERS: Final = (
    Attacker("pages", "random words, seals, holes, locks", ON_PAGES),
    Attacker("socket", "random bytes at its socket", ("random_moves.py", SEED, SECONDS, "hello")),
    Attacker("overflow", "launches, meter near 2^64", ("write_meter.py", SECONDS, "overflow")),
    Attacker("zero", "launches, meter at 0", ("write_meter.py", SECONDS, "zero")),
    Attacker("clock", "launches, limiter's time at 0", ("write_meter.py", SECONDS, "clock")),
    Attacker("frame", "an honest process in its slots", ("frame.py", SECONDS, VICTIM)),
    Attacker("junk", "nonsense at its socket", ("flood.py", 10**9, "junk", SECONDS)),
    Attacker("calls", "HELLO without end", ("flood.py", 10**9, "hello", SECONDS)),
    Attacker("locks", "all slots locked, then HELLO", ("lock_all_slots.py", SECONDS)),
    Attacker("processes", "100 processes with slots", ("many_processes.py", 100, 5), 20),
    Attacker("measured", "asks to be measured", ("ask_to_be_measured.py", 0.5), 20),
    Attacker("root", "all on its pages, as root", ("change_pages.py", "root", 0.1), 20),
    Attacker("limits", "raises its limits, takes 2 GiB", ("rewrite_limits.py", 1), 20),
    Attacker("bare", "as root without capabilities", ("change_pages.py", "bare", 0.1), 20),
    Attacker("nobody", "as nobody", ("change_pages.py", "nobody", 0.1), 20),
    Attacker("held", "bytes in its books, then HELLO", ("hold_books.py", "/none"), 3),
    Attacker("lives", "closes all, dies, HELLO", ("two_lives.py", "/none"), 3),
    Attacker("before", "HELLO of an old shim", ("old_hello.py",), 20),
    Attacker("forbidden", "takes all without getpid, kill", ("forbidden_calls.py",), 20),
    Attacker("bound", "takes all, in a sandbox", ("sandbox.py", "bound"), 20),
    Attacker("clean", "… without environment", ("sandbox.py", "clean", "pids"), 20),
    Attacker("elsewhere", "… with the driver elsewhere", ("sandbox.py", "elsewhere"), 20),
    *(
        Attacker(f"crowd-{kind}", "300 connections", ("http_crowd.py", PORT, 300, kind))
        for kind in ("idle", "head", "body", "deaf")
    ),
)
TASKS: Final = {
    "new-pods": "the same as pages, in pods anew",
    "annotations": "pods that say odd things",
    "environment": "pods with odd variables",
    "doors": "requests at the agent's port",
}
Known = Mapping[object, tuple[object, ...]]
"""What stands for words of an attacker's command line."""
NAMES: Final = (*(one.name for one in ATTACKERS), *TASKS)


@dataclass(frozen=True, slots=True)
class Agent:
    """What the agent takes of its host, in bytes, open files and threads."""

    pid: int
    memory: int
    descriptors: int
    threads: int

    @classmethod
    def look(cls, node: HostileNode) -> "Agent":
        """Raises OSError where it has ended."""
        proc = Path(f"/proc/{node.node.agent.pid}")
        pages = int((proc / "statm").read_text().split()[1])
        counts = (len(os.listdir(proc / name)) for name in ("fd", "task"))  # noqa: PTH208
        return cls(node.node.agent.pid, pages * os.sysconf("SC_PAGE_SIZE"), *counts)

    def __str__(self) -> str:
        counts = f"{self.descriptors} descriptors, {self.threads} threads"
        return f"{self.memory >> 20} MiB, {counts}, pid {self.pid}"


@dataclass(slots=True)
class Probes:
    """What the kubelet's probes met; seconds: the slowest answer."""

    asked: int = 0
    failed: int = 0
    seconds: float = 0.0


@dataclass(slots=True)
class Outcome:
    """Of one run. shares: percent of the GPU that each honest container got, by name."""

    shares: Mapping[str, float] = field(default_factory=dict)
    results: Mapping[str, ContainerResult] = field(default_factory=dict)
    agent: Sequence[Agent] = ()
    probes: Probes = field(default_factory=Probes)
    said: Mapping[str, list[str]] = field(default_factory=dict)
    troubles: list[str] = field(default_factory=list)


def honest(seconds: float) -> Iterator[Pod]:
    for index, share in enumerate(SHARES):
        name = f"honest-{index}-{share}"
        words = ("honest.py", seconds, HELD_MIB, CHURNED_MIB, name)
        yield hostile(name, *words, cores=share, memory=BLOCKS)


def attacker(one: Attacker, known: Known) -> Pod:
    words = [word for words in one.words for word in known.get(words, (words,))]
    if one.each:
        words = ["again.py", *known[SECONDS], one.each, *words]
    pod = hostile(f"attacker-{one.name}", str(words[0]), *words[1:], cores=1, memory=3)
    (main,) = pod.containers
    return replace(pod, containers=(replace(main, command=(*POLITE, *main.command)),))


def command_line(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:
        return []


def victim(node: HostileNode) -> tuple[int, int]:
    """A process of somebody honest: its pid and its start time, as a guess may hit them."""
    pid = next(one.pid for one in node.node.gpus.processes() if one.pid)
    stat = Path(f"/proc/{pid}/stat").read_text()
    return pid, int(stat.rpartition(")")[2].split()[19])


class Account:
    """GPU time of the honest containers, by the simulated driver, from now on."""

    def __init__(self, node: HostileNode, names: Sequence[str]) -> None:
        self._node = node
        self._namespaces = {
            word: one.mount_namespace
            for one in node.node.gpus.processes()
            for word in command_line(one.pid)
            if word in names
        }
        self._begun, self._before = time.monotonic(), self._busy()

    def _busy(self) -> dict[int, int]:
        return {
            one.mount_namespace: sum(gpu.busy_ns for gpu in one.devices.values())
            for one in self._node.node.gpus.tenants()
        }

    def shares(self) -> dict[str, float]:
        """Percent of one GPU since the beginning."""
        took, busy = time.monotonic() - self._begun, self._busy()
        return {
            name: (busy[one] - self._before[one]) / took / 1e7
            for name, one in sorted(self._namespaces.items())
        }


async def probe(place: Path, probes: Probes) -> None:
    """As the kubelet does, but each second."""
    while True:
        begun = time.monotonic()
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                reader, writer = await asyncio.open_unix_connection(place)
                writer.write(b"GET /healthz HTTP/1.1\r\nHost: agent\r\n\r\n")
                well = (await reader.read(4096)).startswith(b"HTTP/1.1 200")
                writer.close()
        except (OSError, TimeoutError):
            well = False
        probes.asked, probes.failed = probes.asked + 1, probes.failed + (not well)
        probes.seconds = max(probes.seconds, time.monotonic() - begun)
        await asyncio.sleep(1)


def judge(name: str, result: ContainerResult, said: Sequence[str]) -> Iterator[str]:
    if result.exit_code != 0:
        yield f"{name} ended with {result.exit_code}: {said[-3:]}"
    elif not said or not said[-1].startswith("ended refused 0 "):
        yield f"{name} was refused: {said[:3]}"
    if result.measured.memory_peak > result.memory_limit:
        yield f"{name} held {result.measured.memory_peak >> 20} MiB"


def judge_agent(looks: Sequence[Agent], probes: Probes, log: str) -> Iterator[str]:
    before, after = looks[0], looks[-1]
    if len({one.pid for one in looks}) > 1:
        yield "the agent was started again"
    if after.memory > before.memory + GROWN:
        yield f"the agent has grown: {before}, then {after}"
    if after.descriptors > before.descriptors + GROWN_DESCRIPTORS:
        yield f"the agent has more descriptors: {before}, then {after}"
    if after.threads > before.threads + GROWN_THREADS:
        yield f"the agent has more threads: {before}, then {after}"
    if probes.failed:
        yield f"{probes.failed} of {probes.asked} probes of the agent failed"
    for words in ("Traceback", "has stopped"):
        if words in log:
            yield f"the agent's log says {words!r}: {log[log.index(words) :][:500]}"


async def new_pods(node: HostileNode, chance: random.Random, seconds: float) -> int:
    """The agent pauses whoever writes nonsense into its meter; a new pod begins anew."""
    ends, tried = time.monotonic() + seconds, 0
    while time.monotonic() < ends:
        words = ("random_moves.py", chance.getrandbits(31), NEW_POD_SECONDS, "pages")
        one = hostile(f"new-{tried}", *map(str, words), cores=1, memory=1)
        if await node.node.admit(one) is None:
            running = asyncio.create_task(node.node.runner.run(one))
            await asyncio.wait({running}, timeout=2 * NEW_POD_SECONDS)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            tried += 1
        await asyncio.sleep(0.1)
    return tried


@contextlib.asynccontextmanager
async def besieged(
    node: HostileNode, seconds: float, seed: int, names: Sequence[str]
) -> AsyncIterator[list[str]]:
    """All attacks at once; the lines it yields tell what came of those that are tasks."""
    told: list[str] = []
    chance = random.Random(seed)
    tasks: dict[str, asyncio.Task[int]] = {}
    running: dict[str, asyncio.Task[Any]] = {}
    known: Known = {SECONDS: (seconds,), SEED: (seed,), PORT: (node.port,), VICTIM: victim(node)}
    async with contextlib.AsyncExitStack() as stack:
        for one in ATTACKERS:
            if one.name in names:
                pod = attacker(one, known)
                running[pod.name] = await stack.enter_async_context(node.beside(pod))
        for name in TASKS:  # last: their pods would take the room beside the honest
            if name in names:
                attack = new_pods if name == "new-pods" else random_attacks.ATTACKS[name]
                tasks[name] = asyncio.create_task(attack(node, chance, seconds))
        try:
            yield told
            for name, attacking in tasks.items():
                (outcome,) = await asyncio.gather(attacking, return_exceptions=True)
                if isinstance(outcome, BaseException):
                    told.append(f"{name}: {outcome!r}")
                node.said[f"attacker-{name}"].append(f"{outcome} tries")
            await asyncio.sleep(START_SECONDS)  # for their last words
            for name, program in running.items():
                code = (
                    program.result()[0].exit_code if program.done() else "none: it was ended here"
                )
                if code != 0:
                    node.said[name].append(f"exit {code}; before: {''.join(node.said[name][-1:])}")
        finally:
            left = (*tasks.values(), *running.values())
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)


async def run(seconds: float, seed: int, names: Sequence[str], flags: Mapping[str, Any]) -> Outcome:
    """names: of the attackers; none for peace."""
    outcome = Outcome()
    whole = seconds + 4 * START_SECONDS
    async with contextlib.AsyncExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "probe.sock"
        ports: dict[str, Any] = {"query-port": random_attacks.free_port(), "probe-socket": place}
        node = await stack.enter_async_context(HostileNode(MACHINE, **ports, **flags))
        attacking = seconds + START_SECONDS
        pods = {pod.name: pod for pod in honest(whole)}
        starts = hostile(NEWCOMER, "newcomers.py", whole, cores=1, memory=4)
        running = [
            await stack.enter_async_context(node.beside(one)) for one in (*pods.values(), starts)
        ]
        await asyncio.sleep(START_SECONDS)
        looks = [Agent.look(node)]
        probing = asyncio.create_task(probe(place, outcome.probes))
        try:
            async with besieged(node, attacking, seed, names) as told:
                await asyncio.sleep(START_SECONDS)
                account = Account(node, tuple(pods))
                for _ in range(2):
                    looks.append(Agent.look(node))
                    await asyncio.sleep(seconds / 2)
                looks.append(Agent.look(node))
                outcome.shares = account.shares()
            async with asyncio.timeout(END_SECONDS):
                results = [result for one in running for result in await one]
        except (OSError, AgentDied) as error:
            outcome.troubles.append(f"the agent has ended: {error}: {node.node.agent.last_words()}")
            return outcome
        finally:
            probing.cancel()
        outcome.results = {one.pod.name: one for one in results}
        outcome.agent, outcome.said = looks, node.said
        log = node.node.disk.agent_log.read_text(errors="replace")
        outcome.troubles += [
            *told,
            *(
                w
                for name, one in outcome.results.items()
                for w in judge(name, one, node.said[name])
            ),
            *judge_agent(looks[1:], outcome.probes, log),
        ]
        return outcome


def compare(peace: Outcome, siege: Outcome) -> Iterator[str]:
    for name, alone in peace.shares.items():
        attacked = siege.shares.get(name, 0.0)
        if min(alone, float(name.rpartition("-")[2])) - attacked > SHORT:
            yield f"{name} is short: {attacked:.1f} % after {alone:.1f} %"


def table(peace: Outcome, siege: Outcome, names: Sequence[str]) -> Iterator[str]:
    yield f"{'honest':14} promised  alone  attacked  exit  last words"
    for name, result in siege.results.items():
        last = "".join(siege.said[name][-1:])
        cores = result.container.cores
        shares = (
            f"{one.shares[name]:.1f}" if name in one.shares else "-" for one in (peace, siege)
        )
        alone, attacked = shares
        yield f"{name:14} {cores:8} {alone:>6} {attacked:>9}  {result.exit_code!s:>4}  {last}"
    yield f"\n{'attacker':14} {'does':34} last words"
    does = {**{one.name: one.does for one in ATTACKERS}, **TASKS}
    for name in names:
        last = "".join(siege.said[f"attacker-{name}"][-1:])
        yield f"{name:14} {does[name]:34} {last[:120]}"
    yield ""
    moments = ("before", "start", "middle", "end")
    for name, outcome in (("without attacks", peace), ("with", siege)):
        for moment, look in zip(moments, outcome.agent, strict=False):
            yield f"agent {name}, {moment}: {look}"
        probes = outcome.probes
        failed = f"{probes.failed} failed, slowest {probes.seconds:.2f} s"
        yield f"probes {name}: {probes.asked}, {failed}"


def chosen(only: str | None, without: str) -> tuple[str, ...]:
    """Raises SystemExit where a name is of nobody."""
    left_out = without.split(",") if without else []
    named = only.split(",") if only is not None else list(NAMES)
    if unknown := {*left_out, *named} - {*NAMES}:
        sys.exit(f"no attacker {', '.join(sorted(unknown))}: known are {', '.join(NAMES)}")
    return tuple(name for name in NAMES if name in named and name not in left_out)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=secrets.randbits(31))
    parser.add_argument("--without", default="", metavar="NAME,…", help="leave these out")
    parser.add_argument("--only", metavar="NAME,…", help="these attackers alone")
    # Attackers that launch on take the honest containers' GPU time unless they are paused.
    parser.add_argument("--on-bypass", choices=ON_BYPASS, default="pause")
    given = parser.parse_args(arguments)
    names = chosen(given.only, given.without)
    print(f"seed {given.seed}, {given.seconds:g} s, {len(names)} attackers", flush=True)
    flags = {"on-bypass": given.on_bypass}
    peace = asyncio.run(run(min(given.seconds, PEACE_SECONDS), given.seed, (), flags))
    siege = asyncio.run(run(given.seconds, given.seed, names, flags))
    print("\n".join(table(peace, siege, names)))
    troubles = [*peace.troubles, *siege.troubles, *compare(peace, siege)]
    print("\n".join(["", *troubles]) if troubles else "\nnobody was harmed")
    return 1 if troubles else 0


if __name__ == "__main__":
    sys.exit(main())
