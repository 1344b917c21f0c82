"""What the cluster is told of the GPUs' health: a node condition, and an event for each change.

Pure, but for `NodeReports`: whoever talks to the API server implements it. A program can make its
driver report Xids by the thousand: those that do no harm are told the 1st, 10th, 100th … time.
"""

from dataclasses import dataclass
from typing import Final, Protocol

from gpumanager.gpu.health.state import GpuHealth, NodeHealth, NvmlState
from gpumanager.gpu.health.xids import classify

CONDITION: Final = "GpusHealthy"
"""Type of the node condition."""


@dataclass(frozen=True, slots=True)
class NodeCondition:
    """As in a node's status. status: None is `Unknown`."""

    type: str
    status: bool | None
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """An event on the node; `warning` or normal."""

    warning: bool
    reason: str
    message: str


class NodeReports(Protocol):
    """Reports to the cluster. Returns at once and never fails: what it cannot send it retries."""

    def condition(self, condition: NodeCondition) -> None:
        """Report the condition, which is this from now on."""

    def event(self, event: NodeEvent) -> None:
        """Report that this happened."""


def condition_of(health: NodeHealth) -> NodeCondition:
    """Return false where a GPU is out of use or NVML fails, unknown where it does not answer."""
    if health.nvml is NvmlState.UNKNOWN:
        return NodeCondition(CONDITION, None, "NotAskedYet", "the driver was not asked yet")
    if health.nvml is NvmlState.SILENT:
        return NodeCondition(CONDITION, None, "NvmlSilent", health.problem)
    if health.nvml is NvmlState.FAILS:
        return NodeCondition(CONDITION, False, "NvmlFails", health.problem)
    harmed = [one for one in health.gpus if not one.healthy]
    if not harmed:
        message = f"{len(health.gpus)} GPUs are fit for use"
        return NodeCondition(CONDITION, True, "AllGpusHealthy", message)
    return NodeCondition(CONDITION, False, "GpuUnhealthy", "; ".join(map(_state, harmed)))


def events_between(before: NodeHealth, after: NodeHealth) -> tuple[NodeEvent, ...]:
    """Return what happened, in the order of the GPUs; the library first."""
    events: list[NodeEvent] = []
    if after.nvml is not before.nvml and after.nvml in {NvmlState.FAILS, NvmlState.SILENT}:
        text = f"GPU health is not known: {after.problem}"
        events.append(NodeEvent(True, "NvmlUnavailable", text))
    elif after.nvml is not before.nvml and before.nvml is not NvmlState.UNKNOWN:
        events.append(NodeEvent(False, "NvmlAvailable", "the driver answers again"))
    for gpu in after.gpus:
        known = before.of(gpu.gpu) or GpuHealth(gpu.gpu)
        if not gpu.healthy and (known.healthy or known.cause != gpu.cause):
            reason = gpu.cause.reason.value if gpu.cause else "GpuUnhealthy"
            text = f"{_state(gpu)}; its containers keep it, no other gets it"
            events.append(NodeEvent(True, reason, text))
        elif gpu.healthy and not known.healthy:
            events.append(NodeEvent(False, "GpuRecovered", f"{gpu.gpu} is back in use"))
        if gpu.attention and gpu.attention != known.attention:
            events.append(NodeEvent(True, "GpuNeedsAttention", f"{gpu.gpu}: {gpu.attention}"))
        noticed = ", ".join(
            f"{classify(code)}, {count} so far"
            for code, count in sorted(gpu.xids.items())
            if len(str(count)) > len(str(known.xids.get(code, "")))
        )
        if gpu.healthy and known.healthy and noticed:
            text = f"{gpu.gpu} stays in use after {noticed}"
            events.append(NodeEvent(False, "GpuXidNoticed", text))
    return tuple(events)


def _state(gpu: GpuHealth) -> str:
    return f"{gpu.gpu} is out of use: {gpu.cause.text if gpu.cause else 'unknown'}"
