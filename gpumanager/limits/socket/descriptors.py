"""How many descriptors containers may make the manager hold.

A caller takes a connection, a process that has a slot a pidfd and the connection that it keeps, and
a container may have a thousand of each. So all are bounded for each allocation, and for all
together: what is left is for files, for the kubelet and for everybody else's callers.
"""

import resource
from dataclasses import dataclass
from typing import Final, Self

CALLERS: Final = 64
"""Of one allocation at once, where descriptors abound."""

PIDFDS: Final = 2048


@dataclass(slots=True)
class Descriptors:
    """Of one manager. callers, pidfds: at most, of one allocation; all_callers, all_pidfds: of all
    together. Beyond, a caller waits, but for one of each allocation, and a process is polled.
    Connections that processes keep count as pidfds, and take one half of them at most: a process
    that finds its own closed connects again."""

    callers: int = CALLERS
    pidfds: int = PIDFDS
    all_callers: int = 64 * CALLERS
    all_pidfds: int = 64 * PIDFDS
    callers_now: int = 0
    pidfds_now: int = 0

    @classmethod
    def allowed(cls) -> Self:
        """By this process's limit. Example: of 1,024 descriptors one allocation gets 64 pidfds and
        16 callers, all together get 256 of each; 32 and 128 of the former may be connections."""
        most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if most == resource.RLIM_INFINITY:
            return cls()
        return cls(
            callers=max(1, min(CALLERS, most // 64)),
            pidfds=min(PIDFDS, most // 16),
            all_callers=max(1, most // 4),
            all_pidfds=most // 4,
        )

    def may_watch(self, own: int) -> bool:
        """Return whether one more process may have a pidfd, of an allocation that has `own`."""
        return own < self.pidfds and self.pidfds_now < self.all_pidfds

    def may_keep(self, own: int) -> bool:
        """Return whether one more connection may be kept, of an allocation that has `own` of
        both."""
        return own < self.pidfds // 2 and self.pidfds_now < self.all_pidfds // 2

    def may_wait(self, own: int) -> bool:
        """Return whether one more caller may take its time, of an allocation that has `own`."""
        return own < self.callers and (own == 0 or self.callers_now < self.all_callers)
