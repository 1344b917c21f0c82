"""An administrator's settings for pods with GPUs. Values only."""

from dataclasses import dataclass
from enum import Enum


class DefaultMemory(Enum):
    """What becomes of a share that names no memory, where no fixed amount is given for it."""

    REFUSE = "refuse"
    SHARE = "share"
    """Of the smallest GPU known, as large a part as of its compute."""


class Unschedulable(Enum):
    """What becomes of a pod that no node known could ever run."""

    DENY = "deny"
    WARN = "warn"
    IGNORE = "ignore"


@dataclass(frozen=True, slots=True)
class AdmissionPolicy:
    """How pods are changed and judged.

    scheduler_name: for pods that name none of their own; empty: left as it is.
    default_memory: a rule, or a fixed number of blocks of 256 MiB.
    pin: `spec.nodeName` becomes a node affinity, so that the scheduler sees the pod.
    fail_open: what goes wrong in here lets the pod pass.
    claim_alternatives: a share that becomes a claim prefers GPUs that are in use.
    """

    scheduler_name: str = ""
    default_memory: DefaultMemory | int = DefaultMemory.REFUSE
    pin: bool = True
    unschedulable: Unschedulable = Unschedulable.WARN
    fail_open: bool = True
    claim_alternatives: bool = False
