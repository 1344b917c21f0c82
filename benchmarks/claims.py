"""What the kubelet waits for with claims, and what the node's ResourceSlice costs.

    python benchmarks/claims.py [--claims N] [--pods N] [--burst N] [--rounds N] [--on-disk]

NodePrepareResources and NodeUnprepareResources by the clock of the simulated kubelet, which calls
the real agent, a process of its own, over its unix sockets. 16 GPUs; 256 claims of a share each are
prepared already, and more come and go, one after another, then many at once. A claim and its pod
are written a moment before, as the scheduler and the claim controller do, so that the agent's watch
and the kubelet's call race as they do on a node. Python's gRPC on both sides is in the figures, and
the simulated API server works in the process that holds the clock. The journal lies in /dev/shm by
default, where forcing it to a disk costs nothing. The clock's process collects no garbage while it
measures.

Then: how long after an answer the slice tells of it, how many writes so many changes make, and how
much memory the agent has.
"""

import argparse
import asyncio
import gc
import itertools
import json
import statistics
import tempfile
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from agent import MEMORY, RESIDENT_BAR, free_port
from allocate import GPUS, IN_MEMORY, keep_bytecode, machine, resident
from machine_line import machine_line
from plugin_calls import agent_seconds

from gpumanager.dra.slice import slice_name
from gpumanager.kube.access import Access
from gpumanager.kube.claims import device_name
from gpumanager.kube.client import KubeClient
from gpumanager.names import CLAIM_DEVICE_CLASS, CLAIM_DRIVER
from gpumanager.sim import host
from gpumanager.sim.cluster.objects import Key
from gpumanager.sim.cluster.server import SimulatedApiServer
from gpumanager.sim.kubelet.dra.api import NodeApi
from gpumanager.sim.kubelet.dra.drivers import DriverInstance
from gpumanager.sim.manifest.pods import Pod, parse_pods
from gpumanager.sim.node import SimulatedNode

NODE: Final = "n1"
SPACE: Final = "default"
CORES, BLOCKS = 5, 8
"""Of each claim: 16 of them leave a fifth of their GPU."""

BARS: Final = {"prepare": (5.0, 15.0), "unprepare": (5.0, 15.0)}
"""ms, p50 and p99."""

SLICE_BAR: Final = 1.0
"""Seconds after a change."""

SETTLED_SECONDS: Final = 1.0
"""Without a write of the slice, until all that was to be written is taken to be."""

Figures = dict[str, list[float]]
"""ms, or a number of writes, by what was measured."""


class CallClock:
    """How long each call of the driver took, by its name; ms."""

    def __init__(self) -> None:
        self.spent: Figures = {call: [] for call in BARS}
        self.answered = 0.0
        self.asked = 0.0
        """When the last of them were."""
        for call in BARS:
            setattr(DriverInstance, call, self._timed(call, getattr(DriverInstance, call)))

    def _timed(self, call: str, method: Callable[..., Awaitable[Any]]) -> Callable[..., Any]:
        async def run(driver: DriverInstance, claims: Sequence[Any]) -> Any:
            begin = self.asked = time.perf_counter()
            try:
                return await method(driver, claims)
            finally:
                self.answered = time.perf_counter()
                self.spent[call].append(1e3 * (self.answered - begin))

        return run

    def take(self) -> Figures:
        spent, self.spent = self.spent, {call: [] for call in BARS}
        return spent


class ClaimsNode:
    """A node whose agent serves claims, and an API server that has what schedulers decide."""

    def __init__(self, folder: Path) -> None:
        self.server = SimulatedApiServer()
        self.port = free_port()
        self.writes: list[float] = []
        """When the slice was written."""
        self.wrote = asyncio.Event()
        """Of the next write."""
        self._folder = folder
        self._numbers = itertools.count()

    async def run(self, measure: Callable[["ClaimsNode"], Awaitable[None]]) -> None:
        await self.server.start()
        await self.server.create("nodes", {"metadata": {"name": NODE}})
        client = KubeClient(Access(self.server.url))
        kubeconfig = self._folder / "kubeconfig"
        kubeconfig.write_text(self.server.kubeconfig)
        flags = {
            "interface": "claims",
            "kubeconfig": kubeconfig,
            "hostname-override": NODE,
            "query-port": self.port,
        }
        node = SimulatedNode(machine(MEMORY), api=NodeApi(client, NODE), agent_flags=flags)
        following = asyncio.create_task(self._follow())
        try:
            async with node:
                self.node = node
                await measure(self)
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            await client.close()
            await self.server.stop()

    async def written(self) -> None:
        """Until nothing more is written."""
        with suppress(TimeoutError):
            while True:
                async with asyncio.timeout(SETTLED_SECONDS):
                    await self.wrote.wait()

    async def bound(self) -> Pod:
        """A pod of this node whose claim is allocated; as its kubelet reads it."""
        number = next(self._numbers)
        name = f"p{number}"
        gpu = self.node.machine.topology.gpus[number % GPUS]
        pod = {
            "metadata": {"name": name, "namespace": SPACE, "uid": f"uid-{name}"},
            "spec": {
                "nodeName": NODE,
                "resourceClaims": [{"name": "gpu", "resourceClaimName": name}],
                "containers": [
                    {
                        "name": "main",
                        "image": "none",
                        "command": ["true"],
                        "resources": {"claims": [{"name": "gpu"}]},
                    }
                ],
            },
        }
        claim = _claim(name, device_name(gpu.uuid))
        await self.server.create("resourceclaims", claim)
        key = Key("resourceclaims", SPACE, name)
        await self.server.change(key, {"status": claim["status"]}, status=True)
        made = await self.server.create("pods", pod)
        (found,) = parse_pods(json.dumps(made), name)
        if rejection := await self.node.kubelet.admit(found):
            raise SystemExit(f"{name}: {rejection}")
        return found

    async def prepared(self, pod: Pod) -> None:
        if not await self.node.kubelet.prepare_claims(pod):
            raise SystemExit(f"{pod.full_name} is not prepared")
        self.node.kubelet.running(pod.uid)

    async def gone(self, pod: Pod) -> None:
        await self.node.kubelet.unprepare_claims(pod)
        self.node.kubelet.ended(pod.uid, failed=False)
        self.node.kubelet.delete(pod.uid)
        for resource in ("pods", "resourceclaims"):
            await self.server.remove(Key(resource, SPACE, pod.name))

    async def _follow(self) -> None:
        key, seen, version = Key("resourceslices", "", slice_name(NODE)), "", 0
        while True:
            await self.server.changed_since(version)
            version = self.server.objects.version
            found = self.server.objects.rows.get(key)
            now = found["metadata"]["resourceVersion"] if found else ""
            if now and now != seen:
                seen = now
                self.writes.append(time.perf_counter())
                before, self.wrote = self.wrote, asyncio.Event()
                before.set()


def _claim(name: str, device: str) -> dict[str, Any]:
    amounts = {"cores": str(CORES), "memory": f"{BLOCKS * 256}Mi"}
    exactly = {
        "deviceClassName": CLAIM_DEVICE_CLASS,
        "allocationMode": "ExactCount",
        "count": 1,
        "capacity": {"requests": amounts},
    }
    result = {
        "request": "gpu",
        "driver": CLAIM_DRIVER,
        "pool": NODE,
        "device": device,
        "shareID": str(uuid.uuid4()),
        "consumedCapacity": amounts,
    }
    return {
        "metadata": {"name": name, "namespace": SPACE, "uid": f"uid-claim-{name}"},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
        "status": {
            "allocation": {"devices": {"results": [result]}},
            "reservedFor": [{"resource": "pods", "name": name, "uid": f"uid-{name}"}],
        },
    }


async def one_by_one(node: ClaimsNode, clock: CallClock, pods: int) -> Figures:
    """Prepared, told of in the slice, unprepared, told of, and gone."""
    behind: list[float] = []

    async def told() -> None:
        while node.writes[-1] < clock.asked:  # on a busy machine it may come before the answer
            await node.wrote.wait()
        behind.append(1e3 * (node.writes[-1] - clock.answered))

    for _ in range(pods):
        pod = await node.bound()
        await node.prepared(pod)
        await told()
        await node.gone(pod)
        await told()
        gc.collect()
    return {**clock.take(), "slice after an answer": behind}


async def at_once(node: ClaimsNode, clock: CallClock, pods: int) -> Figures:
    """All prepared at once; then all of them gone."""
    found: Figures = {"writes": [], "last write after the last answer": []}
    together = [await node.bound() for _ in range(pods)]
    for step in (node.prepared, node.gone):
        await node.written()
        before = len(node.writes)
        await asyncio.gather(*(step(pod) for pod in together))
        await node.written()
        found["writes"].append(len(node.writes) - before)
        found["last write after the last answer"].append(1e3 * (node.writes[-1] - clock.answered))
    return {**{f"{call}, {pods} at once": row for call, row in clock.take().items()}, **found}


async def measure(options: argparse.Namespace) -> Figures:
    """One round, on a fresh node."""
    clock, found = CallClock(), Figures()

    async def work(node: ClaimsNode) -> None:
        for _ in range(options.claims):
            await node.prepared(await node.bound())
        await node.written()
        clock.take()
        gc.freeze()
        gc.disable()
        before = await asyncio.to_thread(agent_seconds, node.port)
        found.update(await one_by_one(node, clock, options.pods))
        after = await asyncio.to_thread(agent_seconds, node.port)
        found["in the agent, both calls"] = [1e3 * (after - before) / options.pods]
        found.update(await at_once(node, clock, options.burst))
        gc.enable()
        now, most = resident(node.node.agent.pid)
        found["agent resident, MiB"], found["agent resident at most, MiB"] = [now], [most]

    with tempfile.TemporaryDirectory() as folder:
        await ClaimsNode(Path(folder)).run(work)
    return found


def lines(rounds: Sequence[Figures]) -> Iterator[str]:
    """Of all rounds together, and in brackets the rounds' own middles: how far they lie apart."""
    for name in rounds[0]:
        rows = [one[name] for one in rounds]
        every = sorted(itertools.chain.from_iterable(rows))
        middles = [statistics.median(row) for row in rows]
        spread = f"(p50 of rounds {min(middles):.2f} to {max(middles):.2f})"
        if len(every) < 50:
            yield f"{name:<34} {statistics.median(every):8.2f}   {every[0]:.2f} to {every[-1]:.2f}"
            continue
        cuts = statistics.quantiles(every, n=100)
        p50, p99 = cuts[49], cuts[98]
        verdict = _verdict(BARS[name], p50, p99) if name in BARS else ""
        yield f"{name:<34} least {every[0]:6.2f}   p50 {p50:7.2f} ms   p99 {p99:7.2f} ms{verdict}"
        yield f"{'':<34} n {len(every)}   {spread}"
    most = max(one["agent resident at most, MiB"][0] for one in rounds)
    yield f"agent at most {most:.0f} MiB: bar {RESIDENT_BAR} {_met(most <= RESIDENT_BAR)}"
    late = max(max(one["slice after an answer"]) for one in rounds)
    yield f"slice told at most {late:.0f} ms late: bar {SLICE_BAR:.0f} s {_met(late <= 1e3)}"


def _verdict(bar: tuple[float, float], p50: float, p99: float) -> str:
    return f"   bar {bar[0]:.0f} / {bar[1]:.0f} {_met(p50 <= bar[0] and p99 <= bar[1])}"


def _met(met: bool) -> str:  # noqa: FBT001 - of one thing
    return "met" if met else "MISSED"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--claims", type=int, default=256, help="prepared before")
    parser.add_argument("--pods", type=int, default=100, help="that come and go, in each round")
    parser.add_argument("--burst", type=int, default=50, help="that come at once, in each round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--on-disk", action="store_true", help="the journal is forced to a disk")
    options = parser.parse_args()
    keep_bytecode()
    if not options.on_disk:
        host.SHORT = IN_MEMORY  # type: ignore[misc]
    print(f"{machine_line()}; {options.claims} claims on {GPUS} GPUs, {options.rounds} rounds")
    print("\n".join(lines([asyncio.run(measure(options)) for _ in range(options.rounds)])))


if __name__ == "__main__":
    main()
