"""What the monitor knows at one moment: every GPU, every container, every process. Values only."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from gpumanager.gpu.usage.nvml_pass import GpuStatus
from gpumanager.gpu.values import Gpu, Topology
from gpumanager.grants.grant import Claimant, ClaimSource, Grant
from gpumanager.ids import AllocationID
from gpumanager.limits.processes import Process
from gpumanager.monitor.ports import GpuFitness
from gpumanager.runtime.cgroup import Membership
from gpumanager.units import Bytes

NO_BYTES: Final = Bytes(0)
NO_GPUS: Final = Topology((), ())


@dataclass(frozen=True, slots=True)
class GpuSnapshot:
    """One GPU. cores: percent granted; containers: that hold some of it.

    status: None where the driver does not tell of it now.
    """

    gpu: Gpu
    cores: int = 0
    memory: Bytes = NO_BYTES
    containers: int = 0
    status: GpuStatus | None = None
    fitness: GpuFitness = field(default_factory=GpuFitness)


@dataclass(frozen=True, slots=True)
class DeviceView:
    """One GPU of a container. Of a whole GPU only what the driver tells is known.

    limit, used, peak: bytes by the books. measured: bytes of its processes by the driver, percent:
    for how much of the last period they kept it busy; None where it does not tell.
    granted, ceiling: percent of its time. share: percent of its time paid for since the last look.
    """

    gpu: Gpu
    limit: Bytes
    granted: int
    ceiling: int
    used: Bytes = NO_BYTES
    peak: Bytes = NO_BYTES
    measured: Bytes | None = None
    percent: int | None = None
    share: float = 0.0
    charged_ns: int = 0
    throttled_ns: int = 0
    launches: int = 0
    throttled: int = 0
    refused: int = 0
    pids: tuple[int, ...] = ()


def labels_of(owner: Claimant) -> tuple[str, str, str]:
    """As the metrics have them. Its pod's UID stands for a name that is not known yet."""
    return owner.namespace, owner.name or owner.uid, owner.container


@dataclass(frozen=True, slots=True)
class ContainerSnapshot:
    """A grant as it is used: by one container, or by all that use a claim together.

    owner: the container it is shown for, the first of `users`, who share all its limits.
    degraded: how many of its processes lack what, by the names of `books.DEGRADATIONS`.
    unlimited: processes of which the shim reports that it cannot hold their limits.
    read: whether its books have ever been; of a whole GPU there are none.
    overdrawn: it goes on launching out of turn.
    """

    owner: Claimant
    grant: Grant
    devices: tuple[DeviceView, ...]
    degraded: Mapping[str, int] = field(default_factory=dict)
    unlimited: tuple[Process, ...] = ()
    read: bool = True
    overdrawn: bool = False
    users: tuple[Claimant, ...] = ()

    @property
    def claim(self) -> ClaimSource | None:
        """None for one that came by a device plugin."""
        source = self.grant.source
        return source if isinstance(source, ClaimSource) else None

    @property
    def whole(self) -> bool:
        """It has whole GPUs and nothing else, so that no books are kept."""
        return all(share.exclusive for share in self.grant.shares.values())

    @property
    def labels(self) -> tuple[str, str, str]:
        return labels_of(self.owner)


@dataclass(frozen=True, slots=True)
class Resident:
    """One process on one GPU.

    held: bytes by the driver. booked: bytes by the books of `allocation`; None: they do not know
    it. allocation: whose it is, as far as known; of: what its cgroup says. adopted: the books of a
    manager before this one say so, which the container can write.
    """

    process: Process
    gpu: Gpu
    held: Bytes | None
    allocation: AllocationID | None = None
    booked: Bytes | None = None
    of: Membership | None = None
    adopted: bool = False


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All of it. at: monotonic seconds. answered: whether the driver told anything when it was
    asked last. asked: whether it was asked about processes at this look. live: all grants, also
    those without a container to show, each with the containers that use it, as far as known."""

    at: float
    node: str
    answered: bool
    topology: Topology = NO_GPUS
    live: tuple[tuple[Grant, tuple[Claimant, ...]], ...] = ()
    gpus: tuple[GpuSnapshot, ...] = ()
    containers: tuple[ContainerSnapshot, ...] = ()
    residents: tuple[Resident, ...] = ()
    journal: Mapping[str, int] = field(default_factory=dict)
    """How many allocations are in which state."""
    journal_bytes: int = 0
    registered: Mapping[str, bool] = field(default_factory=dict)
    mismatched: int = 0
    disagreements: Mapping[str, int] = field(default_factory=dict)
    released: int = 0
    asked: bool = True
    slice_writes: int = 0
