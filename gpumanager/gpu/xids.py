"""What an Xid, the driver's number for what went wrong, says of the GPU it is about.

    application   one program did wrong or was harmed; the GPU serves the next as before
    notice        worth telling, nothing to do now: the driver has dealt with it, or says more by
                  other means
    transient     the GPU may not serve now; nothing says that it needs more than time
    fatal         it needs a reset, a reboot or a technician

Sources: NVIDIA's Xid catalog with its immediate actions (docs.nvidia.com/deploy/xid-errors:
RESTART_APP is application here, IGNORE a notice, RESET_GPU and beyond fatal), its memory error
management guide for 48, 63, 64, 92, 94 and 95, and the six that NVIDIA's device plugin passes over
(13, 31, 43, 45, 68, 109). A code that stands nowhere is transient: out of use, and back by itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final


class Severity(Enum):
    """What an Xid means for who wants to use the GPU next."""

    APPLICATION = "application"
    NOTICE = "notice"
    TRANSIENT = "transient"
    FATAL = "fatal"

    @property
    def harms(self) -> bool:
        """True if nobody new should get the GPU."""
        return self in {Severity.TRANSIENT, Severity.FATAL}


@dataclass(frozen=True, slots=True)
class Xid:
    """One code. meaning: in a few words, for logs and events."""

    code: int
    severity: Severity
    meaning: str

    def __str__(self) -> str:
        return f"Xid {self.code} ({self.meaning})"


_KNOWN: Final[Mapping[Severity, Mapping[int, str]]] = {
    Severity.APPLICATION: {
        8: "GPU stopped processing",
        11: "invalid push buffer",
        13: "graphics engine exception",
        31: "memory page fault",
        43: "channel stopped by its program",
        45: "preemptive clean-up",
        68: "video processor exception",
        69: "graphics engine class error",
        94: "contained memory error",
        109: "context switch timeout",
    },
    Severity.NOTICE: {
        63: "row or page recorded for replacement",
        92: "many corrected memory errors",
        154: "recovery action changed",
    },
    Severity.FATAL: {
        46: "GPU stopped processing, needs a reset",
        48: "double-bit memory error",
        61: "internal micro-controller breakpoint",
        62: "internal micro-controller halt",
        64: "row or page could not be recorded for replacement",
        74: "NVLink error",
        79: "GPU has fallen off the bus",
        95: "uncontained memory error",
        110: "security fault",
        119: "GSP does not answer",
        120: "GSP error",
        140: "memory error that was not recovered",
        143: "GPU could not be initialised",
    },
}

XIDS: Final[Mapping[int, Xid]] = {
    code: Xid(code, severity, meaning)
    for severity, codes in _KNOWN.items()
    for code, meaning in codes.items()
}


def classify(code: int) -> Xid:
    """Never fails: a code that is not known is transient."""
    return XIDS.get(code) or Xid(code, Severity.TRANSIENT, "not known to this agent")
