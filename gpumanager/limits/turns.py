"""Turns: the arbiter of this node, and the files by which containers learn their turns.

    <root>/<allocation>/    mounted read-only at /etc/vcuda/turns
        words               struct vcuda_turns (vcuda_turns.h), written by the arbiter
        ring                a pipe: by one byte in it a process says that its hints have changed

They lie on a tmpfs, which a reboot empties: then they are made again. A later agent maps the same
words again, since containers have them open. The hints lie behind the books (pages/books.py).
"""

import logging
import os
import shutil
import stat
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final

from gpumanager.errors import GpuManagerError
from gpumanager.gpu.values import GpuUUID, bare
from gpumanager.ids import AllocationID
from gpumanager.limits.pages.mapping import (
    MappedStruct,
    RegionBroken,
    RegionUnreadable,
    StructLayout,
    begin,
    create,
    open_region,
)
from gpumanager.limits.values import Limit
from gpumanager.names import RING_NAME, TURNS_PATH, WORDS_NAME
from gpumanager.units import CORES_PER_GPU
from vcuda_shim import _shim

log = logging.getLogger(__name__)

WORDS: Final = StructLayout(
    WORDS_NAME,
    "struct vcuda_turns",
    _shim.lib.VCUDA_TURNS_MAGIC,
    0o644,
    abi=_shim.lib.VCUDA_TURNS_ABI,
)
RING_MODE: Final = 0o666
"""Shims have it open for reading, too: an agent that goes would end them by SIGPIPE else."""
MAX_GPUS: Final = 64
"""That an arbiter tells apart."""

NO_PIDFD: Final = -1


class Turns:
    """One arbiter for all allocations that share GPUs; it runs from the first of them until stop().

    world: the address of a simulation's struct vcuda_world; 0: the real one.
    """

    def __init__(self, root: Path = Path(TURNS_PATH), *, world: int = 0) -> None:
        self.root = root
        self._world = world
        self._arbiter: Any = None
        self._numbers: dict[GpuUUID, int] = {}

    def folder(self, allocation: AllocationID) -> Path:
        return self.root / allocation

    def join(
        self, allocation: AllocationID, limits: Sequence[Limit], hints: int
    ) -> "AllocationTurns":
        """Let an allocation take turns. hints: their address. Raises OSError and GpuManagerError;
        nothing is held then."""
        if self._arbiter is None:
            arbiter = _module().ffi.new("struct arbiter **")
            world = _module().ffi.cast("const struct vcuda_world *", self._world)
            _check(_module().lib.arbiter_start(world, arbiter))
            self._arbiter = arbiter[0]
        return AllocationTurns(self.folder(allocation), self._arbiter, self.seats(limits), hints)

    def seats(self, limits: Sequence[Limit]) -> tuple[tuple[int, float, float], ...]:
        """Return a struct arbiter_seat for each device: the number of its GPU, weight and ceiling.
        Raises GpuManagerError where GPUs are more than an arbiter distinguishes."""
        found: list[tuple[int, float, float]] = []
        for limit in limits:
            if not shared(limit):
                found.append((0, 0.0, 0.0))
                continue
            gpu = self._numbers.setdefault(bare(limit.gpu), len(self._numbers))
            if gpu >= MAX_GPUS:
                raise GpuManagerError(
                    f"GPU {limit.gpu}: containers take turns on {MAX_GPUS} GPUs of a node at most"
                )
            ceiling = min(max(limit.cores, limit.ceiling), CORES_PER_GPU)
            found.append((gpu, limit.cores / CORES_PER_GPU, ceiling / CORES_PER_GPU))
        return tuple(found)

    @property
    def numbers(self) -> Mapping[GpuUUID, int]:
        """Return those of the GPUs on which containers took turns so far, by their bare UUIDs."""
        return self._numbers

    def looks(self) -> int:
        """Return how often the arbiter has looked at a GPU: not while no container wants one."""
        return int(_module().lib.arbiter_looks(self._arbiter)) if self._arbiter else 0

    def foreign(self, gpu: int, *, foreign: bool) -> None:
        """Set whether a process outside of turns uses this GPU from now on. gpu: its number."""
        if self._arbiter is not None:
            _module().lib.arbiter_foreign(self._arbiter, gpu, foreign)

    def remove(self, allocation: AllocationID) -> None:
        """Remove the folder of an allocation that is gone; safe to repeat."""
        with suppress(FileNotFoundError):
            shutil.rmtree(self.folder(allocation))

    def remove_leftovers(self, allocations: Collection[AllocationID]) -> None:
        """Remove the folders of all others."""
        with suppress(FileNotFoundError):
            for path in self.root.iterdir():
                if path.name not in allocations:
                    shutil.rmtree(path, ignore_errors=True)

    def stop(self) -> None:
        """Stop the arbiter, after all allocations are closed. Words stay, and mean nothing once
        their lease is out."""
        if self._arbiter is not None:
            _module().lib.arbiter_stop(self._arbiter)
            self._arbiter = None


class AllocationTurns:
    """The words and the ring of one allocation, of which the arbiter knows until close()."""

    def __init__(
        self, folder: Path, arbiter: Any, seats: Sequence[tuple[int, float, float]], hints: int
    ) -> None:
        self._arbiter, self._seats = arbiter, seats
        ffi, self._lib = _module().ffi, _module().lib
        folder.mkdir(mode=0o711, parents=True, exist_ok=True)
        for closed in (folder.parent, folder):
            closed.chmod(0o711)
        with ExitStack() as undo:
            self._ring = _open_ring(folder / RING_NAME)
            undo.callback(os.close, self._ring)
            self._words = _open_words(folder)
            undo.callback(self._words.close)
            words = self._words.words
            words.device_count = len(seats)
            # the same memory, to the arbiter's module
            mapped = ffi.cast("struct vcuda_turns *", int(_shim.ffi.cast("uintptr_t", words)))
            hinted = ffi.cast("const struct vcuda_hints *", hints)
            self._container = ffi.new("struct arbiter_container **")
            joined = (arbiter, mapped, hinted, self._ring, seats, len(seats), self._container)
            _check(self._lib.arbiter_join(*joined))
            undo.pop_all()

    def weigh(self, seats: Sequence[tuple[int, float, float]]) -> None:
        """Set its seats after its limits have changed."""
        self._seats = seats
        self._words.words.device_count = len(seats)
        self._lib.arbiter_weigh(self._arbiter, self._container[0], seats, len(seats))

    def add(self, slot: int, pidfd: int | None) -> None:
        """Add a process that has this slot from now on. pidfd: None where there is none."""
        number = NO_PIDFD if pidfd is None else pidfd
        answer = self._lib.arbiter_process(self._arbiter, self._container[0], slot, number)
        if answer != 0:
            log.warning("the arbiter takes no process in slot %d: %s", slot, os.strerror(-answer))

    def remove(self, slot: int) -> None:
        """Remove the process of this slot, which is gone."""
        self._lib.arbiter_process_gone(self._arbiter, self._container[0], slot)

    def guarantees(self, gpu: int) -> dict[int, float]:
        """Return the part of a GPU's time that each of its devices has. gpu: its number."""
        return {at: one[1] for at, one in enumerate(self._seats) if one[0] == gpu and one[1] > 0}

    def charged(self, device: int) -> int:
        """Return its GPU time so far, ns."""
        return int(self.account(device).charged_ns)

    def charge(self, device: int, ns: int) -> None:
        """Charge GPU time that it took outside of its turns; below 0: that others had in them."""
        self._lib.arbiter_charge(self._arbiter, self._container[0], device, ns)

    def account(self, device: int) -> Any:
        """Return its struct arbiter_account."""
        account: Any = _module().ffi.new("struct arbiter_account *")
        self._lib.arbiter_account(self._arbiter, self._container[0], device, account)
        return account

    def write_meters(self, meters: Any) -> None:
        """Enter there what was charged and waited for so far: others read those."""
        for device in range(self._words.words.device_count):
            account = self.account(device)
            meters[device].charged_ns = account.charged_ns
            meters[device].throttled_ns = account.waited_ns

    def close(self) -> None:
        """Leave the arbiter, before the hints are unmapped. The files stay."""
        self._lib.arbiter_leave(self._arbiter, self._container[0])
        self._words.close()
        os.close(self._ring)


def _module() -> Any:
    """Import it only where turns are taken: it needs a newer C library than the GPU check."""
    from vcuda_shim import _arbiter

    return _arbiter


def shared(limit: Limit) -> bool:
    """Return whether containers take turns on this GPU."""
    return 0 < limit.cores < CORES_PER_GPU


def _open_words(folder: Path) -> MappedStruct:
    """Return those that are there, if they are of our layout; else new ones."""
    path = folder / WORDS_NAME
    try:
        return _map_words(path)
    except (RegionBroken, RegionUnreadable):
        words: Any = _shim.ffi.new("struct vcuda_turns *")
        begin(words, WORDS)
        create(folder, WORDS, bytes(_shim.ffi.buffer(words)))
        return _map_words(path)


def _map_words(path: Path) -> MappedStruct:
    descriptor = open_region(path, writable=True)
    try:
        return MappedStruct(descriptor, WORDS, path, resident=True)
    finally:
        os.close(descriptor)


def _open_ring(path: Path) -> int:
    """Return its read end, which never blocks; open for writing, too, so that it never ends."""
    flags = os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW
    with suppress(FileNotFoundError):
        if not stat.S_ISFIFO(path.lstat().st_mode):
            path.unlink()
    with suppress(FileExistsError):
        os.mkfifo(path)
    path.chmod(RING_MODE)
    return os.open(path, flags)


def _check(answer: int) -> None:
    if answer != 0:
        raise OSError(-answer, f"the arbiter: {os.strerror(-answer)}")
