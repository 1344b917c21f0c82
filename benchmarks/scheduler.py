"""How fast the extender answers kube-scheduler: filter and prioritize, and bind.

    python benchmarks/scheduler.py [--nodes N] [--pods N] [--names N] [--bind]

The extender is a process of its own. It reads its nodes from a stub of the API server, which is in
this process, as is the caller: one pod after another is filtered and prioritized over one
connection that stays open, as kube-scheduler does, and with --bind goes to a node that scored 10;
bindings are waited for in the background. So caller, stub and extender share the machine's cores.
Each request names its nodes in another order. --names: how many of them; kube-scheduler at its
defaults sends 5 % of 10,000. A pod's time is from before its filter is sent until its scores are
read.
"""

import argparse
import asyncio
import json
import os
import random
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from machine_line import machine_line

from gpumanager.cluster.labels import inventory
from gpumanager.gpu.values import Bond, Gpu, GpuUUID, Level, topology
from gpumanager.names import VCORE, VMEMORY
from gpumanager.units import GIB, Bytes

GPUS = 8
ORDERS = 64
SHAPES = ((30, 16), (50, 40), (10, 8), (100, 0), (25, 32), (200, 0), (75, 100), (400, 0), (800, 0))
WEIGHTS = (24, 16, 20, 20, 10, 4, 4, 1, 1)
BARS = (500.0, 5.0)
"""Pods a second, and ms at p99, at 10,000 nodes."""
KUBECONFIG = """
current-context: here
contexts: [{name: here, context: {cluster: here}}]
clusters: [{name: here, cluster: {server: "http://127.0.0.1:%d"}}]
"""
BEST = re.compile(rb'"Host":"([^"]+)","Score":10}')


def node(number: int) -> dict[str, Any]:
    gpus = [
        Gpu(n, n, GpuUUID(f"GPU-{number:08x}-{n}"), f"{n:02x}", "A100", Bytes(40 * GIB), n // 4)
        for n in range(GPUS)
    ]
    bonds = [[None if a == b else Bond(Level.SYS, 12) for b in range(GPUS)] for a in range(GPUS)]
    name = f"node-{number:05d}"
    return {"metadata": {"name": name, "annotations": inventory(topology(gpus, bonds))}}


def pod(number: int, shape: tuple[int, int]) -> dict[str, Any]:
    limits = {VCORE: str(shape[0]), VMEMORY: str(shape[1])}
    resources = {"limits": limits, "requests": limits}
    env = [{"name": f"VARIABLE_{n}", "value": "x" * 40} for n in range(20)]
    container = {"name": "main", "image": "registry.example/image:1", "env": env}
    return {
        "metadata": {"name": f"pod-{number}", "namespace": "default", "uid": f"uid-{number}"},
        "spec": {"containers": [{**container, "resources": resources}]},
    }


class StubApi:
    """Nodes to list, no pods, watches in which nothing happens, and bindings that succeed."""

    def __init__(self, nodes: int) -> None:
        self._nodes = nodes
        self.bound = 0

    async def start(self) -> int:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return int(server.sockets[0].getsockname()[1])

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        method, target, _ = head.split(" ", 2)
        if "watch=true" in target:
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            await reader.read()
        elif method == "POST":
            length = re.search(r"Content-Length: (\d+)", head)
            await reader.readexactly(int(length[1]) if length else 0)
            self.bound += 1
            _answer(writer, b"{}")
        else:
            kinds = range(self._nodes) if target.startswith("/api/v1/nodes") else ()
            items = [node(number) for number in kinds]
            _answer(
                writer, json.dumps({"metadata": {"resourceVersion": "1"}, "items": items}).encode()
            )
        writer.close()


def _answer(writer: asyncio.StreamWriter, body: bytes) -> None:
    writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)


class Caller:
    """One connection that stays open."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._socket: socket.socket | None = None

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()

    async def post(self, path: str, body: bytes) -> bytes:
        """The answer's body; fails where it is no success."""
        loop = asyncio.get_running_loop()
        if self._socket is None:
            self._socket = socket.create_connection(("127.0.0.1", self._port))
            self._socket.setblocking(False)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        await loop.sock_sendall(self._socket, head + body)
        said = bytearray()
        while (end := said.find(b"\r\n\r\n")) < 0:
            said += await loop.sock_recv(self._socket, 1 << 20)
        if not said.startswith(b"HTTP/1.1 200"):
            raise SystemExit(said.decode())
        length = re.search(rb"Content-Length: (\d+)", said[:end])
        assert length
        whole = end + 4 + int(length[1])
        while len(said) < whole:
            said += await loop.sock_recv(self._socket, 1 << 20)
        return bytes(said[end + 4 :])


class Run:
    """All pods of one run."""

    def __init__(self, port: int, options: argparse.Namespace) -> None:
        self._caller = Caller(port)
        self._port = port
        self._options = options
        self._luck = random.Random(options.seed)
        names = [f"node-{number:05d}" for number in range(options.nodes)]
        few = options.names or options.nodes
        orders = (self._luck.sample(names, few) for _ in range(ORDERS))
        self._orders = [json.dumps(one, separators=(",", ":")).encode() for one in orders]
        self._binds: set[asyncio.Task[None]] = set()
        self.seconds: list[float] = []
        self.nowhere = self.lost = 0

    async def run(self) -> float:
        """Seconds for all pods."""
        began = time.perf_counter()
        for number in range(self._options.pods):
            await self.place(number)
        await asyncio.gather(*self._binds)
        return time.perf_counter() - began

    async def place(self, number: int) -> None:
        shape = self._luck.choices(SHAPES, WEIGHTS)[0]
        said = json.dumps(pod(number, shape), separators=(",", ":")).encode()
        start = b'{"Pod":' + said + b',"Nodes":null,"NodeNames":'
        began = time.perf_counter()
        found = await self._caller.post(
            "/scheduler/filter", start + self._luck.choice(self._orders) + b"}"
        )
        names = found[found.index(b"[") : found.index(b"]") + 1]
        scores = b""
        if names == b"[]":
            self.nowhere += 1
        else:
            scores = await self._caller.post("/scheduler/prioritize", start + names + b"}")
        self.seconds.append(time.perf_counter() - began)
        if scores and self._options.bind:
            task = asyncio.create_task(self.bind(number, self.choose(names, scores)))
            self._binds.add(task)
            task.add_done_callback(self._binds.discard)

    def choose(self, names: bytes, scores: bytes) -> str:
        """One of the best; where nobody is named, all are alike."""
        best = BEST.findall(scores)
        if not best:
            best = names[2:-2].split(b'","')
        return str(self._luck.choice(best).decode())

    async def bind(self, number: int, node_name: str) -> None:
        names = {"PodName": f"pod-{number}", "PodNamespace": "default", "PodUID": f"uid-{number}"}
        body = json.dumps({**names, "Node": node_name}).encode()
        caller = Caller(self._port)
        answer = await caller.post("/scheduler/bind", body)
        caller.close()
        self.lost += json.loads(answer)["Error"] != ""


def memory(process: int) -> int:
    """MiB resident."""
    rows = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(row.split()[1]) // 1024 for row in rows if row.startswith("VmRSS"))


def worked(process: int | str) -> float:
    """Seconds of a processor."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def ready(port: int) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.1)
            continue
        writer.write(b"GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        if b" 200 " in await reader.readline():
            return
        await asyncio.sleep(0.1)
    raise SystemExit("the extender does not become ready")


async def with_extender(
    options: argparse.Namespace, work: Callable[[int, int], Coroutine[Any, Any, None]]
) -> None:
    api = await StubApi(options.nodes).start()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "kubeconfig"
        config.write_text(KUBECONFIG % api)
        flags = ["--kubeconfig", str(config), "--address", f"127.0.0.1:{port}"]
        command = [sys.executable, "-m", "gpumanager", "extender", "--leader-elect=false", *flags]
        process = await asyncio.create_subprocess_exec(*command, stderr=subprocess.DEVNULL)
        try:
            await ready(port)
            await work(port, process.pid)
        finally:
            process.terminate()
            await process.wait()


async def measure(options: argparse.Namespace) -> None:
    async def work(port: int, process: int) -> None:
        before = memory(process)
        run = Run(port, options)
        work_before = worked(process), worked("self")
        seconds = await run.run()
        work_after = worked(process), worked("self")
        report(options, run, seconds, (before, memory(process)))
        both = [(b - a) * 1e3 / options.pods for a, b in zip(work_before, work_after, strict=True)]
        print(f"processor: {both[0]:.2f} ms a pod for the extender, {both[1]:.2f} for its caller")

    await with_extender(options, work)


def report(
    options: argparse.Namespace, run: Run, seconds: float, resident: tuple[int, int]
) -> None:
    cuts = statistics.quantiles(run.seconds, n=1000)
    asked = sum(run.seconds)
    print(machine_line())
    print(
        f"{options.nodes} nodes of {GPUS} GPUs, {options.pods} pods, "
        f"{options.names or options.nodes} names a request"
    )
    print(f"filter + prioritize: {options.pods / asked:8.0f} pods/s   (bar {BARS[0]:.0f})")
    print(
        f"a pod: p50 {cuts[499] * 1e3:.2f} ms, p99 {cuts[989] * 1e3:.2f} ms (bar {BARS[1]:.0f}), "
        f"most {max(run.seconds) * 1e3:.1f} ms"
    )
    if options.bind:
        print(f"with bind: {options.pods / seconds:8.0f} pods/s; {run.lost} lost their place")
    print(f"pods that fitted nowhere: {run.nowhere}")
    print(f"resident: {resident[0]} MiB before, {resident[1]} MiB after")


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--pods", type=int, default=50_000)
    parser.add_argument("--names", type=int, default=0, help="of a request; 0: all")
    parser.add_argument("--bind", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    asyncio.run(measure(options()))
