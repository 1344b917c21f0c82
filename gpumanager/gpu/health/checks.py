"""Which health checks are wanted, as the environment variables of NVIDIA's device plugin say it.

    DP_DISABLE_HEALTHCHECKS=all      nothing is watched
    DP_DISABLE_HEALTHCHECKS=xids     events are passed over; GPUs are still probed
    DP_DISABLE_HEALTHCHECKS=48,63    these Xids are passed over
    DP_ENABLE_HEALTHCHECKS=13,31     these count, also those that are a program's own fault

What is enabled wins over what is disabled. In NVIDIA's plugin `xids` means `all`: it never probes.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gpumanager.gpu.health.xids import Severity, classify

log = logging.getLogger(__name__)

DISABLE: Final = "DP_DISABLE_HEALTHCHECKS"
ENABLE: Final = "DP_ENABLE_HEALTHCHECKS"
ALL: Final = "all"
XIDS: Final = "xids"


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
        probes=ALL not in off,
        xids=not off,
        disabled=disabled,
        enabled=enabled,
        every_xid=bool(on),
    )


def _read(name: str, text: str) -> tuple[frozenset[str], frozenset[int]]:
    """Return the words and the codes of one variable."""
    words = {word.strip().lower() for word in text.split(",")} - {""}
    codes = {word for word in words if word.isascii() and word.isdecimal()}
    for word in sorted(words - codes - {ALL, XIDS}):
        log.warning("%s: ignoring %r: write an Xid, `all` or `xids`", name, word)
    return frozenset(words & {ALL, XIDS}), frozenset(map(int, codes))
