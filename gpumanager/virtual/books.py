"""The books of an allocation: who holds how much.

Counters belong to the processes, slots to the manager. Books count for one boot of the machine:
their processes and their clock end with it, so those of an earlier boot are begun anew.
"""

import errno
import logging
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from gpumanager.compute.values import Grant
from gpumanager.names import BOOKS_NAME
from gpumanager.units import Bytes
from gpumanager.virtual.figures import FigureContents
from gpumanager.virtual.mapping import Layout, Region, begin, create, lost_with_the_machine
from gpumanager.virtual.processes import Process
from gpumanager.virtual.usage import DeviceUsage, ProcessUsage
from gpumanager.virtual.values import Limit
from vcuda_shim._shim import ffi, lib

log = logging.getLogger(__name__)

BOOKS: Final = Layout(BOOKS_NAME, "struct vcuda_books", lib.VCUDA_BOOKS_MAGIC, 0o600)
MAX_PROCESSES: Final[int] = lib.VCUDA_SLOTS

DEGRADATIONS: Final[Mapping[int, str]] = {
    lib.VCUDA_DEGRADED_LOCK: "lock",
    lib.VCUDA_DEGRADED_TIMING: "timing",
    lib.VCUDA_DEGRADED_ENTRY: "entry",
    lib.VCUDA_DEGRADED_MEASURE: "measure",
}
"""What each bit of `ProcessUsage.degraded` is called, in metrics and for people."""

_UNTOLD: Final = 2**64 - 1
"""REGION_UNTOLD."""

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> bytes:
    """16 bytes that differ from one boot of this machine to the next; zeros if it does not say."""
    try:
        return uuid.UUID(_BOOT_ID.read_text().strip()).bytes
    except (OSError, ValueError):
        return bytes(16)


class Books(Region):
    """The books, mapped."""

    layout = BOOKS

    @classmethod
    def prepare(cls, directory: Path, boot: bytes) -> "Books":
        """Open the books, begun anew if there are none of this boot."""
        path = directory / BOOKS_NAME
        if not lost_with_the_machine(path):
            books = cls(directory, writable=True)
            if bytes(ffi.buffer(books.words.boot)) == boot:
                return books
            log.info("%s: of an earlier boot, begun anew", path)
            books.close()
        create(directory, BOOKS, _books_head(boot))
        return cls(directory, writable=True)

    def claim(
        self,
        process: Process,
        inner_pid: int = 0,
        busy: Callable[[int], bool] = lambda _slot: False,
    ) -> int | None:
        """An empty slot for this process, its own one again if it had one; None when full.

        inner_pid: what the process calls itself, in its own pid namespace; 0 if not known.
        busy: is this slot, given now, one that a peer is emptying? Asked after it was given: a peer
        that comes later sees the new owner, and that it lives (native/shim/core/peers.h).
        """
        pids, first = (process.pid, process.start_time, max(inner_pid, 0)), 0
        while True:
            slot: int = lib.region_slot_claim_from(self.words, first, *pids)
            if slot == -errno.ENOSPC:
                return None
            if not busy(slot):
                return slot
            self.free(slot)
            first = slot + 1

    def release(self, slot: int, process: Process) -> bool:
        """Empty and free its slot; False if that is another's by now."""
        answer: int = lib.region_slot_release(self.words, slot, process.pid, process.start_time)
        return answer == 0

    def leave(self, slot: int, process: Process, devices: int) -> bool:
        """Empty the slot of a dead process, but for memory that others may have imported.

        Whether there is any: it is to be released when all others have been measured. devices: the
        allocation's.
        """
        return bool(
            lib.region_slot_leave(self.words, slot, process.pid, process.start_time, devices)
        )

    def explores(self, slot: int) -> bool:
        """Whether its owner has a launch under way of which it does not know the cost."""
        return bool(self.words.slots[slot].flags & lib.VCUDA_EXPLORES)

    def free(self, slot: int) -> None:
        """Empty and free a slot, whoever has it."""
        lib.region_slot_free(self.words, slot)

    def activity(self, slot: int) -> int | None:
        """A value that differs after its owner has moved memory; None while that moves some."""
        activity: int = lib.region_activity(self.words, slot)
        return None if activity & lib.VCUDA_ACTIVITY_UNDER_WAY else activity

    def overhead(self, device: int, slot: int) -> Bytes:
        return Bytes(self.words.overhead[device][slot])

    def used(self, device: int, slot: int) -> Bytes:
        return Bytes(self.words.used[device][slot])

    def estimated(self, device: int, slot: int) -> bool:
        """Whether its owner says that the driver took something of this device."""
        return bool(self.words.context[device][slot])

    def managed(self, device: int, slot: int, devices: int) -> Bytes:
        """Of what is used, managed memory. devices: the allocation's; here and below."""
        return Bytes(lib.region_managed(self.words, device, slot, devices))

    def imported(self, device: int, slot: int, devices: int) -> Bytes:
        """Memory of other processes that its owner has opened; not in what it uses."""
        return Bytes(lib.region_imported(self.words, device, slot, devices))

    def enter_measured(
        self, slot: int, mark: int, measured: Sequence[Bytes | None], contents: FigureContents
    ) -> bool:
        """What is measured beyond what is used is overhead; None where that cannot be told.

        measured: of all devices. False, and nothing is entered, if memory moved since its activity
        was `mark`.
        """
        figures = [_UNTOLD if figure is None else figure for figure in measured]
        known = [-1 if one.known is None else int(one.known) for one in contents]
        answer: int = lib.region_overheads_enter(
            self.words, slot, mark, figures, len(figures), known
        )
        return answer == 0

    def enter_sample(self, slot: int) -> None:
        """All devices of a slot are measured."""
        lib.region_sample_publish(self.words, slot)

    def settle(self, device: int, grant: Grant) -> None:
        """Charge GPU time that was taken without being paid for, at the rate that holds now."""
        lib.region_debt_settle(self.words, device, grant.debt_ppm or grant.rate_ppm, grant.debt_ns)

    def owners(self) -> Iterator[tuple[int, Process | None]]:
        """Each slot that was ever used, and whose it is."""
        for slot in range(min(self.words.slot_limit, MAX_PROCESSES)):
            words = self.words.slots[slot]
            yield slot, Process(words.pid, words.start_time) if words.pid else None

    def meters_seen(self, devices: int) -> bytes:
        """The meters of so many devices as they are: what differs when somebody has worked."""
        return bytes(ffi.buffer(self.words.meters, devices * ffi.sizeof(self.words.meters[0])))

    def device(self, device: int, limit: Limit) -> DeviceUsage:
        meter = self.words.meters[device]
        return DeviceUsage(
            limit=limit,
            held=Bytes(lib.region_device_bytes(self.words, device)),
            peak=Bytes(meter.memory_peak),
            denied=meter.memory_denied,
            charged_ns=meter.charged_ns,
            throttled_ns=meter.throttled_ns,
            launches=meter.launches,
            throttled=meter.throttled,
        )

    def process(self, slot: int, process: Process, devices: int) -> ProcessUsage:
        held = (lib.region_slot_bytes(self.words, device, slot) for device in range(devices))
        flags: int = self.words.slots[slot].flags
        return ProcessUsage(
            slot,
            process.pid,
            process.start_time,
            flags & lib.VCUDA_DEGRADED_MASK,
            tuple(map(Bytes, held)),
            unlimited=bool(flags & lib.VCUDA_UNLIMITED),
        )


def _books_head(boot: bytes) -> bytes:
    books: Any = ffi.new("struct vcuda_books *")
    begin(books, BOOKS)
    books.boot = boot
    return bytes(ffi.buffer(books))[: ffi.offsetof("struct vcuda_books", "meters")]
