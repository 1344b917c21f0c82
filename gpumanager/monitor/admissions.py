"""What went otherwise than planned when containers were admitted, remembered for `explain`.

The journal says what was granted; it does not say who was refused, whose start was put off, and
what was granted for another pod. That is kept here: the last few, and the same thing once.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final

from gpumanager.grants.grant import Claimant

KEPT_ADMISSIONS: Final = 128
TEXT_LETTERS: Final = 500
"""Characters of a text."""


class AdmissionKind(Enum):
    """REFUSED: the pod fails. PUT_OFF: its start failed, and the kubelet tries again. SWAPPED: it
    started on what was granted for another.
    """

    REFUSED = "refused"
    PUT_OFF = "put-off"
    SWAPPED = "swapped"


@dataclass(frozen=True, slots=True)
class Happened:
    """text: why, or for which pod it was. time: of the last of `count`, seconds since the epoch.

    claim: namespace/name of a ResourceClaim that was not prepared.
    """

    kind: AdmissionKind
    who: Claimant | None
    text: str
    time: float = 0.0
    count: int = 1
    claim: str = ""

    def as_json(self) -> dict[str, Any]:
        who = self.who
        return {
            "kind": self.kind.value,
            "pod": f"{who.namespace}/{who.name}" if who else None,
            "uid": who.uid if who else None,
            "container": who.container if who else None,
            "text": self.text,
            "time": round(self.time, 3),
            "count": self.count,
            "claim": self.claim or None,
        }


class Admissions:
    """Keeps the newest, which is last. on_added: called with each, also with a repeated one."""

    def __init__(self, kept: int = KEPT_ADMISSIONS, clock: Callable[[], float] = time.time) -> None:
        self._kept: deque[Happened] = deque(maxlen=kept)
        self._clock = clock
        self.on_added: Callable[[Happened], None] = lambda _one: None
        self.swaps = 0
        """Containers that were confirmed on another pod's admission: a swap, put right."""

    def refused(self, pod: Claimant | None, text: str) -> None:
        """Keep that a pod failed."""
        self.add(AdmissionKind.REFUSED, pod, text)

    def postponed(self, pod: Claimant | None, text: str) -> None:
        """Keep that the start of a container failed, and that the kubelet tries again."""
        self.add(AdmissionKind.PUT_OFF, pod, text)

    def swapped(self, pod: Claimant, expected: Claimant) -> None:
        """Keep that a container started with a grant that was made for another pod."""
        self.swaps += 1
        self.add(AdmissionKind.SWAPPED, pod, str(expected))

    def __iter__(self) -> Iterator[Happened]:
        return iter(tuple(self._kept))

    def add(self, kind: AdmissionKind, who: Claimant | None, text: str, *, claim: str = "") -> None:
        said = Happened(kind, who, text[:TEXT_LETTERS], self._clock(), claim=claim)
        self.on_added(said)
        same = (one for one in self._kept if replace(one, time=said.time, count=1) == said)
        before = next(same, None)
        if before is not None:
            self._kept.remove(before)
            said = replace(said, count=before.count + 1)
        self._kept.append(said)
