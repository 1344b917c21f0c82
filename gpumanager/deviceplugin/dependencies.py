"""What the allocator works with: the services beside it, and how it is set."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from gpumanager.deviceplugin.identity.device_checkpoint import DeviceCheckpoint
from gpumanager.grants.journal_file import JournalFile
from gpumanager.grants.ports import Annotations, Tenants
from gpumanager.isolation.table import Isolations
from gpumanager.kubelet.pods import PodsSource
from gpumanager.runtime.values import LiveContainers
from gpumanager.supervisor import SkippedErrors


@dataclass(frozen=True, slots=True)
class Dependencies:
    """Services and settings of one allocator.

    pods: None where the kubelet's list may not be read. runtime: who runs; None where nobody tells.
    tenants: whose processes are on the GPUs, by the driver.
    annotations: None where the API server is not to be told. original: gpu-manager's checkpoint,
    whose pods are taken over. share_mode: whether less than a whole GPU
    is given. grace: seconds for which a pod has to look ended before reconciling releases what it
    held. skipped: errors about one allocation each. clock: seconds since the epoch, which somebody
    may set. elapsed: seconds, never back.
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
    grace: float = 30.0
    skipped: SkippedErrors = field(default_factory=SkippedErrors)
    clock: Callable[[], float] = time.time
    elapsed: Callable[[], float] = time.monotonic
