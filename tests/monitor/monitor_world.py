"""A node of two GPUs for the monitor: promises, books and a driver, said in a word."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpumanager.errors import GpuManagerError
from gpumanager.gpu.nvml_service import NvmlDriver, NvmlReader, NvmlService
from gpumanager.gpu.usage.nvml_pass import GpuStatus, NvmlQuery, NvmlReading
from gpumanager.gpu.usage.samples import GpuUtilization, ProcessSample
from gpumanager.gpu.values import Bond, Gpu, GpuUUID, Level, bare, topology
from gpumanager.grants.grant import Claimant, DevicePluginSource, Grant, Share, State
from gpumanager.grants.journal import Journal
from gpumanager.grants.ledger import Ledger
from gpumanager.ids import AllocationID, ContainerID, PodUID
from gpumanager.limits.processes import Process
from gpumanager.limits.values import AllocationUsage, DeviceUsage, Limit, ProcessUsage
from gpumanager.monitor.ports import Sources
from gpumanager.monitor.snapshot import Resident
from gpumanager.placement.values import Evaluator
from gpumanager.runtime.cgroup import Membership, Place
from gpumanager.units import GIB, MIB, Bytes


def gpu(index: int) -> Gpu:
    uuid = GpuUUID(f"GPU-0000000{index}-0000-0000-0000-000000000000")
    return Gpu(index, index, uuid, f"00000000:0{index + 1}:00.0", "T4", Bytes(16 * GIB))


BOND = Bond(Level.PHB)
NODE = topology([gpu(0), gpu(1)], [[None, BOND], [BOND, None]])
FIRST, SECOND = NODE.gpus
BOTH = frozenset(bare(one.uuid) for one in NODE.gpus)
EVERYTHING = NvmlQuery(status=True, processes=BOTH, samples=BOTH)


def claimant(pod: str = "pod", container: str = "main", uid: str | None = None) -> Claimant:
    return Claimant(PodUID(uid or f"uid-{pod}"), "team", pod, container)


def share(
    owner: Claimant | None,
    name: str = "a1",
    *,
    cores: int = 30,
    blocks: int = 4,
    on: Gpu = FIRST,
    first: int = 0,
    time: float = 1.0,
    **more: Any,
) -> Grant:
    """first: the number of its first device of each kind."""
    stem = on.uuid[4:12]
    return Grant(
        AllocationID(name),
        DevicePluginSource(
            f"admission of {name}",
            tuple(f"{stem}-c-{first + number}" for number in range(cores)),
            tuple(f"{stem}-m-{first + number}" for number in range(blocks)),
        ),
        {on.uuid: Share(cores, blocks)},
        why="fits",
        time=time,
        **{"state": State.CONFIRMED if owner else State.ANSWERED, "pod": owner, **more},
    )


def whole(owner: Claimant, name: str = "w1", gpus: Sequence[Gpu] = (SECOND,)) -> Grant:
    return Grant(
        AllocationID(name),
        DevicePluginSource(
            f"admission of {name}",
            tuple(f"{one.uuid[4:12]}-c-{core}" for one in gpus for core in range(100)),
        ),
        {one.uuid: Share(100, 0) for one in gpus},
        Evaluator.LINK,
        "fits",
        1.0,
        state=State.CONFIRMED,
        pod=owner,
    )


def process(pid: int) -> Process:
    return Process(pid, 10 * pid)


def usage(
    promise: Grant,
    held: Mapping[int, int] | None = None,
    *,
    memory: int = GIB,
    charged_ns: int = 0,
    **meter: Any,
) -> AllocationUsage:
    """held: bytes of each pid on its one GPU."""
    held = held or {}
    limit = Limit(promise.gpus[0], Bytes(memory), promise.cores, promise.ceiling or promise.cores)
    zeros = {"peak": 0, "denied": 0, "throttled_ns": 0, "launches": 0, "throttled": 0}
    device = DeviceUsage(
        limit=limit, held=Bytes(sum(held.values())), charged_ns=charged_ns, **{**zeros, **meter}
    )
    processes = tuple(
        ProcessUsage(slot, pid, process(pid).start_time, 0, (Bytes(size),))
        for slot, (pid, size) in enumerate(held.items())
    )
    return AllocationUsage(promise.id, 1, (device,), processes)


def member(owner: Claimant | str, container: str | None = "c") -> Membership:
    uid = owner if isinstance(owner, str) else owner.uid
    name = None if container is None else ContainerID(container * 64)
    return Membership(PodUID(uid), name, Place(frozenset(), "/kubepods/x"))


def resident(pid: int, held: int | None = 100 * MIB, on: Gpu = FIRST, **more: Any) -> Resident:
    return Resident(process(pid), on, None if held is None else Bytes(held), **more)


@dataclass
class World:
    """What the monitor looks at; change it as you like. Implements Driver, Books and Residents."""

    promises: Sequence[Grant] = ()
    usages: Sequence[AllocationUsage] = ()
    status: Mapping[GpuUUID, GpuStatus] = field(default_factory=dict)
    held: Mapping[GpuUUID, Mapping[int, Bytes | None]] = field(default_factory=dict)
    samples: Sequence[ProcessSample] | None = ()
    members: Mapping[int, Membership] = field(default_factory=dict)
    broken: GpuManagerError | None = None
    looks: int = 0
    read: int = 0
    """Books."""
    asked: list[NvmlQuery] = field(default_factory=list)

    def __call__(self, question: NvmlQuery) -> NvmlReading:
        self.looks += 1
        self.asked.append(question)
        if self.broken:
            raise self.broken
        samples = None if self.samples is None else tuple(self.samples)
        asked_of = question.processes or ()
        return NvmlReading(
            self.status if question.status else None,
            {gpu: pids for gpu, pids in self.held.items() if bare(gpu) in asked_of},
            {FIRST.uuid: GpuUtilization(0, samples)} if question.samples else {},
        )

    def usage(self, grant: Grant) -> AllocationUsage:
        self.read += 1
        for one in self.usages:
            if one.allocation == grant.id:
                return one
        raise GpuManagerError(f"no books of {grant.id}")

    def of(self, process: Process) -> Membership | None:
        return self.members.get(process.pid)

    def sources(self, **more: Any) -> Sources:
        given: dict[str, Any] = {
            "node": "node-1",
            "topology": lambda: NODE,
            "ledger": lambda: Ledger(NODE),
            "journal": lambda: Journal({one.id: one for one in self.promises}),
            "journal_bytes": lambda: 1000,
            "books": self,
            "residents": self,
            "registered": lambda: {"r": True},
        }
        return Sources(**{**given, **more})


def reader_of(driver: NvmlDriver, seconds: float = 0.8) -> NvmlReader:
    """The monitor's."""
    return NvmlReader(NvmlService(driver, apart_seconds=0), "NVML does not answer", seconds)
