"""A grant: the GPU cores and memory of one container, whichever interface asked for them.

    shares      {GPU: cores and memory blocks}; the ledger counts these
    isolation   the back end that enforces it, by its name in `isolation.table`; empty: none
    source      where it came from: the kubelet's device IDs, a claim, gpu-manager, a running
                container

It is *answered* once its container was given its edits, *confirmed* once it is known which
container that is. A *released* grant holds nothing; its files are still to be removed.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from gpumanager.gpu.values import GpuUUID
from gpumanager.ids import AllocationID, PodUID
from gpumanager.placement.values import Evaluator
from gpumanager.units import CORES_PER_GPU


class State(Enum):
    """Which container a grant is for: expected, or known."""

    ANSWERED = "answered"
    CONFIRMED = "settled"


@dataclass(frozen=True, slots=True)
class Claimant:
    """A container of a pod."""

    uid: PodUID
    namespace: str
    name: str
    container: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name} ({self.container})"


@dataclass(frozen=True, slots=True)
class Share:
    """Of one GPU. cores: percent of its time. blocks: of its memory."""

    cores: int
    blocks: int

    @property
    def exclusive(self) -> bool:
        """It has the whole GPU."""
        return self.cores >= CORES_PER_GPU


@dataclass(frozen=True, slots=True)
class DevicePluginSource:
    """The kubelet asked for these device IDs.

    admission: shared by the containers of one pod, which may reuse each other's IDs: an ID that two
    grants have is the same capacity.
    """

    admission: str
    core_ids: tuple[str, ...] = ()
    memory_ids: tuple[str, ...] = ()

    @property
    def all(self) -> tuple[str, ...]:
        """Return those of both resources."""
        return (*self.core_ids, *self.memory_ids)


@dataclass(frozen=True, slots=True)
class LegacySource(DevicePluginSource):
    """gpu-manager granted it, before this agent was installed; its directory stays in use.

    The IDs are gpu-manager's, which name no GPU; none if the kubelet has lost its checkpoint.
    """


@dataclass(frozen=True, slots=True)
class EvidenceSource(DevicePluginSource):
    """Recovered from a running container or its directory of limits; no device ID is known."""


@dataclass(frozen=True, slots=True)
class ClaimedDevice:
    """A device that a claim was allocated. name: in the node's slice. share: its shareID, if any.

    request: as the allocation has it, `gpu`, or `gpu/t0` where the request had alternatives.
    """

    name: str
    request: str
    share: str | None = None


@dataclass(frozen=True, slots=True)
class ClaimSource:
    """A ResourceClaim was prepared: one grant for those of its requests that the same containers
    use, however many these are.

    uid, namespace, name: the claim's. devices: in the order of the allocation; a GPU that two
    requests share is there twice. admin: its containers only look, and it holds nothing.
    """

    uid: str
    namespace: str
    name: str
    devices: tuple[ClaimedDevice, ...]
    admin: bool = False

    @property
    def requests(self) -> tuple[str, ...]:
        """By the names that pods use: without the alternative."""
        return tuple(dict.fromkeys(one.request.partition("/")[0] for one in self.devices))

    def __str__(self) -> str:
        return f"claim {self.namespace}/{self.name} (request {', '.join(self.requests)})"


Source = DevicePluginSource | ClaimSource
NO_DEVICES: Final = DevicePluginSource("")


@dataclass(frozen=True, slots=True)
class Grant:
    """The share of one container.

    evaluator, why: how its GPUs were chosen.
    ceiling: percent of the GPU it may burst up to; None: what it asked for.
    graphics: whether its container gets OpenGL, EGL and Vulkan, which no share limits.
    candidate: the container it was expected for; pod: the container that has it.
    suspect: the kubelet has since given its devices to another pod, so its own was rejected or has
    ended unobserved; it counts nowhere unless its container is confirmed after all.
    time: seconds since the epoch, of the first answer.
    """

    id: AllocationID
    source: Source
    shares: Mapping[GpuUUID, Share] = field(default_factory=dict)
    evaluator: Evaluator = Evaluator.SHARE
    why: str = ""
    time: float = 0.0
    isolation: str = ""
    state: State = State.ANSWERED
    ceiling: int | None = None
    graphics: bool = True
    candidate: Claimant | None = None
    pod: Claimant | None = None
    suspect: bool = False
    released: bool = False
    ids: DevicePluginSource = field(init=False, repr=False, compare=False)
    """The kubelet's device IDs; none for what came by another interface."""

    def __post_init__(self) -> None:
        own = self.source if isinstance(self.source, DevicePluginSource) else NO_DEVICES
        object.__setattr__(self, "ids", own)  # every call of the kubelet asks all grants

    @property
    def gpus(self) -> tuple[GpuUUID, ...]:
        """The GPUs it has; they may differ from those that its device IDs name."""
        return tuple(self.shares)

    @property
    def counts(self) -> bool:
        """It takes from its GPUs what it says."""
        return not (self.suspect or (isinstance(self.source, ClaimSource) and self.source.admin))

    @property
    def cores(self) -> int:
        return sum(share.cores for share in self.shares.values())

    @property
    def blocks(self) -> int:
        """Memory blocks on each of its GPUs."""
        return max((share.blocks for share in self.shares.values()), default=0)

    @property
    def exclusive(self) -> bool:
        """It has whole GPUs."""
        return any(share.exclusive for share in self.shares.values())

    @property
    def legacy(self) -> bool:
        return isinstance(self.source, LegacySource)

    @property
    def owner(self) -> PodUID | None:
        """Its pod: the confirmed one, or else the expected one."""
        claimant = self.pod or self.candidate
        return claimant.uid if claimant else None


def shares_of(
    gpus: Iterable[GpuUUID], cores: int, blocks: int, *, exclusive: bool
) -> Mapping[GpuUUID, Share]:
    """Return shares of whole GPUs, or the same share of each: an ID may name one of several
    GPUs."""
    share = Share(CORES_PER_GPU if exclusive else cores, blocks)
    return dict.fromkeys(gpus, share)
