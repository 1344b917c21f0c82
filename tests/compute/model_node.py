"""Containers of a model on one GPU or two, and the real shares, looked at ten times a second."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gpumanager.compute.shares import Shares
from gpumanager.compute.values import MILLION, SECOND, Holder, Reading, ShareLease
from gpumanager.gpu.usage.samples import GpuUtilization, ProcessSample
from gpumanager.gpu.values import GpuUUID

GPU = GpuUUID("a0")
OTHER = GpuUUID("a1")
TICK = SECOND // 10
GLANCE = TICK // 4
PERIODS_PER_TICK = 2


@dataclass
class Container:
    """Wants a share of the GPU, and is held to its rate; what it takes is charged by `factor`."""

    name: str
    guarantee: int
    ceiling: int
    wants: float = 0.0
    factor: float = 1.0
    gpu: GpuUUID = GPU
    took: float = 0.0
    took_in_all: float = 0.0
    charged: float = 0.0
    waits: int = 0
    long_scale: float = 1.0
    debt: float = 0.0
    rate: float = 0.0
    others: float = 0.0
    neighbours: int = 0
    brief: bool = False
    listed_as: int = 0
    untold: bool = False
    departed: int = 0

    def run(self, room: float) -> None:
        """One tick, in which the GPU has so much room for it."""
        per_charge = self.factor
        allowed = max(0.0, self.rate - self.debt) / per_charge
        self.debt = max(0.0, self.debt - self.rate)
        self.took = min(self.wants, allowed, room)
        self.took_in_all += self.took * TICK
        self.waits += self.wants > self.took
        self.charged += self.took * per_charge * TICK
        self.departed += self.brief

    def reading(self) -> Reading:
        return Reading(
            holder=(self.name, 0),
            gpu=self.gpu,
            guarantee=self.guarantee / 100,
            ceiling=self.ceiling / 100,
            pids=frozenset([] if self.brief else [pid(self.name)]),
            paid_until=0,
            charged_ns=round(self.charged),
            retired_ns=max(1, round(self.charged)),
            waits=self.waits,
            departed=self.departed,
        )

    def apply(self, grant: ShareLease) -> None:
        self.rate = grant.rate_ppm / MILLION
        self.others = grant.others_ppm / MILLION
        self.neighbours = grant.neighbours
        self.long_scale = grant.long_ppm / MILLION
        debt_rate = grant.debt_ppm / MILLION or self.rate
        self.debt += grant.debt_ns / TICK * self.rate / debt_rate
        self.charged += grant.debt_ns


def pid(name: str) -> int:
    return ord(name[0])


class Node:
    """The containers, their shares, and a driver that samples every GPU every half tick or so."""

    def __init__(self, *containers: Container, sampled: bool = True, told: bool = True) -> None:
        self.containers, self.sampled, self.told = containers, sampled, told
        self.shares = Shares()
        self.strangers: dict[int, float] = {}
        self.now = 0
        for container in containers:
            container.rate = container.guarantee / 100

    def tick(self, count: int = 1) -> None:
        for _ in range(count):
            self.now += TICK
            room = 1 - sum(self.strangers.values())
            for container in self.containers:
                container.run(room)
                room -= container.took
            self._share()

    def poll(self) -> None:
        self.now += GLANCE
        self._apply(self.shares.poll(self.now, self.readings()))

    def readings(self) -> list[Reading]:
        return [container.reading() for container in self.containers]

    def _share(self) -> None:
        answers = {gpu: self._answer(gpu) for gpu in (GPU, OTHER)} if self.sampled else {}
        self._apply(self.shares.tick(self.now, self.readings(), answers))

    def _apply(self, grants: Mapping[Holder, ShareLease]) -> None:
        for container in self.containers:
            if (container.name, 0) in grants:
                container.apply(grants[container.name, 0])

    def _answer(self, gpu: GpuUUID) -> GpuUtilization:
        here = (one for one in self.containers if one.gpu == gpu and not (one.brief or one.untold))
        busy = {one.listed_as or pid(one.name): one.took for one in here}
        busy |= self.strangers if gpu == GPU else {}
        samples = (ProcessSample(who, self.now, round(100 * took)) for who, took in busy.items())
        took = sum(one.took for one in self.containers if one.gpu == gpu)
        listed = tuple(sample for sample in samples if sample.percent > 0)
        return GpuUtilization(self.now, listed, round(100 * took) if self.told else None)


def hard(name: str, guarantee: int, wants: float = 1.0, factor: float = 1.0) -> Container:
    return Container(name, guarantee, guarantee, wants, factor)


def elastic(name: str, guarantee: int, wants: float = 1.0, ceiling: int = 100) -> Container:
    return Container(name, guarantee, ceiling, wants)


def rates(containers: Iterable[Container]) -> list[float]:
    return [round(container.rate, 3) for container in containers]
