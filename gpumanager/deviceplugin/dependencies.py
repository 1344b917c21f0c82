"""What the allocator works with: the services beside it, and how it is set."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from gpumanager.deviceplugin.identity.device_checkpoint import DeviceCheckpoint
from gpumanager.gpu.values import Gpu, GpuUUID
from gpumanager.grants.grant import Claimant
from gpumanager.grants.journal_file import JournalFile
from gpumanager.ids import PodUID
from gpumanager.isolation.table import Isolations
from gpumanager.kubelet.pods import PodsSource
from gpumanager.placement.policies import BINPACK
from gpumanager.runtime.values import LiveContainers
from gpumanager.supervisor import SkippedErrors


class Tenants(Protocol):
    """The pods that have processes on each GPU."""

    async def pods(self) -> Mapping[GpuUUID, frozenset[PodUID]] | None:
        """The pods with a process on each GPU, as their cgroups name them; None: not known."""


class Annotations(Protocol):
    """Keeps what a pod's annotations say of its GPUs true."""

    def correct(self, pod: Claimant, gpus: tuple[Gpu, ...]) -> None:
        """This container has these GPUs, whatever was planned. Returns at once."""


@dataclass(frozen=True, slots=True)
class Dependencies:
    """Services and settings of one allocator.

    pods: None where the kubelet's list may not be read. runtime: lists running containers; None
    without one. tenants: the pods with processes on each GPU, by the driver.
    annotations: None where no API server is written to. original: gpu-manager's checkpoint, to take
    its pods over. share_mode: whether less than a whole GPU is given. gpu_policy: by which policy
    the GPU for a share is chosen. grace: seconds for which a pod has to look ended before its
    grants are released. skipped: errors about one allocation each. clock: seconds since the epoch,
    which an administrator may set. elapsed: seconds of a monotonic clock.
    """

    isolation: Isolations
    journal: JournalFile
    books: DeviceCheckpoint
    pods: PodsSource | None = None
    runtime: LiveContainers | None = None
    tenants: Tenants | None = None
    annotations: Annotations | None = None
    original: Path | None = None
    share_mode: bool = True
    gpu_policy: str = BINPACK
    grace: float = 30.0
    skipped: SkippedErrors = field(default_factory=SkippedErrors)
    clock: Callable[[], float] = time.time
    elapsed: Callable[[], float] = time.monotonic
