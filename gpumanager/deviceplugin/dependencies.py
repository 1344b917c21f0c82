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
from gpumanager.isolation.table import Isolations
from gpumanager.kube.pod import PodUID
from gpumanager.kubelet.pods import PodsSource
from gpumanager.placement.policies import BINPACK
from gpumanager.runtime.values import LiveContainers
from gpumanager.supervisor import SkippedErrors


class Tenants(Protocol):
    """Whose processes are on the GPUs."""

    async def pods(self) -> Mapping[GpuUUID, frozenset[PodUID]] | None:
        """The pods with a process on each GPU, as their cgroups name them; None: not known."""


class Annotations(Protocol):
    """Keeps what a pod's annotations say of its GPUs true."""

    def correct(self, pod: Claimant, gpus: tuple[Gpu, ...]) -> None:
        """This container has these GPUs, whatever was planned. Returns at once."""


@dataclass(frozen=True, slots=True)
class Dependencies:
    """Services and settings of one allocator.

    pods: None where the kubelet's list may not be read. runtime: who runs; None where nobody tells.
    tenants: whose processes are on the GPUs, by the driver.
    annotations: None where the API server is not to be told. original: gpu-manager's checkpoint,
    whose pods are taken over. share_mode: whether less than a whole GPU is given. gpu_policy: by
    which policy the GPU for a share is chosen. grace: seconds for which a pod has to look ended
    before reconciling releases what it held. skipped: errors about one allocation each. clock:
    seconds since the epoch, which somebody may set. elapsed: seconds, never back.
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
