"""The configuration of an allocation: what it may use of each GPU.

Written by the manager alone, word by word, under processes that read it; each word stands for
itself, and the generation grows after the last. The manager never reads what it has written: it
keeps the same words for itself. Processes open the file by themselves, in the mount of their
container, which is read-only for everybody in it: a descriptor of ours could be opened again for
writing by whoever is root there.
"""

import os
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Self

from gpumanager.errors import GpuManagerError
from gpumanager.gpu.values import GpuUUID
from gpumanager.ids import AllocationID
from gpumanager.limits.pages.mapping import (
    MappedStruct,
    RegionBroken,
    RegionUnreadable,
    RegionUnwritable,
    StructLayout,
    begin,
    create,
    lost_with_the_machine,
    open_region,
)
from gpumanager.limits.values import Limit
from gpumanager.names import CONFIG_NAME
from gpumanager.units import Bytes
from vcuda_shim._shim import ffi, lib

CONFIG: Final = StructLayout(CONFIG_NAME, "struct vcuda_config", lib.VCUDA_CONFIG_MAGIC, 0o644)
MAX_DEVICES: Final[int] = lib.VCUDA_DEVICES


_GPU_PREFIX: Final = "GPU-"


class Config:
    """The configuration: what this manager says, and a page on which the processes read it.

    words: ours, which nobody else can change, and no disk can take away. page: theirs, a file's;
    None for a reader.
    """

    def __init__(self, directory: Path, *, writable: bool) -> None:
        """Raises RegionUnreadable and RegionBroken."""
        self.directory = directory
        self._page: MappedStruct | None = None
        descriptor = open_region(self.path, writable=writable)
        try:
            content = os.pread(descriptor, CONFIG.size + 1, 0)
            if len(content) != CONFIG.size:
                size = os.fstat(descriptor).st_size
                raise RegionBroken(self.path, f"has {size} bytes, not {CONFIG.size}")
            self.words: Any = ffi.new("struct vcuda_config *")
            ffi.buffer(self.words)[:] = content
            CONFIG.check(self.words, self.path)
            if writable:
                self._page = MappedStruct(descriptor, CONFIG, self.path, resident=True)
        except OSError as error:
            raise RegionUnreadable(self.path, error) from error
        finally:
            os.close(descriptor)

    @property
    def path(self) -> Path:
        return self.directory / CONFIG_NAME

    @classmethod
    def prepare(
        cls, directory: Path, allocation: AllocationID, limits: Sequence[Limit]
    ) -> "Config":
        """Open the configuration, created if need be, and make it say `limits`."""
        path = directory / CONFIG_NAME
        if lost_with_the_machine(path):
            head: Any = ffi.new("struct vcuda_config *")
            begin(head, CONFIG)
            head.allocation = allocation.encode()
            create(directory, CONFIG, bytes(ffi.buffer(head)))
        config = cls(directory, writable=True)
        try:
            config.write(limits)
        except GpuManagerError:
            config.close()
            raise
        return config

    @property
    def page(self) -> Any:
        """Return the struct as processes of the container have it. Raises RegionUnwritable."""
        if self._page is None:
            raise RegionUnwritable(self.path)
        return self._page.words

    @property
    def lost(self) -> bool:
        """Return whether the page cannot be written: its readers have what it held before."""
        return self._page is not None and self._page.lost

    def recover(self) -> bool:
        """Write all of a page again that was lost. Return whether it is written now."""
        if self._page is None or not self.lost:
            return True
        try:
            descriptor = open_region(self.path, writable=True)
        except GpuManagerError:
            return False
        try:
            if os.fstat(descriptor).st_size != CONFIG.size or not self._page.renew(descriptor):
                return False
        finally:
            os.close(descriptor)
        self._publish()
        return not self.lost

    def close(self) -> None:
        if self._page is not None:
            self._page.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def limits(self) -> tuple[Limit, ...]:
        """Return one per device, in the order of the books' devices."""
        found: list[Limit] = []
        for device in range(min(self.words.device_count, MAX_DEVICES)):
            one = self.words.limits[device]
            gpu = GpuUUID(_GPU_PREFIX + str(uuid.UUID(bytes=bytes(ffi.buffer(one.uuid)))))
            found.append(Limit(gpu, Bytes(one.memory_bytes), one.core_percent, one.core_ceiling))
        return tuple(found)

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
        self._publish()
        if self.lost:
            raise RegionUnwritable(self.path)

    def context(self, device: int) -> Bytes:
        """Return what a context takes there; 0 while that is not known."""
        return Bytes(self.words.limits[device].context_bytes)

    def write_context(self, device: int, size: Bytes) -> None:
        """Make it say how large a context is; the file keeps it for the next manager."""
        lib.region_context_store(self.words, device, size)
        self._publish()

    def _publish(self) -> None:
        """Make the page say what we say."""
        lib.region_config_publish(self.words)
        if self._page is None:
            return
        page = self._page.words
        for device, limit in enumerate(self.limits()):
            _store_limit(page, device, limit)
            lib.region_context_store(page, device, self.words.limits[device].context_bytes)
            if device >= page.device_count:
                lib.region_device_add(page, gpu_bytes(limit.gpu))
        lib.region_config_publish(page)


def withdrawn(gpu: GpuUUID) -> Limit:
    """Return the limit of a GPU of which nothing more may be used."""
    return Limit(gpu, memory=Bytes(0), cores=0, ceiling=0)


def _store_limit(words: Any, device: int, limit: Limit) -> None:
    lib.region_limit_store(words, device, limit.memory, limit.cores, limit.ceiling)


def gpu_bytes(gpu: GpuUUID) -> bytes:
    """Return the 16 bytes the driver gives for a GPU that NVML writes as `GPU-…`."""
    try:
        return uuid.UUID(gpu.removeprefix(_GPU_PREFIX)).bytes
    except ValueError as error:
        raise GpuManagerError(f"{gpu!r} is not the UUID of a GPU") from error
