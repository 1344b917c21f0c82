"""The journal's file, with a look at the clock: how often it is written, how long that takes."""

import time
from dataclasses import dataclass, replace

from gpumanager.grants.journal import Journal
from gpumanager.grants.journal_file import JournalFile, JournalUnwritable


@dataclass(frozen=True, slots=True)
class JournalWrites:
    """Since the start."""

    writes: int = 0
    errors: int = 0
    seconds: float = 0.0


class TimedJournalFile(JournalFile):
    """A journal's file whose writes are counted."""

    measured = JournalWrites()

    def save(self, journal: Journal) -> None:
        began = time.perf_counter()
        try:
            super().save(journal)
        except JournalUnwritable:
            self.measured = replace(self.measured, errors=self.measured.errors + 1)
            raise
        self.measured = replace(
            self.measured,
            writes=self.measured.writes + 1,
            seconds=self.measured.seconds + time.perf_counter() - began,
        )

    def size(self) -> int:
        """Bytes on the disk; 0 where there is none yet."""
        try:
            return self.path.stat().st_size
        except OSError:
            return 0
