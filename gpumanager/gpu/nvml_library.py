"""Which parts of this process hold NVML open, and where it lies. It is one, its users are several.

NVML counts its users and truly closes with the last. After a driver was reloaded an open library is
dead, and stays so until then: one user that lingers would keep all others from opening it anew. So
each is known here, and whoever finds it dead closes it for those that do not ask anything just now.
Those that do close it themselves before they ask again.

In a container the driver is the host's, in a directory where no dynamic linker looks; nor should
one, as the host's C library lies beside it. Loaded once by its path, it is found by its name.
"""

import ctypes
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final
from weakref import WeakSet

import pynvml


class User:
    """One that holds the library open, since the `age` it was opened in; for long, or for a few
    questions during which it does not let go."""

    age = 0

    def let_go(self) -> bool:
        """Close it, unless it is being asked something for long; whether it is closed now."""
        return False


class Library:
    """Opens NVML for its users. Methods raise pynvml.NVMLError."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users: WeakSet[User] = WeakSet()
        self._age = 0
        self._search: Callable[[], Path | None] = lambda: None
        self._found: ctypes.CDLL | None = None

    def lies_where(self, search: Callable[[], Path | None]) -> None:
        """Load it from elsewhere than the dynamic linker does. search: until it has an answer."""
        self._search = search

    def open(self, user: User) -> None:
        with self._lock:
            self._users -= {one for one in self._users if self.is_old(one) and one.let_go()}
            if any(self.is_old(one) for one in self._users):
                raise pynvml.NVMLError(pynvml.NVML_ERROR_IN_USE)  # by a question that still hangs
            # By its path; where that fails NVML itself says what is missing.
            if self._found is None and (path := self._search()):
                with suppress(OSError):
                    self._found = ctypes.CDLL(str(path))
            pynvml.nvmlInit()
            user.age = self._age
            self._users.add(user)

    def close(self, user: User) -> None:
        """Close it for this user. Safe to repeat."""
        with self._lock:
            if user in self._users:
                self._users.discard(user)
                with suppress(pynvml.NVMLError):  # it was closed already
                    pynvml.nvmlShutdown()

    def dead(self, user: User) -> None:
        """Close it for a user that it answers no more, and have all others open it anew."""
        with self._lock:
            if user.age == self._age:
                self._age += 1
        self.close(user)

    def is_old(self, user: User) -> bool:
        """Return whether it is to be closed: somebody found it dead since this user opened it."""
        return user.age < self._age


LIBRARY: Final = Library()
