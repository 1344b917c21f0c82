"""The configuration of an allocation: what it may use of each GPU.

Written by the manager alone, word by word, under processes that read it; each word stands for
itself, and the generation grows after the last. The manager judges by what it has written, never by
what the page says: a container may have found a way to write it.
"""

import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from gpumanager.compute.values import MILLION, Grant
from gpumanager.errors import GpuManagerError
from gpumanager.gpu.values import GpuUUID
from gpumanager.names import CONFIG_NAME
from gpumanager.units import CORES_PER_GPU, Bytes
from gpumanager.virtual.mapping import Layout, Region, begin, create, lost_with_the_machine
from gpumanager.virtual.values import AllocationID, Limit
from vcuda_shim._shim import ffi, lib

CONFIG: Final = Layout(CONFIG_NAME, "struct vcuda_config", lib.VCUDA_CONFIG_MAGIC, 0o644)
MAX_DEVICES: Final[int] = lib.VCUDA_DEVICES

_GPU_PREFIX: Final = "GPU-"


class Config(Region):
    """The configuration, mapped."""

    layout = CONFIG
    _written: tuple[Limit, ...] | None = None

    @classmethod
    def prepare(
        cls, directory: Path, allocation: AllocationID, limits: Sequence[Limit]
    ) -> "Config":
        """Open the configuration, created if need be, and make it say `limits`."""
        path = directory / CONFIG_NAME
        if lost_with_the_machine(path):
            create(directory, CONFIG, _config_head(allocation))
        config = cls(directory, writable=True)
        try:
            config.write(limits)
        except GpuManagerError:
            config.close()
            raise
        return config

    def name(self, allocation: AllocationID) -> None:
        """Whose it is, of one that was made before that was known; nobody reads it yet."""
        self.words.allocation = allocation.encode()

    def limits(self) -> tuple[Limit, ...]:
        """One per device, in the order of the books' devices: as we wrote them; what the page says
        only where we did not."""
        if self._written is not None:
            return self._written
        count = min(self.words.device_count, MAX_DEVICES)
        return tuple(_read_limit(self.words.limits[device]) for device in range(count))

    def write(self, limits: Sequence[Limit]) -> None:
        """Make it say `limits`, in running processes too.

        A device keeps its place for good, since the books count by it; one that is no longer
        listed keeps a limit of 0.
        """
        wanted = {limit.gpu: limit for limit in limits}
        known = self.limits()
        target = [wanted.pop(old.gpu, withdrawn(old.gpu)) for old in known]
        target += wanted.values()
        if len(target) > MAX_DEVICES:
            raise GpuManagerError(f"{self.path}: {len(target)} GPUs, {MAX_DEVICES} at most")
        gpus = [gpu_bytes(limit.gpu) for limit in target]
        for device, limit in enumerate(target):
            _store_limit(self.words, device, limit)
        for gpu in gpus[len(known) :]:
            lib.region_device_add(self.words, gpu)
        self._written = tuple(target)
        lib.region_config_publish(self.words)

    def grant(self, device: int, grant: Grant, until_ns: int) -> None:
        """What may be charged from now until then; no file is written, nobody is woken."""
        words = (grant.rate_ppm, grant.others_ppm, grant.neighbours)
        prices = (grant.cost_ppm, grant.long_ppm)
        lib.region_share_store(self.words, device, *words, *prices, until_ns)

    def contexts(self) -> Iterator[tuple[GpuUUID, Bytes]]:
        """What is known of a context on each GPU; a file keeps it for the next manager."""
        for device, limit in enumerate(self.limits()):
            yield limit.gpu, Bytes(self.words.limits[device].context_bytes)

    def write_contexts(self, size: Callable[[GpuUUID], Bytes]) -> None:
        """Make it say how large a context is, where that is known."""
        for device, limit in enumerate(self.limits()):
            if size(limit.gpu):
                lib.region_context_store(self.words, device, size(limit.gpu))
        lib.region_config_publish(self.words)


def withdrawn(gpu: GpuUUID) -> Limit:
    """Nothing more may be used of this GPU."""
    return Limit(gpu, memory=Bytes(0), cores=0, ceiling=0)


def _store_limit(words: Any, device: int, limit: Limit) -> None:
    rate = min(limit.cores, CORES_PER_GPU) * MILLION // CORES_PER_GPU
    lib.region_limit_store(
        words, device, limit.memory, limit.cores, limit.ceiling, rate, limit.burst_us
    )


def _config_head(allocation: AllocationID) -> bytes:
    config: Any = ffi.new("struct vcuda_config *")
    begin(config, CONFIG)
    config.allocation = allocation.encode()
    return bytes(ffi.buffer(config))


def _read_limit(words: Any) -> Limit:
    gpu = GpuUUID(_GPU_PREFIX + str(uuid.UUID(bytes=bytes(ffi.buffer(words.uuid)))))
    memory, burst_us = Bytes(words.memory_bytes), words.burst_us
    return Limit(gpu, memory, words.core_percent, words.core_ceiling, burst_us)


def gpu_bytes(gpu: GpuUUID) -> bytes:
    """The 16 bytes the driver gives for a GPU that NVML writes as `GPU-…`."""
    try:
        return uuid.UUID(gpu.removeprefix(_GPU_PREFIX)).bytes
    except ValueError as error:
        raise GpuManagerError(f"{gpu!r} is not the UUID of a GPU") from error
