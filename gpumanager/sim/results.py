"""What became of a container: what it asked for, was granted and used.

Memory and time used are the simulated GPUs' own account of the container's mount namespace, which
knows nothing of limits; refusals are from the books that the shim keeps.
"""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gpumanager.gpu.values import Gpu
from gpumanager.grants.journal_file import FILE_NAME, JournalFile
from gpumanager.ids import AllocationID
from gpumanager.limits.pages.books import read_usage
from gpumanager.limits.pages.mapping import RegionBroken, RegionUnreadable
from gpumanager.limits.values import DeviceUsage
from gpumanager.sim.gpu import TenantAccount
from gpumanager.sim.manifest.pods import ContainerManifest, Pod
from gpumanager.units import CORES_PER_GPU, MEMORY_BLOCK


@dataclass(frozen=True, slots=True)
class MeasuredUse:
    """Over all GPUs of the container, in bytes and percent.

    memory_denied: allocations refused at the limit. share: mean over the GPUs it had work on; None
    without work. throttled, throttled_seconds: launches that were made to wait for their
    share, and how long all of them together. seconds: the longest that it had work on a GPU,
    from its first to its last.
    """

    memory_peak: int = 0
    memory_denied: int = 0
    share: float | None = None
    throttled: int = 0
    throttled_seconds: float = 0.0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class ContainerResult:
    """gpus, why: the decision; empty for a container without GPUs. exit_code: None if it never ran.

    memory_limit: bytes it may hold; for whole GPUs all of their memory. refused: why it never ran.
    stopped: it ran on until it was told to end, so its exit code says nothing of it.
    """

    pod: Pod
    container: ContainerManifest
    gpus: tuple[Gpu, ...] = ()
    why: str = ""
    memory_limit: int = 0
    measured: MeasuredUse = MeasuredUse()
    exit_code: int | None = None
    refused: str | None = None
    stopped: bool = False

    @property
    def failed(self) -> bool:
        """Return whether it never ran, or ended badly by itself."""
        return self.exit_code != 0 and not self.stopped

    @property
    def share_target(self) -> int | None:
        """Return percent of each GPU's time; None for a container without GPUs."""
        return min(self.container.cores, CORES_PER_GPU) if self.container.cores else None


def memory_limit(container: ContainerManifest, gpus: Sequence[Gpu]) -> int:
    """Return what was granted: the blocks asked for, or whole cards."""
    if container.cores >= CORES_PER_GPU:
        return sum(gpu.memory for gpu in gpus)
    return container.blocks * MEMORY_BLOCK


def measure(account: TenantAccount | None, allocation: Path | None) -> MeasuredUse:
    """Sum up its use. account: None if it never met a GPU. allocation: its books' directory."""
    devices = account.devices.values() if account is not None else ()
    used: tuple[DeviceUsage, ...] = ()
    # The container may have made nonsense of its books, or the disk fail.
    with contextlib.suppress(RegionBroken, RegionUnreadable):
        used = read_usage(allocation).devices if allocation is not None else ()
    shares = [
        share
        for device in devices
        if (share := share_of(device.busy_ns, device.first_work_ns, device.last_end_ns)) is not None
    ]
    return MeasuredUse(
        memory_peak=sum(device.bytes_peak for device in devices),
        memory_denied=sum(one.denied for one in used),
        share=round(sum(shares) / len(shares), 1) if shares else None,
        throttled=sum(one.throttled for one in used),
        throttled_seconds=round(sum(one.throttled_ns for one in used) / 1e9, 3),
        seconds=max((one.last_end_ns - one.first_work_ns for one in devices), default=0) / 1e9,
    )


def why(checkpoint: Path, allocation: str) -> str:
    """Return the sentence that the agent wrote into its journal on why a container got its GPUs.

    Empty for a container without GPUs; raises JournalUnreadable.
    """
    if not allocation:
        return ""
    found = JournalFile(checkpoint / FILE_NAME).load().get(AllocationID(allocation))
    return found.why if found is not None else ""


def share_of(busy: int, first_work: int, last_end: int) -> float | None:
    """Return percent of the time from the first kernel, fill or copy to the end of the last."""
    return 100 * busy / (last_end - first_work) if last_end > first_work else None
