"""Whether this machine lets a program go on when it wants to.

On the real clock a share can be short because the machine ran another program when the container
would have launched. A thread that sleeps for a millisecond again and again sees the same: how long
it has to wait for a processor each time, as a part of all the time. The kernel counts that
(schedstat), so that this program's own work, for which Python makes the thread wait, is not in it;
where it does not, the time by which the thread is woken too late is taken.
"""

import threading
import time
from pathlib import Path
from typing import Final, Self

PAUSE: Final = 0.001
LATE_SECONDS: Final = 0.001
BUSY: Final = 0.02


class HostWatch:
    """Use around what is measured. late: the part of the time by which we were woken too late."""

    def __init__(self) -> None:
        self.late = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    @property
    def busy(self) -> bool:
        return self.late > BUSY

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def waited(self, late: float) -> float:
        """Return the seconds that this thread has waited for a processor. late: by which it was
        woken too late, all in all."""
        try:
            own = Path(f"/proc/self/task/{threading.get_native_id()}/schedstat")
            return int(own.read_text().split()[1]) / 1e9
        except (OSError, ValueError, IndexError):
            return late

    def _watch(self) -> None:
        begun, sleeps, lost, before = time.monotonic(), 0, 0.0, self.waited(0)
        while not self._over.is_set():
            time.sleep(PAUSE)
            sleeps += 1
            waited = self.waited(time.monotonic() - begun - sleeps * PAUSE)
            lost += max(waited - before - LATE_SECONDS, 0.0)
            before = waited
        self.late = lost / (time.monotonic() - begun)
