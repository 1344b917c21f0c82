"""How often the agent asks the driver: NVML calls a second, by the part that asks.

    python benchmarks/nvml_calls.py [--seconds N]

The real agent on a simulated node of eight GPUs, without a pod, with one share of one GPU, and with
GPUs held whole; each with nobody who reads its metrics, with one scrape in 15 s, and with one a
second, as `top` has. Calls that NVML's library answers by itself (which GPUs there are, handles,
UUIDs) and waits for events are left out: they take no lock of the driver.
"""

import argparse
import asyncio
import tempfile
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Final

from agent import free_port
from counted_agent import asks_driver, instead, told

from gpumanager.kube.pod import ContainerKind
from gpumanager.names import VCORE, VMEMORY
from gpumanager.sim.machines import load_machine
from gpumanager.sim.manifest.pods import ContainerManifest, Pod
from gpumanager.sim.node import SimulatedNode

SETTLED_SECONDS: Final = 12.0
"""After the start and the pods: the first round of everything is over."""

HOLD: Final = ("cuda-play", "hold", "--memory", "100MiB", "--seconds", "100000")
PODS: Final = {
    "no pod": (),
    "one share": ({VCORE: 30, VMEMORY: 4},),
    "one share, 3 whole GPUs": ({VCORE: 30, VMEMORY: 4}, {VCORE: 100}, {VCORE: 200}),
    "3 whole GPUs": ({VCORE: 100}, {VCORE: 200}),
}
READERS: Final = {"nobody reads": None, "a scrape in 15 s": 15.0, "a scrape a second": 1.0}


def pod(number: int, asks: dict[str, int]) -> Pod:
    return Pod(
        "team", f"p{number}", (ContainerManifest("main", ContainerKind.APP, HOLD, asks=asks),)
    )


async def read(port: int, seconds: float | None) -> None:
    while seconds is not None:
        await asyncio.to_thread(urllib.request.urlopen, f"http://localhost:{port}/metrics")
        await asyncio.sleep(seconds)


async def calls(
    pods: tuple[dict[str, int], ...], reader: float | None, seconds: float
) -> Counter[str]:
    """Of the driver, by thread, within so many seconds."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        lines = Path(folder, "calls")
        flags = {"query-port": port}
        with instead(lines):
            async with SimulatedNode(load_machine("dgx-a100"), agent_flags=flags) as node:
                every = [pod(number, asks) for number, asks in enumerate(pods)]
                for one in every:
                    await node.admit(one)
                running = [asyncio.create_task(node.runner.run(one)) for one in every]
                await asyncio.sleep(SETTLED_SECONDS)
                reading = asyncio.create_task(read(port, reader))
                begin = len(told(lines))
                await asyncio.sleep(seconds)
                found = told(lines)[begin:]
                node.kill_containers()
                for task in (reading, *running):
                    task.cancel()
                await asyncio.gather(reading, *running, return_exceptions=True)
    return Counter(who for who, name, _ in found if asks_driver(name))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=30)
    seconds = parser.parse_args().seconds
    print("| pods | reader | calls/s | of which |\n|---|---|---|---|")
    for pods, asks in PODS.items():
        for reader, every in READERS.items():
            found = asyncio.run(calls(asks, every, seconds))
            parts = ", ".join(f"{who} {n / seconds:.1f}" for who, n in found.most_common())
            print(f"| {pods} | {reader} | {found.total() / seconds:.1f} | {parts} |", flush=True)


if __name__ == "__main__":
    main()
