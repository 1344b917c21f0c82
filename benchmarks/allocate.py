"""How long the kubelet stands still: GetPreferredAllocation, Allocate, PreStartContainer.

    python benchmarks/allocate.py [--containers N] [--pods N] [--starts N] [--in-memory]

The real agent is a process of its own on a simulated node of 16 GPUs on which 256 containers are
placed already; the simulated kubelet calls it over its unix sockets, as a kubelet does, and holds
the clock. So gRPC on both sides is in the figures: the kubelet's is Python's too, and takes a part
that no real kubelet takes, so that other calls are made through a thin client in turn with these
(allocate_turns.py). The journal is in them, forced to the disk in each Allocate; with --in-memory
the node lies in /dev/shm, where forcing costs nothing. The GPUs are not touched. Also: what the
agent weighs with all these containers, and how long it takes from its start to its registration.
"""

import argparse
import asyncio
import itertools
import os
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from allocate_turns import CALLS, Turns
from machine_line import machine_line

from gpumanager.gpu.values import Bond, Gpu, GpuUUID, Level, topology
from gpumanager.grants.journal import Journal
from gpumanager.grants.journal_file import FILE_NAME, JournalFile
from gpumanager.kube.pod import ContainerKind
from gpumanager.kubelet.pods import KubeletPods
from gpumanager.names import VCORE, VMEMORY
from gpumanager.sim import host
from gpumanager.sim.machine import GpuModel, Machine
from gpumanager.sim.manifest.pods import ContainerManifest, Pod
from gpumanager.sim.node import SimulatedNode
from gpumanager.units import GIB, MIB, Bytes

GPUS = 16
CORES, BLOCKS = 5, 8
"""Of each container: 16 of them leave a fifth of their GPU."""

MEMORY = Bytes(40 * GIB)
MODEL = GpuModel("Simulated 40GB", 108, (8, 0))
BAR = (1.0, 3.0)
"""ms, p50 and p99."""

IN_MEMORY = Path("/dev/shm")


def machine(memory: Bytes = MEMORY) -> Machine:
    gpus = [
        Gpu(
            index=n,
            minor=n,
            uuid=GpuUUID(f"GPU-{n:08x}-0000-0000-0000-{n:012x}"),
            bus_id=f"00000000:{n + 1:02X}:00.0",
            model=MODEL.name,
            memory=memory,
            numa_node=n // 8,
        )
        for n in range(GPUS)
    ]
    bonds = [[None if a == b else Bond(Level.SYS, 12) for b in range(GPUS)] for a in range(GPUS)]
    return Machine("16 GPUs", topology(gpus, bonds), {MODEL.name: MODEL})


def pod(name: str) -> Pod:
    asks = {VCORE: CORES, VMEMORY: BLOCKS}
    return Pod(
        "default", name, (ContainerManifest("main", ContainerKind.APP, ("true",), asks=asks),)
    )


async def admit(node: SimulatedNode, name: str) -> Pod:
    """As far as a container's start: admitted, and its devices prepared."""
    one = pod(name)
    if rejection := await node.kubelet.admit(one):
        raise SystemExit(f"{name}: {rejection}")
    await node.kubelet.prepare(one, one.containers[0])
    node.kubelet.running(one.uid)
    return one


async def come_and_go(node: SimulatedNode, count: int) -> None:
    """One pod after another, each on top of all that stay."""
    for number in range(count):
        one = await admit(node, f"measured-{number}")
        node.kubelet.ended(one.uid, failed=False)
        node.kubelet.delete(one.uid)


def report(text: str, seconds: Sequence[float], bars: tuple[float, float] | None = None) -> None:
    cuts = statistics.quantiles(seconds, n=100)
    p50, p99 = cuts[49] * 1e3, cuts[98] * 1e3
    verdict = ""
    if bars is not None:
        met = p50 <= bars[0] and p99 <= bars[1]
        verdict = f"   bar {bars[0]:.1f} / {bars[1]:.1f} {'met' if met else 'MISSED'}"
    print(f"{text:<46} p50 {p50:7.2f} ms   p99 {p99:7.2f} ms   n {len(seconds)}{verdict}")


def repeat(count: int, work: Callable[[], object]) -> list[float]:
    def once() -> float:
        begin = time.perf_counter()
        work()
        return time.perf_counter() - begin

    return [once() for _ in range(count)]


def force(path: Path, contents: bytes) -> None:
    """What the disk itself takes of one save: new file, rename, directory, each forced."""
    fresh = path.with_suffix(".next")
    with fresh.open("wb") as file:
        file.write(contents)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(directory)
    os.close(directory)


def file_system(path: Path) -> str:
    command = ["stat", "-f", "-c", "%T", str(path)]
    shown = subprocess.run(command, check=False, capture_output=True, text=True)
    return shown.stdout.strip() or "unknown"


def parts_on_disk(
    directory: Path, journal: Journal, count: int
) -> Iterator[tuple[str, list[float]]]:
    """One change saved as each Allocate does it, a new file, and the disk's part of that."""
    ours = JournalFile(directory / "benchmark.json")
    ours.save(journal)
    contents = ours.path.read_bytes()
    newest = journal.live()[-1:]
    versions = itertools.cycle([journal.put(*newest), journal.drop(a.id for a in newest)])
    yield "one change in the journal", repeat(count, lambda: ours.save(next(versions)))
    size = f"{len(contents) / 1024:.0f} KiB"
    yield f"a new journal of {size}", repeat(count, lambda: JournalFile(ours.path).save(journal))
    yield "  of it the disk's part", repeat(count, lambda: force(ours.path, contents))
    ours.path.unlink()


async def look(node: SimulatedNode, count: int) -> list[float]:
    """The agent's look at the kubelet's list of pods, which a GetPreferredAllocation takes."""
    source, seconds = KubeletPods(node.kubelet.http.endpoint), []
    for _ in range(count):
        begin = time.perf_counter()
        await source.pods()
        seconds.append(time.perf_counter() - begin)
    return seconds


def resident(pid: int) -> tuple[float, float]:
    """MiB now and at most."""
    rows = Path(f"/proc/{pid}/status").read_text().splitlines()
    fields = dict(row.split(":", 1) for row in rows)
    return tuple(int(fields[name].split()[0]) * 1024 / MIB for name in ("VmRSS", "VmHWM"))  # type: ignore[return-value]


def keep_bytecode() -> None:
    """As installed packages do: an agent that compiles itself at each start is nobody's."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


async def starts(node: SimulatedNode, count: int) -> list[float]:
    """Seconds from the agent's exec to both resources known to the kubelet."""
    seconds = []
    for _ in range(count):
        await node.kill_agent()
        begin = time.perf_counter()
        await node.start_agent()
        seconds.append(time.perf_counter() - begin)
    return seconds


def report_starts(text: str, seconds: Sequence[float]) -> None:
    middle = statistics.median(seconds)
    verdict = "met" if middle <= 1.0 else "MISSED"
    spread = f"{min(seconds):.2f} to {max(seconds):.2f}"
    print(f"{text:<46} median {middle:.2f} s ({spread}), n {len(seconds)}   bar 1.0 {verdict}")


def report_calls(turns: Turns) -> None:
    print("through Python's gRPC client:")
    for (call, resource), seconds in turns.calls.items():
        report(f"{CALLS[call]}, {resource}", seconds)
    report("Allocate, both", turns.both("allocate"), BAR)
    report("an empty call in its place", turns.empty)
    print("through a thin client:")
    report("Allocate, both", turns.thin, BAR)
    report("an empty call in its place", turns.thin_empty)


async def measure(node: SimulatedNode, options: argparse.Namespace) -> None:
    report_starts("agent registered, nothing placed", await starts(node, options.starts))
    print(f"agent resident, nothing placed: {resident(node.agent.pid)[0]:.0f} MiB")
    for number in range(options.containers):
        await admit(node, f"placed-{number}")
    turns = Turns(node.disk.kubelet)
    await come_and_go(node, turns.pods * options.pods)
    print(f"{options.containers} containers placed; disk: {file_system(node.disk.checkpoint)}")
    report_calls(turns)
    journal = JournalFile(node.disk.checkpoint / FILE_NAME).load()
    for text, seconds in parts_on_disk(node.disk.checkpoint, journal, options.pods):
        report(text, seconds)
    report("one look at the kubelet's pods", await look(node, options.pods))
    now, most = resident(node.agent.pid)
    verdict = "met" if most <= 128 else "MISSED"
    print(f"agent resident: {now:.0f} MiB, most {most:.0f} MiB   bar 128 {verdict}")
    report_starts("agent registered again", await starts(node, options.starts))


async def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("--containers", type=int, default=256, help="placed before")
    arguments.add_argument(
        "--pods",
        type=int,
        default=200,
        help="that come and go, for each of four kinds of calls",
    )
    arguments.add_argument("--starts", type=int, default=5, help="of the agent, twice")
    arguments.add_argument("--in-memory", action="store_true", help="nothing is forced to a disk")
    options = arguments.parse_args()
    if options.in_memory:
        host.SHORT = IN_MEMORY  # type: ignore[misc]
    print(machine_line())
    keep_bytecode()
    async with SimulatedNode(machine()) as node:
        await measure(node, options)


if __name__ == "__main__":
    asyncio.run(main())
