"""One node as the extender knows it: a value. A change makes a new one."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final, NamedTuple

from gpumanager.gpu.inventory import read_inventory
from gpumanager.gpu.values import Bond, GpuUUID, Topology
from gpumanager.ids import PodUID
from gpumanager.kube.plan import named
from gpumanager.kube.pod import ContainerKind, ContainerView, PodView, amounts
from gpumanager.names import (
    ANNOTATION_CORDON,
    ANNOTATION_GPU_ASSIGNED,
    ANNOTATION_INVENTORY,
    ANNOTATION_PLAN,
)
from gpumanager.placement.values import FreeGpu, FreeGpus, FreeNode, Refusal, idle_gpu
from gpumanager.scheduler.quota.limits import NodeClass
from gpumanager.scheduler.scoring.packing import Packing, Positions, Use, pack, uses_of
from gpumanager.scheduler.scoring.pod_shape import (
    ANY,
    BOUNDLESS,
    NO_RESOURCES,
    HostResources,
    PodShape,
    asking,
)
from gpumanager.units import CORES_PER_GPU, blocks

NO_GPUS: Final = Topology((), ())
EVERY_GPU: Final = "*"
PLAIN: Final = NodeClass()
NOTHING_FREE: Final = FreeNode("", "", (), 0, 0, 0, 0)


class ClaimHolder(NamedTuple):
    """A claim, as namespace/name, and the pods that share it. uses: cores and blocks by GPU."""

    claim: str
    pods: tuple[str, ...]
    uses: tuple[tuple[GpuUUID, int, int], ...]

    @property
    def namespace(self) -> str:
        return self.claim.partition("/")[0]


class Offered(NamedTuple):
    """What is left of the GPUs that a node offers to claims, in the order of its slice.

    holders: the claims that have the rest.
    """

    model: str = ""
    gpus: tuple[FreeGpu, ...] = ()
    holders: tuple[ClaimHolder, ...] = ()


NOTHING_OFFERED: Final = Offered()


class MachineType:
    """What machines have in common that are built alike, whatever their GPUs are called."""

    def __init__(self, bonds: tuple[tuple[Bond | None, ...], ...]) -> None:
        self.bonds = bonds


@lru_cache(maxsize=1024)  # beyond, machines of one type are seen as several
def _machine_type(_gpus: Hashable, bonds: tuple[tuple[Bond | None, ...], ...]) -> MachineType:
    return MachineType(bonds)


@dataclass(frozen=True, slots=True)
class Holder:
    """A pod on a node. packing: None where its GPUs are not known; those that the node lists no
    more are not in it."""

    ask: PodShape
    packing: Packing | None
    namespace: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class NodeState:
    """closed: GPUs on which nothing new is placed.

    inventory: the text it was read from. trouble: why that text is not understood. kind: what
    quotas know of it. host: the CPU and memory that pods can have. asked, load: what pods with and
    without GPUs ask of that. gpus: what is free on each, less than nothing where more is held than
    there is. free: what is left of everything, as policies see it. offered: to claims.
    """

    name: str
    topology: Topology = NO_GPUS
    machine: MachineType | None = None
    closed: frozenset[GpuUUID] = frozenset()
    holders: Mapping[PodUID, Holder] = field(default_factory=dict)
    gpus: tuple[FreeGpu, ...] = ()
    inventory: str = ""
    cordon: str = ""
    trouble: str = ""
    kind: NodeClass = PLAIN
    host: HostResources = BOUNDLESS
    asked: HostResources = NO_RESOURCES
    load: HostResources = NO_RESOURCES
    free: FreeNode = NOTHING_FREE
    offered: Offered = NOTHING_OFFERED

    @property
    def whole_gpus(self) -> tuple[int, ...]:
        """Return the positions of the untouched GPUs: all that a pod with whole GPUs depends on."""
        return tuple([place for place, gpu in enumerate(self.gpus) if gpu.whole])

    @property
    def free_gpus(self) -> FreeGpus:
        """Return what is free, by UUID."""
        return FreeGpus({gpu.uuid: self.gpus[n] for n, gpu in enumerate(self.topology.gpus)})

    def with_object(self, said: "NodeSaid") -> "NodeState":
        """Return it as the node object has it. Pods are not counted again: see `with_holders`."""
        node = self
        if (said.inventory, said.cordon) != (self.inventory, self.cordon):
            topology, unhealthy, trouble = NO_GPUS, frozenset[GpuUUID](), ""
            if said.inventory:
                try:
                    topology, unhealthy = read_inventory(said.inventory)
                except ValueError as error:
                    trouble = str(error)
            words = {word.strip() for word in said.cordon.split(",")}
            uuids = {gpu.uuid for gpu in topology.gpus}
            cordoned = uuids if EVERY_GPU in words else uuids & words
            alike = tuple((gpu.model, gpu.memory, gpu.numa_node) for gpu in topology.gpus)
            machine = _machine_type(alike, topology.bonds)
            node = replace(
                self,
                topology=Topology(topology.gpus, machine.bonds),
                machine=machine,
                closed=unhealthy | cordoned,
                trouble=trouble,
                inventory=said.inventory,
                cordon=said.cordon,
            )
        if (said.kind, said.host) == (node.kind, node.host):
            return node
        return replace(node, kind=said.kind, host=said.host)

    def with_holders(
        self, holders: Mapping[PodUID, Holder], load: HostResources = NO_RESOURCES
    ) -> "NodeState":
        """Return it with exactly these pods, and others that ask for so much CPU and memory."""
        gpus = _free_gpus(self.topology, holders, self.closed)
        asked = sum((one.ask.host for one in holders.values()), NO_RESOURCES)
        return replace(
            self,
            holders=holders,
            gpus=gpus,
            asked=asked,
            load=load,
            free=self._free(gpus, asked + load),
        )

    def with_load(self, load: HostResources) -> "NodeState":
        """Return it where pods without GPUs ask for so much."""
        free = self._free(self.gpus, self.asked + load)
        return replace(self, load=load, free=free)

    def place(self, ask: PodShape, wanted: tuple[Positions, ...] = ()) -> Packing | Refusal:
        others = (gpu for gpu in self.topology.gpus if not ask.wish.takes(gpu))
        return pack(self.topology, self.free_gpus.without(others), ask, wanted)

    def free_for(self, ask: PodShape) -> FreeNode:
        """Return what a policy is given: the GPUs that the pod may have, and at least the CPU and
        memory that it needs, since kube-scheduler decides whether those suffice."""
        free = self.free
        cpu = max(ask.host.cpu_milli, free.cpu_milli)
        memory = max(ask.host.memory_mib, free.memory_mib)
        if (cpu, memory) != (free.cpu_milli, free.memory_mib):
            free = replace(free, cpu_milli=cpu, memory_mib=memory)
        if ask.claimed:
            return replace(free, model=self.offered.model, gpus=self.offered.gpus)
        if ask.wish is ANY:
            return free
        takes = [ask.wish.takes(gpu) for gpu in self.topology.gpus]
        pairs = zip(free.gpus, takes, strict=True)
        return replace(
            free,
            gpus=tuple([gpu if open_ else _closed(gpu) for gpu, open_ in pairs]),
            model=self.topology.gpus[takes.index(True)].model if any(takes) else free.model,
        )

    def _free(self, gpus: tuple[FreeGpu, ...], taken: HostResources) -> FreeNode:
        left = self.host - taken
        model = self.topology.gpus[0].model if gpus else ""
        host = max(0, left.cpu_milli), max(0, left.memory_mib)
        known = tuple(
            [gpu._replace(cores=max(0, gpu.cores), blocks=max(0, gpu.blocks)) for gpu in gpus]
        )
        return FreeNode("", model, known, *host, self.host.cpu_milli, self.host.memory_mib)


class NodeSaid(NamedTuple):
    """What a node object says. inventory, cordon: the texts of its annotations."""

    name: str
    inventory: str = ""
    cordon: str = ""
    kind: NodeClass = PLAIN
    host: HostResources = BOUNDLESS


def read_node(item: Any) -> NodeSaid:
    """Read a node object; raises KeyError, TypeError, AttributeError."""
    metadata = item["metadata"]
    annotations = metadata.get("annotations") or {}
    inventory, cordon = annotations.get(ANNOTATION_INVENTORY), annotations.get(ANNOTATION_CORDON)
    has = (item.get("status") or {}).get("allocatable")
    return NodeSaid(
        str(metadata["name"]),
        str(inventory or ""),
        str(cordon or ""),
        NodeClass.of(metadata.get("labels") or {}),
        HostResources(*amounts(has)) if has else BOUNDLESS,
    )


def holder_of(ask: PodShape, node: NodeState, pod: PodView) -> Holder:
    """Return what a pod that asks for this has on `node` by its annotations."""
    gpus = []
    assigned = pod.annotations.get(ANNOTATION_GPU_ASSIGNED) == "true"
    for one in asking(pod):
        held: Positions = ()
        if assigned and one.kind is ContainerKind.APP:
            # The agent granted other GPUs than planned: it corrects the indices, not the plan.
            indices = {k: text for k, text in pod.annotations.items() if k != ANNOTATION_PLAN}
            held = _named(node.topology, replace(pod, annotations=indices), one)
        gpus.append(held or _named(node.topology, pod, one))
    return Holder(ask, _packed(node.topology, ask, tuple(gpus)), pod.namespace, pod.name)


def moved(holder: Holder, gpus: tuple[frozenset[GpuUUID], ...], topology: Topology) -> Holder:
    """Return the holder with these GPUs where the node lists them now."""
    rows = tuple(enumerate(topology.gpus))
    held = tuple(tuple(place for place, gpu in rows if gpu.uuid in wanted) for wanted in gpus)
    return replace(holder, packing=_packed(topology, holder.ask, held))


def _packed(topology: Topology, ask: PodShape, gpus: tuple[Positions, ...]) -> Packing | None:
    return Packing(gpus, uses_of(topology, ask, gpus)) if any(gpus) else None


def _named(topology: Topology, pod: PodView, container: ContainerView) -> Positions:
    """Return the GPUs that its annotations name and that there are; none where they name another
    number than it asks for."""
    found, count = named(topology, pod, container)
    if count != max(1, (container.cores or 0) // CORES_PER_GPU):
        return ()
    return tuple(place for place, gpu in enumerate(topology.gpus) if gpu in found)


def _free_gpus(
    topology: Topology, holders: Mapping[PodUID, Holder], closed: frozenset[GpuUUID]
) -> tuple[FreeGpu, ...]:
    """Return what each GPU has free, and by how many it is held; nothing on one that is closed.

    Pods without a known GPU come last: the node will have to place them too.
    """
    free = [idle_gpu(blocks(gpu.memory)) for gpu in topology.gpus]
    lost = []
    for holder in holders.values():
        if holder.packing is None:
            lost.append(holder)
        else:
            _take(free, holder.packing.uses)
    for holder in lost:
        known = zip(topology.gpus, free, strict=True)
        found = pack(topology, FreeGpus({gpu.uuid: one for gpu, one in known}), holder.ask)
        if isinstance(found, Packing):
            _take(free, found.uses)
    pairs = zip(topology.gpus, free, strict=True)
    return tuple([_closed(one) if gpu.uuid in closed else one for gpu, one in pairs])


def _take(free: list[FreeGpu], uses: Mapping[int, Use]) -> None:
    for position, (cores, memory, count) in uses.items():
        gpu = free[position]
        left = gpu.cores - cores, gpu.blocks - memory, gpu.processes + count
        free[position] = FreeGpu(*left, gpu.memory)


def _closed(gpu: FreeGpu) -> FreeGpu:
    """Return the same GPU where nothing new may be placed on it."""
    return gpu._replace(cores=0, blocks=0)
