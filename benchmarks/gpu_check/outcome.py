"""What a check came to."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from gpumanager.errors import GpuManagerError


class Verdict(Enum):
    """In the order of the summary: what was not seen at all comes before what was seen to fail."""

    LOST = "LOST"
    """Not looked at: no time, or something that the check needs is missing or did not end."""
    FAIL = "FAIL"
    FIGURE = "figure"
    """Measured; no bar to pass or to fail."""
    PASS = "pass"
    ABSENT = "absent"
    """An optional package or a way of computing that this machine does not have."""


@dataclass(frozen=True, slots=True)
class Finding:
    """said: one line for people. figures: the same for programs. about: beside the check's name."""

    verdict: Verdict
    said: str
    figures: Mapping[str, Any] = field(default_factory=dict)
    about: str = ""


class CheckFailed(GpuManagerError):
    """A workload did not do what it was started for; the check it belongs to has failed."""


class Lost(GpuManagerError):
    """What a check needs is missing, or did not end in time: it has looked at nothing."""


class Absent(GpuManagerError):
    """This machine lacks something optional that a check is about."""


def passed_if(conditions: Mapping[str, bool], said: str, figures: Mapping[str, Any]) -> Finding:
    """PASS if all conditions hold, each of what should be; else FAIL, naming those that do not."""
    broken = [what for what, holds in conditions.items() if not holds]
    if broken:
        return Finding(Verdict.FAIL, f"not so: {'; '.join(broken)}. Seen: {said}", figures)
    return Finding(Verdict.PASS, said, figures)
