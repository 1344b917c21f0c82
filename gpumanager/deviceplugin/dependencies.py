"""What the allocator works with: the services beside it, and how it is set."""

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from gpumanager.deviceplugin.identity.device_checkpoint import DeviceCheckpoint
from gpumanager.deviceplugin.identity.evidence import Evidence
from gpumanager.gpu.values import Gpu, GpuUUID, Topology
from gpumanager.grants.grant import Claimant, ClaimSource, Grant
from gpumanager.ids import PodUID
from gpumanager.isolation.table import Isolations
from gpumanager.kubelet.pods import PodsSource
from gpumanager.placement.policies import BINPACK
from gpumanager.runtime.status import LiveContainers
from gpumanager.supervisor import SkippedErrors


class AdmissionEvents(Protocol):
    """Remembers what went otherwise than planned. pod: None where it is not known."""

    def refused(self, pod: Claimant | None, text: str) -> None:
        """A pod failed."""

    def postponed(self, pod: Claimant | None, text: str) -> None:
        """The start of a container failed, and the kubelet tries again."""

    def swapped(self, pod: Claimant, expected: Claimant) -> None:
        """A container started with a grant that was made for another pod."""


class NoEvents:
    """Remembers nothing."""

    def refused(self, pod: Claimant | None, text: str) -> None: ...
    def postponed(self, pod: Claimant | None, text: str) -> None: ...
    def swapped(self, pod: Claimant, expected: Claimant) -> None: ...


Tenants = Callable[[], Awaitable[Mapping[GpuUUID, frozenset[PodUID]] | None]]
"""Returns the pods with a process on each GPU, as their cgroups name them; None: not known."""

Inheritance = Callable[[Topology, Evidence, float], tuple[Grant, ...]]
"""Returns the grants of an earlier manager that the evidence shows. At which time, in seconds since
the epoch."""


ClaimOf = Callable[[Claimant], ClaimSource | None]
"""Returns a claim that a container uses, as far as known."""


@dataclass(frozen=True, slots=True)
class Dependencies:
    """Services and settings of one allocator.

    pods: None where the kubelet's list may not be read. runtime: lists running containers; None
    without one. tenants: the pods with processes on each GPU, by the driver. annotate: makes a
    pod's annotations say that a container has these GPUs, whatever was planned, and returns at
    once; None where no API server is written to. inherited: grants of pods that began under
    gpu-manager. events: told of what went otherwise than planned. share_mode: whether less than a
    whole GPU is given. gpu_policy: by which policy the GPU for a share is chosen. grace: seconds
    for which a pod has to look ended before its grants are released. skipped: errors about one
    allocation each. clock: seconds since the epoch, which an administrator may set. elapsed:
    seconds of a monotonic clock.
    """

    isolation: Isolations
    books: DeviceCheckpoint
    pods: PodsSource | None = None
    runtime: LiveContainers | None = None
    tenants: Tenants | None = None
    annotate: Callable[[Claimant, tuple[Gpu, ...]], None] | None = None
    inherited: Inheritance = lambda _topology, _evidence, _now: ()
    share_mode: bool = True
    gpu_policy: str = BINPACK
    events: AdmissionEvents = field(default_factory=NoEvents)
    claim_of: ClaimOf = lambda _container: None
    grace: float = 30.0
    skipped: SkippedErrors = field(default_factory=SkippedErrors)
    clock: Callable[[], float] = time.time
    elapsed: Callable[[], float] = time.monotonic
