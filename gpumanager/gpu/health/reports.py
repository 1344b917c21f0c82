"""What the cluster is told of the GPUs' health: a node condition, and an event for each change.

Pure, but for `NodeReports`: whoever talks to the API server implements it. A program can make its
driver report Xids by the thousand: those that do no harm are told the 1st, 10th, 100th … time.
"""

from collections.abc import Iterable, Iterator
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
    """Tells the cluster. Returns at once and never fails: what cannot be told now comes later."""

    def condition(self, condition: NodeCondition) -> None:
        """The condition is this from now on."""

    def event(self, event: NodeEvent) -> None:
        """This happened."""


class NoNodeReports:
    """For a node without an API server: the agent's log says the same."""

    def condition(self, condition: NodeCondition) -> None: ...

    def event(self, event: NodeEvent) -> None: ...


def condition_of(health: NodeHealth) -> NodeCondition:
    """False where a GPU is out of use or NVML fails, unknown where NVML does not answer."""
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
    """What happened, in the order of the GPUs; the library first."""
    return (*_of_nvml(before, after), *_of_gpus(before, after.gpus))


def _of_nvml(before: NodeHealth, after: NodeHealth) -> Iterator[NodeEvent]:
    if after.nvml is before.nvml:
        return
    if after.nvml in {NvmlState.FAILS, NvmlState.SILENT}:
        yield NodeEvent(True, "NvmlUnavailable", f"GPU health is not known: {after.problem}")
    elif before.nvml is not NvmlState.UNKNOWN:
        yield NodeEvent(False, "NvmlAvailable", "the driver answers again")


def _of_gpus(before: NodeHealth, gpus: Iterable[GpuHealth]) -> Iterator[NodeEvent]:
    for gpu in gpus:
        known = before.of(gpu.gpu) or GpuHealth(gpu.gpu)
        if not gpu.healthy and (known.healthy or known.cause != gpu.cause):
            reason = gpu.cause.reason.value if gpu.cause else "GpuUnhealthy"
            yield NodeEvent(
                True, reason, f"{_state(gpu)}; its containers keep it, no other gets it"
            )
        elif gpu.healthy and not known.healthy:
            yield NodeEvent(False, "GpuRecovered", f"{gpu.gpu} is back in use")
        if gpu.attention and gpu.attention != known.attention:
            yield NodeEvent(True, "GpuNeedsAttention", f"{gpu.gpu}: {gpu.attention}")
        if gpu.healthy and known.healthy and (noticed := ", ".join(_noticed(known, gpu))):
            yield NodeEvent(False, "GpuXidNoticed", f"{gpu.gpu} stays in use after {noticed}")


def _noticed(known: GpuHealth, gpu: GpuHealth) -> Iterator[str]:
    for code, count in sorted(gpu.xids.items()):
        if len(str(count)) > len(str(known.xids.get(code, ""))):
            yield f"{classify(code)}, {count} so far"


def _state(gpu: GpuHealth) -> str:
    return f"{gpu.gpu} is out of use: {gpu.cause.text if gpu.cause else 'unknown'}"
