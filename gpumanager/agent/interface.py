"""By what the kubelet asks for GPUs: device plugins, or claims. What the agent needs of either."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from gpumanager.gpu.values import GpuUUID, Topology
from gpumanager.grants.grant import Claimant, Grant
from gpumanager.grants.journal import Journal
from gpumanager.grants.ledger import Ledger
from gpumanager.ids import AllocationID, PodUID
from gpumanager.monitor.ports import holder
from gpumanager.recovery.reconciliation import Disagreement
from gpumanager.supervisor import Start


class Granter(Protocol):
    """An interface that grants GPUs: `TimedAllocator`, `ClaimDriver`."""

    @property
    def recovered(self) -> bool:
        """Whether the journal is loaded."""

    @property
    def journal(self) -> Journal: ...
    @property
    def ledger(self) -> Ledger: ...
    @property
    def topology(self) -> Topology: ...
    @property
    def unhealthy(self) -> frozenset[GpuUUID]: ...
    def mark_unhealthy(self, gpus: Iterable[GpuUUID]) -> None: ...
    def withdraw(self, gpus: frozenset[GpuUUID]) -> None: ...
    async def adopt(self, topology: Topology) -> None: ...
    async def take_up(self) -> None: ...
    async def serve_again(self) -> None: ...


class PluginStanding(Protocol):
    """How one resource, or driver, stands with the kubelet."""

    @property
    def resource(self) -> str: ...
    @property
    def registered(self) -> bool: ...
    @property
    def failure(self) -> str | None:
        """What kept it from that, or what the kubelet answered."""


class KubeletPlugin(Protocol):
    """Whoever the kubelet talks to: `DevicePlugin`, `ClaimPlugin`."""

    @property
    def standings(self) -> Sequence[PluginStanding]: ...
    async def start(self) -> None: ...
    async def served(self, within: float) -> None: ...
    async def registered(self, within: float) -> None: ...
    def register_anew(self) -> None: ...
    async def refresh(self) -> None: ...
    async def stop(self) -> None: ...


def nothing_found() -> tuple[Disagreement, ...]:
    """Nobody compares books."""
    return ()


GpuSet = frozenset[GpuUUID]


def nothing_released() -> int:
    """Whatever is granted here is released by its own reconciler."""
    return 0


def nothing_moves(elsewhere: GpuSet, leaving: GpuSet, closing: GpuSet) -> None:
    """An interface alone has all GPUs."""
    del elsewhere, leaving, closing


async def nothing_to_do() -> None:
    """For an interface that has nothing to release, to drain or to close."""


async def nobody_arrives() -> bool:
    """Pods name what they get."""
    return False


@dataclass(frozen=True, slots=True)
class NodeInterface:
    """One of the two, put together, or both.

    owners: the pods that an allocation is for, as far as known; none where it is not. users: their
    containers. slice_writes: how often the node's ResourceSlice was written.
    disagreements: what the last reconciliation found. tasks: what goes on by itself, once the
    kubelet knows of us. first: what has to go on before. released: claims that nobody unprepared,
    so far. drain: before another agent takes over. close: in the end.
    offers: which interface has which GPU. withheld: GPUs that device plugins do not give to pods.
    The rest is for two in one agent. offer: from now on these are the other one's, these go from
    one to the other, and of these, schedulers have not learnt it yet. in_use: GPUs that this one's
    pods have or may be about to get. allocated: GPUs that the scheduler has given to claims.
    release_ended: grants of ended pods. arriving: whether a pod is bound here that asks for GPUs
    and has none yet.
    """

    granter: Granter
    plugin: KubeletPlugin
    owners: Callable[[AllocationID], Collection[PodUID]]
    users: Callable[[Grant], tuple[Claimant, ...]] = holder
    slice_writes: Callable[[], int] = int
    disagreements: Callable[[], Sequence[Disagreement]] = nothing_found
    tasks: Mapping[str, Start] = field(default_factory=dict)
    first: Mapping[str, Start] = field(default_factory=dict)
    released: Callable[[], int] = nothing_released
    drain: Callable[[], Awaitable[None]] = nothing_to_do
    close: Callable[[], Awaitable[None]] = nothing_to_do
    offers: Callable[[], Mapping[GpuUUID, str]] = dict
    withheld: Callable[[], frozenset[GpuUUID]] = frozenset
    offer: Callable[[GpuSet, GpuSet, GpuSet], None] = nothing_moves
    in_use: Callable[[], frozenset[GpuUUID]] = frozenset
    allocated: Callable[[], frozenset[GpuUUID]] = frozenset
    release_ended: Callable[[], Awaitable[None]] = nothing_to_do
    arriving: Callable[[], Awaitable[bool]] = nobody_arrives
