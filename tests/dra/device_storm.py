"""Device-plugin pods and claims at random on a node whose GPUs move, and a judge of what they had.

The judge reads the kubelet's device checkpoint, the claims and slices of the API server, and the
simulated driver's account of processes and bytes. It imports nothing of what decides on a node.
"""

import asyncio
import base64
import json
import uuid
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from random import Random
from typing import Any

from gpumanager.deviceplugin.api import deviceplugin_v1beta1_pb2 as pb
from gpumanager.kube.pod import ContainerKind
from gpumanager.sim.cluster.objects import Key
from gpumanager.sim.kubelet.pods import Phase, requested
from gpumanager.sim.manifest.pods import NODE, ContainerManifest, Pod
from tests.dra.node_of_claims import NodeOfClaims
from tests.sim.claims.claim_objects import request

CORES, MEMORY = "tencent.com/vcuda-core", "tencent.com/vcuda-memory"
BLOCK = 256 << 20
UNITS = {"Mi": 20, "Gi": 30}
WORK = "cuda-play launch --kernel 1ms --seconds 0.3 --memory {memory}MiB"
WAITING = 10
"""Pods of each kind that run or wait: more than have room, and few enough to simulate."""
SECONDS_OF_A_MOVE = 8.0
PATIENCE = 1800.0
"""Seconds for a pod to find room; a storm is larger than its node."""
STATUS_SECONDS = 0.5
"""As often the kubelet tells the scheduler what is allocatable."""


@dataclass
class StormFigures:
    """What happened. most_cores, most_bytes: on any GPU at any time, by the judge.

    failed: containers that did not start or end well. faults: what the judge found.
    """

    devices: int = 0
    claims: int = 0
    tried_twice: set[str] = field(default_factory=set)
    refused_prepares: int = 0
    moves: int = 0
    kills: int = 0
    looks: int = 0
    shared_looks: int = 0
    most_cores: int = 0
    most_bytes: int = 0
    busiest: int = 0
    refusals: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Hold:
    """Of one GPU, by its minor. kind: by what it was asked for."""

    kind: str
    pod: str
    minor: int
    cores: int
    memory: int


class Judge:
    """Looks at one node again and again."""

    def __init__(self, node: NodeOfClaims, figures: StormFigures) -> None:
        self._node, self._figures = node, figures
        self._minors: dict[str, int] = {}
        self._listed: frozenset[str] = frozenset()
        machine = node.node.machine
        self._by_uuid = {gpu.uuid: gpu for gpu in machine.topology.gpus}

    async def watch(self) -> None:
        while True:
            self.look()
            await asyncio.sleep(0.02)

    def look(self) -> None:
        """The driver first: whoever has a process there is a pod that still counts."""
        figures, node = self._figures, self._node.node
        namespaces = defaultdict(set)
        for process in node.gpus.processes():
            namespaces[process.gpu].add(process.mount_namespace)
        used = {name: node.gpus.device_bytes(name) for name in self._by_uuid}
        self._read_slice()
        holds: defaultdict[int, list[Hold]] = defaultdict(list)
        for one in (*self._of_devices(), *self._of_claims()):
            holds[one.minor].append(one)
        figures.looks += 1
        figures.shared_looks += len({one.kind for rows in holds.values() for one in rows}) == 2
        for name, gpu in self._by_uuid.items():
            rows = holds[gpu.minor]
            cores, memory = sum(one.cores for one in rows), sum(one.memory for one in rows)
            figures.most_cores = max(figures.most_cores, cores)
            figures.most_bytes = max(figures.most_bytes, used[name])
            figures.busiest = max(figures.busiest, len(namespaces[name]))
            for wrong, what in (
                (len({one.kind for one in rows}) > 1, "both kinds"),
                (cores > 100, f"{cores} cores"),
                (memory > gpu.memory, f"{memory} bytes granted"),
                (used[name] > gpu.memory, f"{used[name]} bytes used"),
                (len(namespaces[name]) > len(rows), f"{len(namespaces[name])} tenants"),
            ):
                if wrong:
                    figures.faults.append(f"GPU {gpu.index}: {what}: {rows}")

    def rooms(self) -> list[int]:
        """Free cores of each GPU that claims have not."""
        self._read_slice()
        held, claimed = Counter[int](), {self._minors[one] for one in self._listed}
        for one in (*self._of_devices(), *self._of_claims()):
            held[one.minor] += one.cores
            claimed |= {one.minor} if one.kind == "claims" else set()
        minors = (gpu.minor for gpu in self._by_uuid.values())
        return [100 - held[minor] for minor in minors if minor not in claimed]

    def _read_slice(self) -> None:
        """A device is known by its UUID for as long as anybody may hold it."""
        found = self._node.slice()
        devices = (found or {"spec": {}})["spec"].get("devices") or ()
        for one in devices:
            uuid = one["attributes"]["uuid"]["string"]
            self._minors[one["name"]] = self._by_uuid[uuid].minor
        listed = frozenset(one["name"] for one in devices)
        if found is not None:
            self._figures.moves += len(listed ^ self._listed)
            self._listed = listed

    def _of_devices(self) -> Iterator[Hold]:
        """By the kubelet's checkpoint: IDs are amounts, and device nodes are GPUs."""
        kubelet = self._node.node.kubelet
        path = self._node.node.disk.kubelet / "kubelet_internal_checkpoint"
        if not path.exists():
            return
        amounts: dict[str, Counter[str]] = defaultdict(Counter)
        minors: dict[str, set[int]] = defaultdict(set)
        for one in json.loads(path.read_text())["Data"]["PodDeviceEntries"] or ():
            pod = one["PodUID"]
            if pod not in kubelet.pods.active_uids:
                continue
            amounts[pod][one["ResourceName"]] += sum(map(len, one["DeviceIDs"].values()))
            response = base64.b64decode(one["AllocResp"])
            for device in pb.ContainerAllocateResponse.FromString(response).devices:
                number = device.container_path.removeprefix("/dev/nvidia")
                minors[pod] |= {int(number)} if number.isdecimal() else set()
        for pod, found in minors.items():
            for minor in found:
                cores, memory = amounts[pod][CORES], amounts[pod][MEMORY] * BLOCK
                yield Hold("devices", pod, minor, cores, memory)

    def _of_claims(self) -> Iterator[Hold]:
        """By the API server: allocations of claims whose pods run."""
        statuses = self._node.node.kubelet.pods.statuses.values()
        running = {one.pod.uid for one in statuses if one.phase is Phase.RUNNING}
        for claim in self._node.server.objects.list("resourceclaims"):
            status: Mapping[str, Any] = claim.get("status") or {}
            users = {one["uid"] for one in status.get("reservedFor") or ()}
            results = (status.get("allocation") or {"devices": {}})["devices"].get("results") or ()
            for one in results if users & running else ():
                taken = one["consumedCapacity"]
                memory = int(taken["memory"][:-2]) << UNITS[taken["memory"][-2:]]
                minor = self._minors[one["device"]]
                yield Hold("claims", min(users), minor, int(taken["cores"]), memory)


class DeviceStorm:
    """pods: of each kind. kills: how often the agent is killed."""

    def __init__(self, node: NodeOfClaims, pods: int, seed: int, kills: int = 0) -> None:
        self._node, self._pods, self._kills = node, pods, kills
        self._random = Random(seed)
        self._admission = asyncio.Lock()
        self._bound: dict[str, Pod] = {}
        self._allocatable: dict[str, int] = {}
        self.figures = StormFigures()
        self._judge = Judge(node, self.figures)

    async def run(self) -> StormFigures:
        watch = self._judge.watch()
        beside = [asyncio.create_task(one) for one in (watch, self._status(), self._move())]
        try:
            async with asyncio.TaskGroup() as group:
                for kind in (self._device_pod, self._claim_pod):
                    numbers = iter(range(self._pods))
                    for _ in range(WAITING):
                        group.create_task(self._one_by_one(kind, numbers))
            self._judge.look()
        finally:
            for one in beside:
                one.cancel()
            ended = await asyncio.gather(*beside, return_exceptions=True)
        for error in ended:
            if not isinstance(error, asyncio.CancelledError):
                raise error if isinstance(error, BaseException) else AssertionError(error)
        events = self._node.server.objects.list("events")
        self.figures.refused_prepares = sum(
            int(one.get("count") or 1) for one in events if "device plugins" in one["message"]
        )
        return self.figures

    async def _one_by_one(
        self, kind: Callable[[int], Awaitable[None]], numbers: Iterator[int]
    ) -> None:
        for number in numbers:
            await asyncio.sleep(self._random.uniform(0, 1))
            await kind(number)

    async def _device_pod(self, number: int) -> None:
        cores = self._random.choice([20, 30, 50, 100])
        blocks = 0 if cores == 100 else self._random.randint(2, 6)
        asks = {CORES: cores} | ({MEMORY: blocks} if blocks else {})
        command = WORK.format(memory=200 * (blocks or 4))
        main = ContainerManifest("main", ContainerKind.APP, ("sh", "-c", command), asks=asks)
        pod = Pod("default", f"devices-{number}", (main,))
        self.figures.devices += 1
        while not await self._try(pod):
            self.figures.tried_twice.add(pod.name)
            pod = replace(pod, uid=str(uuid.uuid4()))
            await asyncio.sleep(1)  # the first back-off of kube-scheduler's queue

    async def _try(self, pod: Pod) -> bool:
        """Bound when the scheduler sees room, admitted, and run to its end."""
        node = self._node.node
        while pod.uid not in self._bound:
            async with self._admission:
                if self._fits(pod):
                    self._bound[pod.uid] = pod
                    rejected = await node.admit(pod)
            await asyncio.sleep(0.05)
        try:
            if rejected is not None:
                self.figures.refusals.append(str(rejected))
                return False
            (result,) = await node.runner.run(pod)
            if result.exit_code != 0:
                self.figures.failed.append(f"{pod.name}: {result.exit_code} {result.refused}")
        finally:
            del self._bound[pod.uid]
            node.kubelet.delete(pod.uid)
        return True

    def _fits(self, pod: Pod) -> bool:
        """By what the kubelet has told, and by the rooms of GPUs, as an extender knows them. That
        a GPU is about to go neither knows."""
        wanted = {name: requested(pod.containers, name) for name in (CORES, MEMORY)}
        fits = all(
            amount + sum(requested(one.containers, name) for one in self._bound.values())
            <= self._allocatable.get(name, 0)
            for name, amount in wanted.items()
        )
        rooms = self._judge.rooms() if fits else ()
        return any(cores >= wanted[CORES] for cores in rooms)

    async def _claim_pod(self, number: int) -> None:
        cores, memory = self._random.choice([20, 30, 50, 100]), 256 * self._random.randint(2, 6)
        name = f"claims-{number}"
        await self._node.claim(name, request("gpu", cores, f"{memory}Mi"))
        self.figures.claims += 1
        command = WORK.format(memory=memory * 3 // 4)
        pod = await self._node.pod(name, {"main": [(name, "gpu")]}, command, PATIENCE)
        (result,) = await self._node.run_pod(pod)
        if result.exit_code != 0:
            self.figures.failed.append(f"{name}: {result.exit_code} {result.refused}")
        self._node.node.kubelet.delete(pod.uid)
        await self._node.server.remove(Key("pods", "default", name))

    async def _status(self) -> None:
        while True:
            books = self._node.node.kubelet.books
            self._allocatable = {name: books.capacity(name) for name in (CORES, MEMORY)}
            await asyncio.sleep(STATUS_SECONDS)

    async def _move(self) -> None:
        """Whoever has pods that wait, gets GPUs; now and then the agent is killed."""
        while True:
            number = self._random.choice([1, 2, 3])
            patch = {"metadata": {"annotations": {"tencent.com/claims-gpus": str(number)}}}
            await self._node.server.change(Key("nodes", "", NODE), patch)
            await asyncio.sleep(self._random.uniform(1, SECONDS_OF_A_MOVE))
            if self.figures.kills < self._kills:
                self.figures.kills += 1
                async with self._admission:  # a pod that is being admitted would be refused
                    await self._node.node.kill_agent()
                    await self._node.node.start_agent()
                    await self._node.node.kubelet.wait_for_devices((CORES, MEMORY), PATIENCE)


def said(figures: StormFigures) -> str:
    return json.dumps(asdict(figures), indent=1, default=sorted)
