"""What each correction of the model of GPU time earns: the same cases without it.

A correction is taken out of a copy of the sources, which is built and measured in place of the
tree. So the product has no switch for a benchmark. Each correction is one or two texts, and what
stands there instead. A text that the sources do not have exactly once ends the benchmark and fails
a test: a change of the model changes its row here. The model and the figures: docs/compute.md.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gpumanager.errors import GpuManagerError

ROOT: Final = Path(__file__).resolve().parents[2]
COPIED: Final = ("benchmarks", "gpumanager", "native", "vcuda_shim")


class NotOnce(GpuManagerError):
    """A row of the table does not fit the sources."""


@dataclass(frozen=True, slots=True)
class Edit:
    """In a file, a text that stands there once, and what stands there instead."""

    file: str
    text: str
    instead: str

    def apply(self, root: Path) -> None:
        path = root / self.file
        found = path.read_text()
        if found.count(self.text) != 1:
            raise NotOnce(
                f"{self.file} has not once but {found.count(self.text)} times: {self.text}"
            )
        path.write_text(found.replace(self.text, self.instead))


@dataclass(frozen=True, slots=True)
class Correction:
    """cases: those that it can concern, as patterns."""

    name: str
    edits: tuple[Edit, ...]
    cases: tuple[str, ...] = ()


CORE: Final = "native/shim/core/time"
COMPUTE: Final = "gpumanager/compute"
SEVERAL: Final = ("two/*", "four/*", "eight/*", "step/neighbour", "burst/*", "lent/*")
STREAMS: Final = ("one/*/streams/*", "one/1ms/small-streams/*")
PROCESSES: Final = ("one/*/processes/*", "four/*")

CORRECTIONS: Final = (
    Correction(
        "sampling window",
        (
            Edit(
                f"{CORE}/sampling_window.c",
                "    uint64_t last = atomic_exchange_explicit(&window->stream, stream,",
                "    stream = 1;\n"
                "    uint64_t last = atomic_exchange_explicit(&window->stream, stream,",
            ),
        ),
        STREAMS,
    ),
    Correction(
        "interval union",
        (
            Edit(
                f"{CORE}/interval_union.c",
                "        fresh -= smaller(until, old.until) - larger(since, old.since);\n",
                "",
            ),
        ),
        STREAMS,
    ),
    Correction(
        "outlier filter",
        (Edit(f"{CORE}/cost.c", "    if (certain.comparable) {", "    if (false) {"),),
        SEVERAL,
    ),
    Correction(
        "part without neighbours",
        (Edit(f"{CORE}/cost.c", ".on_average_ns = part,", ".on_average_ns = known ? 0 : part,"),),
        SEVERAL,
    ),
    Correction(
        "stretched by siblings",
        (
            Edit(
                "native/shim/cuda/time/settle.c",
                "    if (arbitration_alone(",
                "    if (true || arbitration_alone(",
            ),
        ),
        PROCESSES,
    ),
    Correction(
        "arbitration",
        (
            Edit(
                f"{CORE}/arbitration.c",
                "    return turn == 0 || (turn & ARBITRATION_SLOT_MASK) == slot;",
                "    return turn == 0 || (turn & ARBITRATION_SLOT_MASK) == slot || true;",
            ),
            Edit(
                f"{CORE}/arbitration.c",
                "    return least != 0 && least < wait->served;",
                "    return least != 0 && least < wait->served && false;",
            ),
        ),
        PROCESSES,
    ),
    Correction(
        "event floor",
        (
            Edit(
                f"{CORE}/event_floor.c",
                "    return ns > empty + least ? ns - empty : least;",
                "    return ns > empty + least ? ns : least;",
            ),
        ),
        ("one/10us/*", "one/50us/*", "one/1ms/*", "two/*"),
    ),
    Correction(
        "price of unknown kernels",
        (
            Edit(
                f"{CORE}/cost.c",
                "    return cost_familiar(table) ? atomic_load_explicit",
                "    return cost_familiar(table) && false ? atomic_load_explicit",
            ),
        ),
        ("one/*",),
    ),
    Correction(
        "launches on a guess",
        (
            Edit(
                "native/shim/cuda/time/settle.c",
                "    return (int64_t)(guesses * charged - paid);",
                "    return (int64_t)(guesses * charged - paid) * 0;",
            ),
        ),
        ("one/*/graph/*", "one/*/async/*", "one/*/streams/*", "step/start/*"),
    ),
    Correction(
        "catching up",
        (
            Edit(
                f"{CORE}/limiter.c",
                ".lag_ns = rate > guarantee ? 0 : LIMITER_LAG_NS,",
                ".lag_ns = 0,",
            ),
        ),
        SEVERAL,
    ),
    Correction(
        "occupancy timeline",
        (
            Edit(
                f"{COMPUTE}/long_launches.py",
                "found = self._measure(self._timeline()) if self._unsure() else {}",
                "found: dict[Holder, list[ChargeError]] = {}",
            ),
            Edit(f"{COMPUTE}/long_launches.py", "return self._logs[holder].ratio", "return 1.0"),
        ),
        SEVERAL,
    ),
    Correction(
        "occupancy: price of the next",
        (Edit(f"{COMPUTE}/long_launches.py", "return self._logs[holder].ratio", "return 1.0"),),
        SEVERAL,
    ),
    Correction(
        "occupancy: switches",
        (Edit(f"{COMPUTE}/shares.py", "LongLaunches(switching)", "LongLaunches(0.0)"),),
        SEVERAL,
    ),
    Correction(
        "occupancy: launches in turn",
        (
            Edit(
                f"{COMPUTE}/long_launches.py",
                "if 0 < (turn := log.turn(seen, took[holder])) < SLICE_NS / 2:",
                "if 0 > (turn := log.turn(seen, took[holder])):",
            ),
        ),
        SEVERAL,
    ),
    Correction(
        "occupancy: first slice",
        (
            Edit(
                f"{COMPUTE}/long_launches.py",
                "interval.fresh = interval.begun > self.until.get(interval.process, 0)",
                "interval.fresh = False",
            ),
        ),
        SEVERAL,
    ),
    Correction(
        "occupancy: paced launches",
        (
            Edit(
                f"{COMPUTE}/occupancy_timeline.py",
                "        for who in window.waited.keys() & most.keys()\n",
                "        for who in ()\n",
            ),
        ),
        SEVERAL,
    ),
    Correction(
        "occupancy: doubt",
        (
            Edit(
                f"{COMPUTE}/occupancy_timeline.py",
                "return interval.cost if abs(had - interval.cost) <= doubt else had",
                "return had if doubt >= 0 else interval.cost",
            ),
        ),
        SEVERAL,
    ),
    Correction(
        "capacity",
        (
            Edit(
                f"{COMPUTE}/shares.py",
                "usable = min(self._capacity.part, yields if yields < LEAST else 1.0)",
                "usable = yields if yields < LEAST else 1.0",
            ),
        ),
        SEVERAL,
    ),
    Correction(
        "alternation",
        (
            Edit(
                f"{COMPUTE}/shares.py",
                "usable = min(self._capacity.part, yields if yields < LEAST else 1.0)",
                "usable = min(self._capacity.part, max(yields, 1.0))",
            ),
        ),
        ("two/*sync*", "four/*sync*", "lent/*sync*", "two/30-60/*"),
    ),
    Correction(
        "lending gives way",
        (
            Edit(
                f"{COMPUTE}/shares.py",
                "return min(1 - self._unknown_share, self._capacity.lendable), usable",
                "return 1 - self._unknown_share, usable",
            ),
        ),
        ("burst/*", "lent/*"),
    ),
    Correction(
        "demand: moments with all",
        (
            Edit(
                f"{COMPUTE}/demand.py",
                "due = history.steady and now >= self.next",
                "due = False",
            ),
        ),
        ("burst/*", "lent/*"),
    ),
    Correction(
        "demand: lacks",
        (
            Edit(
                f"{COMPUTE}/demand.py",
                "lacks = used < reading.guarantee and history.awaits(MOMENT_NS) > PRESENT",
                "lacks = False",
            ),
        ),
        ("burst/*", "lent/*"),
    ),
    Correction(
        "debts at the rate of then",
        (
            Edit(
                f"{COMPUTE}/shares.py",
                "debt_ppm=_ppm(member.debt_rate)",
                "debt_ppm=0",
            ),
        ),
        SEVERAL,
    ),
    Correction(
        "fast poll of lenders",
        (Edit("gpumanager/virtual/sharing.py", "        if not active:", "        if True:"),),
        ("burst/*", "lent/*"),
    ),
    Correction(
        "audit",
        (
            Edit(
                f"{COMPUTE}/shares.py",
                "for holder, debt in self._audit.enter(answer, payers).items():",
                "for holder, debt in dict[Holder, int]().items():",
            ),
        ),
        SEVERAL,
    ),
)


def named(name: str) -> Correction:
    found = [one for one in CORRECTIONS if one.name == name]
    if not found:
        names = ", ".join(one.name for one in CORRECTIONS)
        raise GpuManagerError(f"no correction is called {name}; there are: {names}")
    return found[0]


@contextmanager
def copy_without(names: Sequence[str]) -> Iterator[Path]:
    """A copy of the sources that lacks these corrections, built where C is concerned."""
    edits = [edit for name in names for edit in named(name).edits]
    with tempfile.TemporaryDirectory(prefix="without-") as folder:
        root = Path(folder)
        for part in COPIED:
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / part, root / part, symlinks=True, ignore=ignored)
        for edit in edits:
            edit.apply(root)
        if any(edit.file.startswith("native/") for edit in edits):
            build = (sys.executable, "-m", "vcuda_shim.build", "shims")
            subprocess.run(build, cwd=root, check=True, stderr=subprocess.DEVNULL)
        yield root


def cases_of(names: Sequence[str]) -> list[str]:
    return sorted({case for name in names for case in named(name).cases})


def bench_without(names: Sequence[str], words: Sequence[str], cases: Sequence[str]) -> int:
    """The benchmark with these words in such a copy, of these cases."""
    chosen = [word for case in cases or cases_of(names) for word in ("--case", case)]
    print(f"without: {', '.join(names)}", flush=True)
    with copy_without(names) as root:
        program = (sys.executable, str(root / "benchmarks" / "shares.py"), *words, *chosen)
        environment = {**os.environ, "PYTHONPATH": str(root)}
        return subprocess.run(program, env=environment, check=False).returncode
