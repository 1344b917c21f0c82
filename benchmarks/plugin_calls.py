"""What the kubelet waits for: all calls of the device plugin for one container, together.

    python benchmarks/plugin_calls.py [--containers N] [--pods N] [--rounds N] [--beside CHECKOUT]

GetPreferredAllocation, Allocate and PreStartContainer, each for both resources. The real agent is a
process of its own on a simulated node of 16 GPUs on which 256 containers are placed already; the
simulated kubelet calls it over its unix sockets and holds the clock. Python's gRPC on both sides is
in the figures, and the kubelet's part of a list of pods, which is Python's here, too. Each pod has
4 KiB of annotations of other programs, as real pods have. The journal lies in /dev/shm
by default, where forcing it to a disk costs nothing. The simulated kubelet does not collect garbage
while it holds the clock, for up to 0.1 s at a time: a real one never stops for so long.

Beside the kubelet's wait: what the agent's own histograms say of the same calls, at the mean, the
list of pods included, and the CPU time of both processes, which depends least on other work.

With --beside another checkout of this project, with its own virtual environment, is measured in
turn with this one: each round starts a node of each. What the machine does besides then meets both.
"""

import argparse
import asyncio
import gc
import json
import os
import statistics
import subprocess
import sys
import time
import urllib.request
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agent import free_port
from allocate import IN_MEMORY, MODEL, keep_bytecode, machine
from machine_line import machine_line

from gpumanager.kube.pod import ContainerKind
from gpumanager.names import VCORE, VMEMORY
from gpumanager.sim import host
from gpumanager.sim.kubelet.plugins import PluginEndpoint
from gpumanager.sim.manifest.pods import ContainerManifest, Pod
from gpumanager.sim.node import SimulatedNode

ROOT = Path(__file__).resolve().parents[1]
IN_AGENT = "in the agent, its metrics"
AGENT_CPU = "CPU time of the agent"
OURS_CPU = "CPU time of the simulated kubelet"
MEANS = (IN_AGENT, AGENT_CPU, OURS_CPU)
CALLS = {
    "preferred": "GetPreferredAllocation, both",
    "allocate": "Allocate, both",
    "pre_start": "PreStartContainer, both",
}
TOGETHER = "all six together"
SUM = "gpumanager_rpc_duration_seconds_sum"
BAR = (15.0, 40.0)
"""ms, p50 and p99."""

ASKS = {VCORE: 5, VMEMORY: 8}
REST = {"example.com/rest": "x" * 4096}

Spent = dict[str, list[float]]
"""ms by call, one figure for each container."""


def count_calls() -> dict[str, float]:
    """From now on: seconds spent in each call since its entry was last cleared."""
    spent: dict[str, float] = defaultdict(float)

    def timed(call: str) -> Any:
        method = getattr(PluginEndpoint, call)

        async def run(endpoint: PluginEndpoint, *arguments: Any) -> Any:
            begin = time.perf_counter()
            try:
                return await method(endpoint, *arguments)
            finally:
                spent[call] += time.perf_counter() - begin

        return run

    for call in CALLS:
        setattr(PluginEndpoint, call, timed(call))
    return spent


async def admit(node: SimulatedNode, name: str) -> Pod:
    container = ContainerManifest("main", ContainerKind.APP, ("true",), asks=ASKS)
    one = Pod("default", name, (container,), annotations=REST)
    if rejection := await node.kubelet.admit(one):
        raise SystemExit(f"{name}: {rejection}")
    await node.kubelet.prepare(one, container)
    node.kubelet.running(one.uid)
    return one


def cpu_seconds(pid: int) -> float:
    """Of all threads that it has now."""
    rows = [one.read_text() for one in Path(f"/proc/{pid}/task").glob("*/schedstat")]
    return sum(int(row.split()[0]) for row in rows) / 1e9


def agent_seconds(port: int) -> float:
    """In the kubelet's calls so far, by the agent's own histograms."""
    with urllib.request.urlopen(f"http://localhost:{port}/metrics") as answer:
        rows = answer.read().decode().splitlines()
    return sum(float(row.rpartition(" ")[2]) for row in rows if row.startswith(SUM))


async def measure(containers: int, pods: int) -> Spent:
    """On a node of this checkout. Of `MEANS` there is one figure, by container."""
    now, found = count_calls(), Spent({call: [] for call in (*CALLS, TOGETHER)})
    port = free_port()
    async with SimulatedNode(machine(), agent_flags={"query-port": port}) as node:
        for number in range(containers):
            await admit(node, f"placed-{number}")

        async def seconds() -> list[float]:
            inside = await asyncio.to_thread(agent_seconds, port)
            return [inside, cpu_seconds(node.agent.pid), cpu_seconds(os.getpid())]

        gc.freeze()
        gc.disable()
        before = await seconds()
        for number in range(pods):
            now.clear()
            one = await admit(node, f"measured-{number}")
            for call in CALLS:
                found[call].append(1e3 * now[call])
            found[TOGETHER].append(1e3 * sum(now.values()))
            node.kubelet.ended(one.uid, failed=False)
            node.kubelet.delete(one.uid)
            gc.collect()
        spent = zip(MEANS, before, await seconds(), strict=True)
        found |= {name: [1e3 * (after - begin) / pods] for name, begin, after in spent}
    return found


def measured_by(checkout: Path, options: argparse.Namespace) -> Spent:
    """The same in another process, of another checkout."""
    python = checkout / ".venv" / "bin" / "python"
    paths = [str(checkout), str(checkout / "benchmarks")]
    places = f"import sys; sys.path[:0] = {paths!r}; sys.argv[0] = {__file__!r}"
    program = f"{places}; import runpy; runpy.run_path({__file__!r}, run_name='__main__')"
    words = [str(python), "-c", program, "--json"]
    words += [f"--containers={options.containers}", f"--pods={options.pods}"]
    words += ["--on-disk"] * options.on_disk
    ran = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True)
    found: Spent = json.loads(ran.stdout.splitlines()[-1])
    return found


def report(who: str, spent: Spent, rounds: int) -> None:
    for call, text in (*CALLS.items(), (TOGETHER, TOGETHER)):
        cuts = statistics.quantiles(spent[call], n=100)
        p50, p99 = cuts[49], cuts[98]
        met = "met" if p50 <= BAR[0] and p99 <= BAR[1] else "MISSED"
        verdict = f"   bar {BAR[0]:.0f} / {BAR[1]:.0f} {met}" if call == TOGETHER else ""
        print(
            f"{who:<7} {text:<30} p50 {p50:7.2f} ms   p99 {p99:7.2f} ms   "
            f"n {len(spent[call])} in {rounds} rounds{verdict}"
        )
    wait = statistics.mean(spent[TOGETHER])
    means = (f"{name} {statistics.mean(spent[name]):.2f}" for name in MEANS)
    print(f"{who:<7} at the mean, ms: the kubelet's wait {wait:.2f}, {', '.join(means)}")


def in_turn(checkouts: dict[str, Path], options: argparse.Namespace) -> None:
    spent = {who: Spent({call: [] for call in (*CALLS, TOGETHER, *MEANS)}) for who in checkouts}
    for number in range(options.rounds):
        order = list(checkouts) if number % 2 else list(reversed(checkouts))
        for who in order:
            for call, row in measured_by(checkouts[who], options).items():
                spent[who][call] += row
    for who, found in spent.items():
        report(who, found, options.rounds)
    if len(spent) == 2:
        for name in (TOGETHER, *MEANS):
            before, after = (statistics.median(found[name]) for found in spent.values())
            print(f"after / before, p50 of {name}: {after / before:.2f}")


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--containers", type=int, default=256, help="placed before")
    parser.add_argument("--pods", type=int, default=100, help="that come and go, in each round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--beside", type=Path, help="another checkout, measured in turn")
    parser.add_argument("--on-disk", action="store_true", help="the journal is forced to a disk")
    parser.add_argument("--json", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    keep_bytecode()
    if not options.on_disk:
        host.SHORT = IN_MEMORY  # type: ignore[misc]
    if options.json:
        print(json.dumps(asyncio.run(measure(options.containers, options.pods))))
        return
    print(f"{machine_line()}; {options.containers} containers on 16 x {MODEL.name}")
    beside = {"before": options.beside.resolve()} if options.beside else {}
    in_turn({**beside, "after" if beside else "this": ROOT}, options)


if __name__ == "__main__":
    main(sys.argv[1:])
