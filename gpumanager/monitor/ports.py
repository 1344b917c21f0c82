"""What the monitor needs of the world, as Protocols: each has a real and a simulated side."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from gpumanager.gpu.health.reports import NodeEvent
from gpumanager.gpu.values import GpuUUID, Topology
from gpumanager.grants.grant import Claimant, Grant
from gpumanager.grants.journal import Journal
from gpumanager.grants.ledger import Ledger
from gpumanager.ids import PodUID
from gpumanager.limits.processes import Process
from gpumanager.limits.values import AllocationUsage
from gpumanager.runtime.cgroup import Membership


def holder(grant: Grant) -> tuple[Claimant, ...]:
    """Return the container of a grant that one container has; none where it is not known."""
    return () if grant.pod is None else (grant.pod,)


class BooksReader(Protocol):
    """Reads what the containers of grants use; asked in the loop."""

    def usage(self, grant: Grant) -> AllocationUsage | None:
        """None where nobody measures it. Raises GpuManagerError where that cannot be read."""


class Residents(Protocol):
    """Finds the pod and container of a process; asked in the loop."""

    def of(self, process: Process) -> Membership | None: ...


class Reports(Protocol):
    """Tells the cluster. Returns at once and never fails."""

    def event(self, event: NodeEvent) -> None:
        """This happened to the node."""

    def pod_event(self, pod: PodUID, event: NodeEvent) -> None:
        """This happened to a pod, by the UID that the kubelet knows."""


class NoReports:
    """For a node without an API server: the log says the same."""

    def event(self, event: NodeEvent) -> None: ...

    def pod_event(self, pod: PodUID, event: NodeEvent) -> None: ...


@dataclass(frozen=True, slots=True)
class GpuFitness:
    """Whether a GPU is in use, how often its driver reported which Xid, and by which interface pods
    get it: `device-plugin` or `claims`; empty where nobody says."""

    healthy: bool = True
    xids: Mapping[int, int] = field(default_factory=dict)
    interface: str = ""


@dataclass(frozen=True, slots=True)
class Sources:
    """Where the monitor looks. Each of the callables returns at once.

    node: its name in the cluster. journal_bytes: of the journal's file. registered: which
    resources the kubelet knows us for. mismatched: callers of a socket that is another pod's.
    disagreements: between the journal, the kubelet, the runtime and the driver, by kind.
    users: the containers that a grant is for; a claim may have several, of several pods.
    slice_writes: how often the node's ResourceSlice was written.
    released: claims that nobody unprepared, so far.
    quiet: whether no container has launched or moved memory for some seconds.
    """

    node: str
    topology: Callable[[], Topology]
    ledger: Callable[[], Ledger]
    journal: Callable[[], Journal]
    journal_bytes: Callable[[], int]
    books: BooksReader
    residents: Residents
    registered: Callable[[], Mapping[str, bool]]
    mismatched: Callable[[], int] = lambda: 0
    fitness: Callable[[], Mapping[GpuUUID, GpuFitness]] = dict
    disagreements: Callable[[], Mapping[str, int]] = dict
    users: Callable[[Grant], tuple[Claimant, ...]] = holder
    slice_writes: Callable[[], int] = int
    released: Callable[[], int] = lambda: 0
    quiet: Callable[[], bool] = lambda: False
