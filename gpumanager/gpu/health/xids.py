"""What an Xid, the driver's number for what went wrong, says of the GPU it is about.

    application   one program did wrong or was harmed; the GPU serves the next as before
    notice        worth telling, nothing to do now: the driver has dealt with it, or says more by
                  other means
    transient     the GPU may not serve now; nothing says that it needs more than time
    fatal         it needs a reset, a reboot or a technician

The main source is NVIDIA's catalog of Xids (docs.nvidia.com/deploy/xid-errors, the page "Analyzing
Xid Errors"): what it says is to be done at once decides the class. Codes that follow another
source, or another sentence of it, say so. What the catalog leaves to a decision by a sub-code
(144-150) or to somebody's look at more than the code (78, 142, 159, 167-169), and what stands
nowhere, is transient: out of use, and back by itself, unless the driver says that the GPU needs
more.

Which health checks are wanted, the environment variables of NVIDIA's device plugin say:

    DP_DISABLE_HEALTHCHECKS=all      nothing is watched
    DP_DISABLE_HEALTHCHECKS=xids     events are passed over; GPUs are still probed
    DP_DISABLE_HEALTHCHECKS=48,63    these Xids are passed over
    DP_ENABLE_HEALTHCHECKS=13,31     these count, also those that are a program's own fault

What is enabled wins over what is disabled. In NVIDIA's plugin `xids` means `all`: it never probes.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final


class Severity(Enum):
    """What an Xid means for the next user of the GPU."""

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


_COPY_ENGINES: Final = (39, 40, 41, 70, 71, 72, 75, 76, 77, 85, *range(126, 136))
_VIDEO_DECODERS: Final = (68, 83, 84, 88, 89, 96, 97, 98)
_IMAGE_DECODERS: Final = (82, *range(99, 106))

KNOWN_XIDS: Final[Mapping[Severity, Mapping[int, str]]] = {
    Severity.APPLICATION: {
        # Catalog: RESTART_APP.
        8: "GPU stopped processing",
        11: "invalid push buffer",
        13: "graphics engine exception",
        25: "illegal push buffer",
        31: "memory page fault",
        32: "corrupted push buffer",
        60: "video processor exception",
        69: "graphics engine class error",
        80: "corrupted data sent to the GPU",
        86: "optical flow engine exception",
        94: "contained memory error",
        139: "optical flow engine exception",
        **dict.fromkeys(_COPY_ENGINES, "copy engine exception"),
        **dict.fromkeys(_VIDEO_DECODERS, "video decoder exception"),
        **dict.fromkeys(_IMAGE_DECODERS, "image decoder exception"),
        # Catalog: IGNORE, a program's own fault; NVIDIA's device plugin passes over 43.
        43: "channel stopped by its program",
        137: "illegal access over NVLink",
        # Catalog: WORKFLOW_XID_45, follows a program's end or another Xid; NVIDIA's device plugin.
        45: "preemptive clean-up",
        # NVIDIA's device plugin passes over it. The catalog says RESET_GPU: drivers from R570 on
        # ask for that themselves, as what the GPU needs.
        109: "context switch timeout",
    },
    Severity.NOTICE: {
        # Catalog: IGNORE.
        14: "injected error",
        37: "driver firmware error",
        38: "driver firmware watchdog",
        44: "graphics engine fault while switching contexts",
        63: "row or page recorded for replacement",
        66: "illegal access by the driver",
        67: "illegal access by the driver",
        92: "many corrected memory errors",
        93: "InfoROM is worn to its limit",
        106: "test message",
        107: "test message",
        108: "remote address translation",
        121: "corrected error of the link to the CPU",
        141: "fast path error",
        152: "deep learning accelerator memory fault",
        153: "deep learning accelerator timeout",
        157: "part of the GPU could not be retired",
        160: "memory channel retired",
        161: "memory channel could not be retired",
        # Catalog: tells of other Xids; what the GPU needs is asked of the driver.
        154: "recovery action changed",
        # Catalog: of power smoothing only.
        **dict.fromkeys((162, 163, 164, 165), "power smoothing changed"),
    },
    Severity.TRANSIENT: {
        # Catalog: WORKFLOW_NVLINK5_ERR, by a sub-code that NVML does not tell.
        **dict.fromkeys(range(144, 151), "NVLink error"),
        # Catalog: something else is to be looked at.
        78: "virtual GPU did not start",
        142: "video encoder exception",
        159: "error of the link to the CPU",
        167: "PCIe timeout",
        168: "less memory than there should be",
        169: "internal micro-controller halt",
    },
    Severity.FATAL: {
        # Catalog: RESET_GPU.
        46: "GPU stopped processing, needs a reset",
        62: "internal micro-controller halt",
        64: "row or page could not be recorded for replacement",
        95: "uncontained memory error",
        110: "security fault",
        119: "GSP does not answer",
        120: "GSP error",
        136: "NVLink could not be trained",
        140: "memory error that was not recovered",
        143: "GPU could not be initialised",
        155: "NVLink is down",
        156: "part of the GPU is to be retired",
        158: "timeout of the GPU",
        # Catalog: WORKFLOW_XID_48 and WORKFLOW_NVLINK_ERR, which begin with a reset.
        48: "double-bit memory error",
        74: "NVLink error",
        171: "memory error that cannot be corrected",
        172: "memory error that cannot be corrected",
        # Catalog: RESTART_BM, RESTART_VM.
        79: "GPU has fallen off the bus",
        151: "keys could not be rotated",
        # Catalog: CHECK_MECHANICALS.
        54: "auxiliary power is not connected",
        # NVIDIA's GPU debug guidelines: a reset. The catalog has it as unused since Ampere.
        61: "internal micro-controller breakpoint",
    },
}


def classify(code: int) -> Xid:
    """Never fails: a code that is not known is transient."""
    for severity, meanings in KNOWN_XIDS.items():
        if code in meanings:
            return Xid(code, severity, meanings[code])
    return Xid(code, Severity.TRANSIENT, "not known to this agent")


log = logging.getLogger(__name__)

DISABLE: Final = "DP_DISABLE_HEALTHCHECKS"
ENABLE: Final = "DP_ENABLE_HEALTHCHECKS"
WORDS: Final = {"all", "xids"}


@dataclass(frozen=True, slots=True)
class Checks:
    """probes: whether GPUs are asked how they are. xids: whether events count, unless disabled."""

    probes: bool = True
    xids: bool = True
    disabled: frozenset[int] = frozenset()
    enabled: frozenset[int] = frozenset()
    every_xid: bool = False

    @property
    def any(self) -> bool:
        return self.probes or self.xids or self.every_xid or bool(self.enabled)

    @property
    def memory_events(self) -> bool:
        """Whether memory errors that NVML tells as events of their own count."""
        return self.xids or self.every_xid

    def severity(self, code: int) -> Severity | None:
        """What an Xid means under these checks; None if it is passed over."""
        severity = classify(code).severity
        if self.every_xid or code in self.enabled:
            return severity if severity.harms else Severity.TRANSIENT
        return severity if self.xids and code not in self.disabled else None


def checks_of(environment: Mapping[str, str]) -> Checks:
    """Never fails: a word that means nothing is said and passed over, as NVIDIA's plugin does."""
    off, disabled = _read(DISABLE, environment.get(DISABLE, ""))
    on, enabled = _read(ENABLE, environment.get(ENABLE, ""))
    return Checks(
        probes="all" not in off,
        xids=not off,
        disabled=disabled,
        enabled=enabled,
        every_xid=bool(on),
    )


def _read(name: str, text: str) -> tuple[frozenset[str], frozenset[int]]:
    """Return the words and the codes of one variable."""
    words = {word.strip().lower() for word in text.split(",")} - {""}
    codes = {word for word in words if word.isascii() and word.isdecimal()}
    for word in sorted(words - codes - WORDS):
        log.warning("%s: ignoring %r: write an Xid, `all` or `xids`", name, word)
    return frozenset(words & WORDS), frozenset(map(int, codes))
