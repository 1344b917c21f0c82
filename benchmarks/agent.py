"""What the agent takes of a node: its list of devices, and its memory many pods later.

    python benchmarks/agent.py [--lists N] [--containers N] [--cycles N]

The real agent is a process of its own on a simulated node of 16 GPUs of 256 blocks each, metrics
served, without an API server. A client of its own reads ListAndWatch over the agent's sockets, as
the kubelet does at the same time. Containers are placed and have no processes. At last, on a fresh
node in memory, so many pods are admitted, prepared and gone one after another.
"""

import argparse
import asyncio
import os
import socket
import statistics
import sys
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from allocate import IN_MEMORY, admit, come_and_go, keep_bytecode, machine, resident
from gpu_faults import SimulatedFaults
from machine_line import machine_line

from gpumanager.deviceplugin import wire
from gpumanager.grpc_wire import sockets_like
from gpumanager.names import VCORE, VCORE_SOCKET, VMEMORY, VMEMORY_SOCKET
from gpumanager.sim import host
from gpumanager.sim.node import SimulatedNode
from gpumanager.units import GIB, MIB, Bytes

SOCKETS = {VCORE: VCORE_SOCKET, VMEMORY: VMEMORY_SOCKET}
MEMORY = Bytes(64 * GIB)
"""Of each GPU: 256 blocks."""

FATAL_XID = 79
LIST_SECONDS = 30.0
"""Bound for one list of devices."""

GONE_SECONDS = 90.0
"""Bound for the last pod to be forgotten: the agent's grace is a third of it."""

STEPS = 10
"""Looks at the agent's memory, while pods come and go."""

RESIDENT_BAR = 128


def node() -> SimulatedNode:
    return SimulatedNode(machine(MEMORY), agent_flags={"query-port": free_port()})


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("localhost", 0))
        port: int = one.getsockname()[1]
        return port


async def first_list(path: Path) -> tuple[float, int]:
    """Seconds from dialling to the first list, and the bytes of it."""
    begin = time.perf_counter()
    async with wire.dial(path) as channel:
        async for response in wire.DevicePluginClient(channel).list_and_watch():
            return time.perf_counter() - begin, response.ByteSize()
    raise SystemExit(f"{path}: no list")


async def list_times(one: SimulatedNode, count: int) -> None:
    for resource, name in SOCKETS.items():
        found = [await first_list(sockets_like(one.disk.kubelet / name)[0]) for _ in range(count)]
        size = found[0][1]
        share = f"{size / wire.MESSAGE_LIMIT:.0%} of the 4 MiB a kubelet takes"
        print(f"ListAndWatch, {resource}: {size:,} bytes, {share}")
        report("  first list after dialling", [seconds for seconds, _ in found])


def report(text: str, seconds: Sequence[float]) -> None:
    middle, most = statistics.median(seconds) * 1e3, max(seconds) * 1e3
    print(f"{text:<46} median {middle:7.1f} ms   most {most:7.1f} ms   n {len(seconds)}")


async def next_list(lists: AsyncIterator[Any], unhealthy: int) -> float:
    """When the list came in which so many devices or more are unhealthy."""
    async for response in lists:
        if sum(device.health == "Unhealthy" for device in response.devices) >= unhealthy:
            return time.perf_counter()
    raise SystemExit("the list of devices ended")


async def health_times(one: SimulatedNode) -> None:
    """Each GPU in turn falls ill for good: from its Xid to the list that says so.

    The first is not in the figures: the agent may not hear of Xids yet when it has registered.
    """
    first, *others = one.machine.topology.gpus
    each = {VCORE: 100, VMEMORY: MEMORY // (256 * MIB)}
    seconds: dict[str, list[float]] = {resource: [] for resource in SOCKETS}
    channels = {
        r: wire.dial(sockets_like(one.disk.kubelet / name)[0]) for r, name in SOCKETS.items()
    }
    lists = {r: wire.DevicePluginClient(c).list_and_watch() for r, c in channels.items()}
    async with asyncio.timeout(LIST_SECONDS):
        heard = [asyncio.create_task(next_list(lists[r], each[r])) for r in SOCKETS]
        while not all(task.done() for task in heard):
            SimulatedFaults(one.gpus).xid(first.uuid, FATAL_XID)
            await asyncio.wait(heard, timeout=1)
    for ill, gpu in enumerate(others, start=2):
        async with asyncio.timeout(LIST_SECONDS):
            begin = time.perf_counter()
            SimulatedFaults(one.gpus).xid(gpu.uuid, FATAL_XID)
            waiting = [next_list(lists[r], ill * each[r]) for r in SOCKETS]
            for resource, end in zip(SOCKETS, await asyncio.gather(*waiting), strict=True):
                seconds[resource].append(end - begin)
    for resource, channel in channels.items():
        report(f"from an Xid to the list, {resource}", seconds[resource])
        await channel.close(None)


def weigh(one: SimulatedNode, text: str) -> None:
    now, most = resident(one.agent.pid)
    files = sum(1 for _ in Path(f"/proc/{one.agent.pid}/fd").iterdir())
    verdict = "met" if most <= RESIDENT_BAR else "MISSED"
    shown = f"{now:.1f} MiB, most {most:.1f} MiB   bar {RESIDENT_BAR} {verdict}"
    print(f"resident, {text + ':':<23} {shown}; {files} open files", flush=True)


async def all_gone(one: SimulatedNode) -> None:
    """Until the agent has removed what it made for pods that are gone."""
    async with asyncio.timeout(GONE_SECONDS):
        while any(map(is_of_an_allocation, (one.disk.virtual / "alloc").iterdir())):  # noqa: ASYNC110  # another process
            await asyncio.sleep(0.1)


def is_of_an_allocation(directory: Path) -> bool:
    """Not one that was made ahead."""
    return not directory.name.startswith(".")


async def cycles(one: SimulatedNode, count: int) -> None:
    """That many pods come and go; what the agent weighs ten times on the way, and at the end."""
    weigh(one, "no pod yet")
    begin = time.perf_counter()
    step = max(1, count // STEPS)
    for done in range(0, count, step):
        show(f"{done:,} of {count:,} pods")
        await come_and_go(one, min(step, count - done))
        show("")
        weigh(one, f"{min(done + step, count):,} pods later")
    seconds = time.perf_counter() - begin
    print(f"{count:,} pods came and went in {seconds:.0f} s, {1e3 * seconds / count:.0f} ms each")
    await all_gone(one)
    weigh(one, "all of them forgotten")


def show(progress: str) -> None:
    """To whoever sits at a terminal."""
    if sys.stderr.isatty():
        print(f"\r{progress:<40}\r", end="", file=sys.stderr, flush=True)


async def measure(one: SimulatedNode, options: argparse.Namespace) -> None:
    weigh(one, "nothing placed")
    for number in range(options.containers):
        await admit(one, f"placed-{number}")
    weigh(one, f"{options.containers} containers")
    await list_times(one, options.lists)
    await health_times(one)


def load() -> str:
    return " ".join(f"{one:.1f}" for one in os.getloadavg())


async def main(words: Sequence[str] | None = None) -> None:
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("--lists", type=int, default=50, help="asked for, of each resource")
    arguments.add_argument("--containers", type=int, default=256, help="placed")
    arguments.add_argument("--cycles", type=int, default=10_000, help="pods that come and go")
    options = arguments.parse_args(words)
    print(f"{machine_line()}; load {load()} at the start")
    keep_bytecode()
    async with node() as one:
        await measure(one, options)
    host.SHORT = IN_MEMORY  # type: ignore[misc]
    async with node() as one:
        await cycles(one, options.cycles)
    print(f"load {load()} at the end")


if __name__ == "__main__":
    asyncio.run(main())
