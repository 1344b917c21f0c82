"""The books of an allocation: how much each process holds.

Counters belong to the processes, slots to the manager. Books count for one boot of the machine:
their processes and their clock end with it, so those of an earlier boot are begun anew.

They are memory that no process can shrink, because the manager reads it where it lies. It lasts as
long as a process has it open, which each process of the container does for its life: a manager
that was restarted takes it back from one of them. Where processes have books and none gives them
back (all descriptors closed, or the manager may not look), no further process is let in: with new
books each side would have the whole limit.
"""

import errno
import logging
import os
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

from gpumanager.errors import GpuManagerError
from gpumanager.ids import AllocationID
from gpumanager.limits.pages import sealed_memory
from gpumanager.limits.pages.config import Config
from gpumanager.limits.pages.mapping import (
    MappedStruct,
    RegionUnreadable,
    StructLayout,
    begin,
    lost_with_the_machine,
    write_whole,
)
from gpumanager.limits.pages.sealed_memory import find, identity, mapped, open_again
from gpumanager.limits.pages.slot_file import SlotFile
from gpumanager.limits.processes import Process
from gpumanager.limits.values import AllocationUsage, DeviceUsage, ProcessUsage
from gpumanager.names import BOOKS_NAME
from gpumanager.units import Bytes
from vcuda_shim._shim import ffi, lib

log = logging.getLogger(__name__)

_PAGES: Final = -(-ffi.sizeof("struct vcuda_books") // lib.VCUDA_HINTS_ALIGNED)
HINTS_OFFSET: Final[int] = _PAGES * lib.VCUDA_HINTS_ALIGNED
"""vcuda_hints_offset()."""
BOOKS: Final = StructLayout(
    BOOKS_NAME,
    "struct vcuda_books",
    lib.VCUDA_BOOKS_MAGIC,
    0o600,
    beyond=HINTS_OFFSET + ffi.sizeof("struct vcuda_hints") - ffi.sizeof("struct vcuda_books"),
)
MAX_PROCESSES: Final[int] = lib.VCUDA_SLOTS
SLOT_TRIES: Final = 8
"""One peer empties one slot at a time, so that few are busy."""

DEGRADATIONS: Final[Mapping[int, str]] = {
    lib.VCUDA_DEGRADED_LOCK: "lock",
    lib.VCUDA_DEGRADED_TIMING: "timing",
    lib.VCUDA_DEGRADED_ENTRY: "entry",
    lib.VCUDA_DEGRADED_MEASURE: "measure",
}
"""What each bit of `ProcessUsage.degraded` is called, in metrics and for people."""

MISSING: Final = "no process of this container gives its books back to the restarted manager"
"""For a caller: 95 letters fit."""
LARGEST_WORD: Final = 2**62
"""Of any word that a container writes, as a number: no sum of two overflows."""

_UNTOLD: Final = 2**64 - 1
"""REGION_UNTOLD."""

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> bytes:
    """16 bytes that differ from one boot of this machine to the next; zeros if it does not say."""
    try:
        return uuid.UUID(_BOOT_ID.read_text().strip()).bytes
    except (OSError, ValueError):
        return bytes(16)


class Books:
    """The books of an allocation, mapped.

    Memory of the processes that have it open (sealed_memory.py), found by the allocation's slot
    table. trouble: why no process can get them, in words; None if it can. What they say is then
    zeros.
    """

    def __init__(
        self, directory: Path, descriptor: int, slots: SlotFile, trouble: str | None = None
    ) -> None:
        """Takes the descriptor. Raises RegionUnreadable and RegionBroken."""
        self.directory = directory
        self.descriptor = descriptor
        self.slots = slots
        self.trouble = trouble
        try:
            self._mapping = MappedStruct(descriptor, BOOKS, self.path, resident=False)
        except GpuManagerError:
            os.close(descriptor)
            raise
        self.words: Any = self._mapping.words

    @classmethod
    def existing(cls, directory: Path) -> Self:
        """Return them as they are, for a reader outside: another process may serve them. Where no
        process has them any more they are zeros.

        Raises RegionUnreadable, also where a process has them and does not give them, RegionBroken.
        """
        slots = SlotFile.read(directory)
        found = _given_back(slots, (slots.manager, *slots.living()))
        if found is not None:
            return cls(directory, found, slots)
        if any(mapped(one.pid, slots.books) for one in slots.living()):
            raise RegionUnreadable(slots.path, OSError(errno.EAGAIN, MISSING))
        return cls(directory, new_books(slots.boot), slots)

    @classmethod
    def prepare(cls, directory: Path, boot: bytes) -> Self:
        """Return those of this boot, or new ones where no process can have any.

        Raises GpuManagerError and OSError, and then nothing has changed.
        """
        path = directory / BOOKS_NAME
        if not lost_with_the_machine(path):
            slots = SlotFile.read(directory)
            if slots.boot == boot:
                return cls._of_this_boot(slots)
            log.info("%s is from before the last reboot; recreated", path)
        return cls._begin(directory, boot)

    @classmethod
    def _begin(cls, directory: Path, boot: bytes) -> Self:
        descriptor = new_books(boot)
        try:
            slots = SlotFile.begin(directory, boot, identity(descriptor))
        except OSError:
            os.close(descriptor)
            raise
        return cls(directory, descriptor, slots)

    @classmethod
    def _of_this_boot(cls, slots: SlotFile) -> Self:
        holders = tuple(slots.living())
        found = _given_back(slots, (*holders, slots.manager))
        if found is not None:
            slots.take_over()
            return cls(slots.directory, found, slots)
        # One may have none of them: a manager that was killed before its WELCOME was sent.
        holders = tuple(one for one in holders if mapped(one.pid, slots.books))
        if not holders:
            return cls._begin(slots.directory, slots.boot)
        log.warning(
            "%s: %d processes have this shared memory mapped, and it cannot be recovered from any "
            "of them, for which the manager needs CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH: new "
            "processes of this container are refused until those have ended",
            slots.path,
            len(holders),
        )
        return cls(slots.directory, new_books(slots.boot), slots, MISSING)

    @property
    def path(self) -> Path:
        return self.directory / BOOKS_NAME

    @property
    def hints(self) -> int:
        """Return the address of the hints, which lie behind them."""
        return int(ffi.cast("uintptr_t", self.words)) + HINTS_OFFSET

    def recover(self) -> bool:
        """Try again to get those that were missing. Return whether they are there now."""
        if self.trouble is None:
            return False
        holders = tuple(self.slots.living())
        found = _given_back(self.slots, holders)
        if found is not None:
            self._mapping.renew(found)
            os.close(self.descriptor)
            self.descriptor = found
        elif holders:
            return False
        else:
            try:
                self.slots = SlotFile.begin(
                    self.directory, self.slots.boot, identity(self.descriptor)
                )
            except OSError as error:
                log.warning("cannot recreate %s: %s", self.path, error.strerror)
                return False
        for slot, owner in self.recorded_owners():
            if owner is None:
                self.free(slot)
        self.trouble = None
        log.info("%s: recovered from a running process" if holders else "%s: recreated", self.path)
        return True

    def open_for(self, *, observer: bool) -> int:
        """Open them for one caller, which closes it: locks belong to what a process has open."""
        return open_again(self.descriptor, writable=not observer)

    def close(self) -> None:
        self.words = ffi.NULL
        self._mapping.close()
        os.close(self.descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def claim(
        self,
        process: Process,
        inner_pid: int = 0,
        busy: Callable[[int], bool] = lambda _slot: False,
    ) -> int | None:
        """Return an empty slot for this process, its own one again if it had one; None when full.

        Raises OSError where that cannot be written down.

        inner_pid: what the process calls itself, in its own pid namespace; 0 if not known.
        busy: is this slot, given now, one that a peer is emptying? Asked after it was given: a peer
        that comes later sees the new owner, and that it lives (native/shim/core/peers.h). A program
        could lock the bytes of all slots, so few are tried.
        """
        pids, first = (process.pid, process.start_time, max(inner_pid, 0)), 0
        for _ in range(SLOT_TRIES):
            slot: int = lib.region_slot_claim_from(self.words, first, *pids)
            if slot == -errno.ENOSPC:
                return None
            if busy(slot):
                self.free(slot)
                first = slot + 1
                continue
            try:
                self.slots.put(slot, process)  # for the manager after us
            except OSError:
                self.free(slot)
                raise
            size = ffi.sizeof("struct vcuda_hint")
            for device in range(lib.VCUDA_DEVICES):
                # What an earlier owner has left. Read as a file is, so that no page is made for it.
                offset = HINTS_OFFSET + (device * MAX_PROCESSES + slot) * size
                if any(os.pread(self.descriptor, size, offset)):
                    os.pwrite(self.descriptor, bytes(size), offset)
            return slot
        return None

    def release(self, slot: int, process: Process) -> bool:
        """Empty and free its slot; False if that is another's by now."""
        if self.slots.rows.get(slot) == process:
            self.slots.clear(slot)
        return bool(lib.region_slot_release(self.words, slot, process.pid, process.start_time) == 0)

    def leave(self, slot: int, process: Process, devices: int) -> bool:
        """Empty the slot of a dead process, but for memory that others may have imported.

        Whether there is any: it is to be released when all others have been measured. devices: the
        allocation's.
        """
        return bool(
            lib.region_slot_leave(self.words, slot, process.pid, process.start_time, devices)
        )

    def free(self, slot: int) -> None:
        """Empty and free a slot, whoever has it."""
        self.slots.clear(slot)
        lib.region_slot_free(self.words, slot)

    def activity(self, slot: int) -> int | None:
        """Return a value that differs after its owner has moved memory; None while it does so."""
        activity: int = lib.region_activity(self.words, slot)
        return None if activity & lib.VCUDA_ACTIVITY_UNDER_WAY else activity

    def overhead(self, device: int, slot: int) -> Bytes:
        return Bytes(self.words.overhead[device][slot])

    def used(self, device: int, slot: int) -> Bytes:
        return Bytes(self.words.used[device][slot])

    def managed(self, device: int, slot: int, devices: int) -> Bytes:
        """Return the managed memory in what is used. devices: the allocation's; also below."""
        return Bytes(lib.region_managed(self.words, device, slot, devices))

    def imported(self, device: int, slot: int, devices: int) -> Bytes:
        """Return memory of other processes that its owner has opened; not in what it uses."""
        return Bytes(lib.region_imported(self.words, device, slot, devices))

    def enter_measured(
        self,
        slot: int,
        mark: int,
        measured: Sequence[Bytes | None],
        contained: Sequence[bool | None],
    ) -> bool:
        """Enter as overhead what is measured beyond what is used; None where that is not known.

        measured: of all devices. False, and nothing is entered, if memory moved since its activity
        was `mark`. contained: whether the figures have managed memory in them, and imported memory.
        """
        figures = [_UNTOLD if figure is None else figure for figure in measured]
        known = [-1 if one is None else int(one) for one in contained]
        words = self.words
        return bool(
            lib.region_overheads_enter(words, slot, mark, figures, len(figures), known) == 0
        )

    def estimate(self, device: int, slot: int) -> int:
        """Return what the driver took by its owner's words, in bytes, and nobody has measured."""
        return int(lib.region_estimate(self.words, device, slot))

    def drop_estimate(self, device: int, slot: int, mark: int, estimate: int) -> None:
        """Drop it: all processes of the container are measured since its activity was `mark`."""
        lib.region_estimate_drop(self.words, device, slot, mark, estimate)

    def enter_sample(self, slot: int) -> None:
        """Mark all devices of a slot as measured."""
        lib.region_sample_publish(self.words, slot)

    def owners(self) -> Iterator[tuple[int, Process | None]]:
        """Yield each slot that was ever used, and its process."""
        for slot in range(min(self.words.slot_limit, MAX_PROCESSES)):
            words = self.words.slots[slot]
            yield slot, Process(words.pid, words.start_time) if words.pid else None

    def recorded_owners(self) -> Iterator[tuple[int, Process | None]]:
        """Yield each slot that was ever used, and its process by the words of managers alone."""
        rows = dict(self.slots.rows)
        used = min(self.words.slot_limit, MAX_PROCESSES)
        for slot in range(max(used, *(slot + 1 for slot in rows), 0)):
            yield slot, rows.get(slot)

    def usage(self, config: Config, rows: Iterable[tuple[int, Process, bool]]) -> AllocationUsage:
        """Return what both contain now; words are read one by one, under running processes.

        A container can write its books. So the caller passes the processes that are its own (slots,
        processes, and whether they were adopted), and the name is the directory's.
        """
        limits, words = config.limits(), self.words
        devices, processes = [], []
        for device, limit in enumerate(limits):
            meter = words.meters[device]
            counted = (
                *(lib.region_device_bytes(words, device), meter.memory_peak, meter.memory_denied),
                *(meter.charged_ns, meter.throttled_ns, meter.launches, meter.throttled),
            )
            held, peak, *rest = (min(int(one), LARGEST_WORD) for one in counted)
            devices.append(DeviceUsage(limit, Bytes(held), Bytes(peak), *rest))
        for slot, process, adopted in rows:
            flags: int = words.slots[slot].flags
            used = (lib.region_slot_bytes(words, device, slot) for device in range(len(limits)))
            processes.append(
                ProcessUsage(
                    slot,
                    process.pid,
                    process.start_time,
                    flags & lib.VCUDA_DEGRADED_MASK,
                    tuple(Bytes(min(one, LARGEST_WORD)) for one in used),
                    unlimited=bool(flags & lib.VCUDA_UNLIMITED),
                    adopted=adopted,
                )
            )
        return AllocationUsage(
            AllocationID(config.directory.name),
            config.words.generation,
            tuple(devices),
            tuple(processes),
        )


def read_usage(directory: Path) -> AllocationUsage:
    """Return the usage of an allocation by its directory, with or without a manager. Limits and
    processes are what the pages say: for tests and for what is simulated.

    Raises RegionUnreadable and RegionBroken.
    """
    with Config(directory, writable=False) as config, Books.existing(directory) as books:
        owners = [(slot, owner, True) for slot, owner in books.owners() if owner is not None]
        return books.usage(config, owners)


def moves(books: Collection[Any]) -> int:
    """Return a number that changes when a process of theirs comes, goes, launches or moves memory.
    books: the words of each."""
    return int(lib.region_moves(list(books), len(books)))


def new_books(boot: bytes) -> int:
    """Return the descriptor of empty books. Raises OSError."""
    books: Any = ffi.new("struct vcuda_books *")
    begin(books, BOOKS)
    books.boot = boot
    head = bytes(ffi.buffer(books))[: ffi.offsetof("struct vcuda_books", "meters")]
    descriptor = sealed_memory.create(BOOKS.file_size)
    try:
        write_whole(descriptor, head, 0)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _given_back(slots: SlotFile, holders: Iterable[Process]) -> int | None:
    return find((process.pid for process in holders), slots.books, BOOKS.file_size)
