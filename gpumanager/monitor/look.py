"""From what everybody says at one moment to one snapshot. Pure.

Of two grants to a container of the same names the later counts: a pod that is made anew under its
old name must not be told twice. Grants of claims are not made anew under a name; several of a claim
may be shown for the same container.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from gpumanager.gpu.usage.nvml_pass import GpuStatus
from gpumanager.gpu.usage.samples import ProcessSample, UtilizationByGpu
from gpumanager.gpu.values import GpuUUID, Topology, bare
from gpumanager.grants.grant import Claimant, ClaimSource, Grant, State
from gpumanager.grants.ledger import Ledger
from gpumanager.ids import AllocationID
from gpumanager.limits.pages.books import DEGRADATIONS
from gpumanager.limits.processes import Process
from gpumanager.limits.values import AllocationUsage
from gpumanager.monitor.ports import GpuFitness
from gpumanager.monitor.snapshot import ContainerSnapshot, DeviceView, GpuSnapshot, Resident
from gpumanager.units import CORES_PER_GPU, MEMORY_BLOCK, Bytes, blocks

FULL_PERCENT: Final = 100
SECOND_NS: Final = 1_000_000_000
SAMPLES_LAST_NS: Final = 3 * SECOND_NS // 2
"""A driver tells of a process once a second at least, as long as that computes."""

SOUND: Final = dict.fromkeys(DEGRADATIONS.values(), 0)

Charged = Mapping[tuple[AllocationID, GpuUUID], int]
"""GPU time each had paid for at the last look."""


@dataclass(frozen=True, slots=True)
class Busy:
    """The newest sample of each process, of each bare GPU that tells any."""

    samples: Mapping[GpuUUID, Mapping[int, ProcessSample]] = field(default_factory=dict)

    def after(self, answers: UtilizationByGpu, now_ns: int) -> "Busy":
        found = {}
        for gpu, answer in answers.items():
            if answer.samples is not None:
                known = self.samples.get(bare(gpu), {}).values()
                every = (*known, *sorted(answer.samples, key=lambda one: one.ended_ns))
                newest = {o.pid: o for o in every if now_ns - o.ended_ns <= SAMPLES_LAST_NS}
                found[bare(gpu)] = newest
        return Busy(found)

    def percent(self, gpu: GpuUUID, pids: Iterable[int]) -> int | None:
        """Return the sum of these processes; None of a GPU that is not sampled."""
        samples = self.samples.get(bare(gpu))
        if samples is None:
            return None
        return min(FULL_PERCENT, sum(samples[pid].percent for pid in pids if pid in samples))


@dataclass(frozen=True, slots=True)
class MeterTotals:
    """What containers are told by. charged: at an earlier look; seconds: since that; 0: there was
    none.

    before: the usages of the last look. status: of GPUs, for those that one container has whole.
    """

    usages: Mapping[AllocationID, AllocationUsage]
    residents: Mapping[tuple[AllocationID, GpuUUID], tuple[Resident, ...]]
    busy: Busy
    charged: Charged = field(default_factory=dict)
    seconds: float = 0.0
    before: Mapping[AllocationID, AllocationUsage] = field(default_factory=dict)
    status: Mapping[GpuUUID, GpuStatus] = field(default_factory=dict)


def charged(usages: Iterable[AllocationUsage]) -> Charged:
    return {(u.allocation, bare(d.limit.gpu)): d.charged_ns for u in usages for d in u.devices}


def gpu_views(
    ledger: Ledger,
    live: Sequence[Grant],
    status: Mapping[GpuUUID, GpuStatus],
    fitness: Mapping[GpuUUID, GpuFitness],
) -> Iterator[GpuSnapshot]:
    books = ledger.unheld(live)
    holders = Counter(gpu for one in live if one.counts for gpu in one.gpus)
    for gpu in ledger.topology.gpus:
        book = books.of(gpu)
        yield GpuSnapshot(
            gpu,
            cores=CORES_PER_GPU - book.cores,
            memory=Bytes((blocks(gpu.memory) - book.blocks) * MEMORY_BLOCK),
            containers=holders[gpu.uuid],
            status=status.get(gpu.uuid),
            fitness=fitness.get(gpu.uuid, GpuFitness()),
        )


def container_view(
    topology: Topology, grant: Grant, meters: MeterTotals, users: tuple[Claimant, ...] = ()
) -> ContainerSnapshot | None:
    """Return what is shown of a grant. users: as far as known.

    None for one whose container is not confirmed yet, which has no name to go by, for admin access,
    which holds nothing, and for what has neither device IDs nor a claim.
    """
    claim = isinstance(grant.source, ClaimSource) and not grant.source.admin
    if grant.pod is None or grant.state is not State.CONFIRMED or not (grant.ids.core_ids or claim):
        return None
    users = users or (grant.pod,)
    usage = meters.usages.get(grant.id)
    devices = tuple(_devices(topology, grant, meters))
    processes = usage.processes if usage else ()
    marked = [one.degraded for one in processes if one.degraded]
    found = Counter(name for bits in marked for bit, name in DEGRADATIONS.items() if bits & bit)
    return ContainerSnapshot(
        users[0],
        grant,
        devices,
        SOUND | found if found else SOUND,  # most are sound, and those share one value
        tuple(Process(one.pid, one.start_time) for one in processes if one.unlimited),
        read=usage is not None,
        overdrawn=usage is not None and usage.overdrawn,
        users=users,
    )


def latest(views: Iterable[ContainerSnapshot]) -> tuple[ContainerSnapshot, ...]:
    """Return the newest of each name, and all grants of claims."""
    by_name = {
        (view.labels, view.claim and view.grant.id): view
        for view in sorted(views, key=lambda one: one.grant.time)
    }
    return tuple(by_name.values())


def same(
    view: ContainerSnapshot, grant: Grant, meters: MeterTotals, users: tuple[Claimant, ...]
) -> bool:
    """Return whether it would look the same again: nothing was done, and no process is there."""
    name = grant.id
    usage = meters.usages.get(name)
    return (
        view.grant is grant
        and view.users == (users or view.users)
        and usage is not None
        and usage == meters.before.get(name)
        and not any(
            one.share or one.pids or (name, one.gpu.uuid) in meters.residents
            for one in view.devices
        )
        and all(one.percent == meters.busy.percent(one.gpu.uuid, ()) for one in view.devices)
    )


def _devices(topology: Topology, grant: Grant, meters: MeterTotals) -> Iterator[DeviceView]:
    usage = meters.usages.get(grant.id)
    by_gpu = {bare(one.limit.gpu): one for one in usage.devices} if usage else {}
    for gpu in filter(None, map(topology.by_uuid, grant.gpus)):
        share = grant.shares[gpu.uuid]
        own = meters.residents.get((grant.id, gpu.uuid), ())
        pids = tuple(sorted(one.process.pid for one in own))
        if share.exclusive:
            # No books are kept: NVML's status gives all but the pods of its processes.
            view = DeviceView(gpu, gpu.memory, CORES_PER_GPU, CORES_PER_GPU, pids=pids)
            if status := meters.status.get(gpu.uuid):
                used = Bytes(min(status.memory_used, gpu.memory))
                view = replace(view, measured=used, percent=status.percent)
        else:
            sizes = [one.held for one in own]
            held = sum(size for size in sizes if size is not None)
            view = DeviceView(
                gpu,
                Bytes(share.blocks * MEMORY_BLOCK),
                share.cores,
                min(max(grant.ceiling or 0, share.cores), CORES_PER_GPU),
                measured=None if None in sizes else Bytes(min(held, gpu.memory)),
                percent=meters.busy.percent(gpu.uuid, pids),
                pids=pids,
            )
        device = by_gpu.get(bare(gpu.uuid))
        if device is None:
            yield view
            continue
        before = meters.charged.get((grant.id, bare(gpu.uuid)), device.charged_ns)
        paid = max(0, device.charged_ns - before)
        paid_percent = FULL_PERCENT * paid / (meters.seconds * SECOND_NS) if meters.seconds else 0.0
        yield replace(
            view,  # with the limits of the journal: what a page says of them proves nothing
            used=device.held,
            peak=device.peak,
            share=min(paid_percent, float(FULL_PERCENT)),
            charged_ns=device.charged_ns,
            throttled_ns=device.throttled_ns,
            launches=device.launches,
            throttled=device.throttled,
            refused=device.denied,
        )
