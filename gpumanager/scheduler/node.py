"""One node as the extender knows it: a value. Changes make a new one.

Whether a pod fits depends on a node's `likeness`: how its GPUs are linked, and what is free on
each; how good the node is, also on the CPU and memory it has left. Nodes that are alike in both get
one verdict between them, however many they are.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final, NamedTuple

from gpumanager.cluster.labels import read_inventory
from gpumanager.gpu.values import GpuUUID, Topology
from gpumanager.grants.plan import named
from gpumanager.kubelet.pods import ContainerKind, ContainerView, PodUID, PodView
from gpumanager.names import (
    ANNOTATION_CORDON,
    ANNOTATION_GPU_ASSIGNED,
    ANNOTATION_INVENTORY,
    ANNOTATION_PLAN,
)
from gpumanager.placement.cluster import GpuRoom, NodeRoom
from gpumanager.placement.values import Books, GpuBook, Refusal
from gpumanager.scheduler.asks import ANY, PodAsk, Wish, asking, needs_of
from gpumanager.scheduler.hosts import BOUNDLESS, NOTHING, Host, allocatable, total
from gpumanager.scheduler.makes import Likeness, Make, likeness_of, make_of
from gpumanager.scheduler.packing import Packing, Positions, Use, pack, uses_of
from gpumanager.scheduler.quota import NodeClass
from gpumanager.units import CORES_PER_GPU, blocks

NO_GPUS: Final = Topology((), ())
EVERY: Final = "*"
NOWHERE: Final = Likeness()
PLAIN: Final = NodeClass()
NO_ROOM: Final = NodeRoom("", "", (), 0, 0, 0, 0)
ROOMS: Final = 65536


@dataclass(frozen=True, slots=True)
class Holder:
    """A pod on a node. packing: None where nobody has said which GPUs it has; those that the node
    lists no more are not in it."""

    ask: PodAsk
    packing: Packing | None
    namespace: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class NodeState:
    """generation: counts up with each change. closed: GPUs on which nothing new is placed.

    inventory: the text it was read from. trouble: why that text is not understood. kind: what
    quotas know of it. host: the CPU and memory that pods can have. asked, load: what pods with and
    without GPUs ask of that. room: what is left of everything, as policies see it.
    """

    name: str
    generation: int = 0
    topology: Topology = NO_GPUS
    make: Make | None = None
    closed: frozenset[GpuUUID] = frozenset()
    holders: Mapping[PodUID, Holder] = field(default_factory=dict)
    books: Books = field(default_factory=Books)
    likeness: Likeness = NOWHERE
    inventory: str = ""
    cordon: str = ""
    trouble: str = ""
    kind: NodeClass = PLAIN
    host: Host = BOUNDLESS
    asked: Host = NOTHING
    load: Host = NOTHING
    room: NodeRoom = NO_ROOM

    @property
    def untouched(self) -> tuple[int, ...]:
        """Positions of the GPUs that can be given whole: all that matters to who wants them so."""
        gpus = enumerate(self.topology.gpus)
        return tuple([place for place, gpu in gpus if self.books.of(gpu).untouched])

    @property
    def left(self) -> Host:
        """Of CPU and memory."""
        return Host(self.room.cpu_milli, self.room.memory_mib)

    def saying(self, said: "NodeSaid") -> "NodeState":
        """The node says this of itself. Its pods are not looked at: see `with_holders`."""
        node = self._with_gpus(said.inventory, said.cordon)
        if (said.kind, said.host) == (node.kind, node.host):
            return node
        return replace(node, kind=said.kind, host=said.host)

    def _with_gpus(self, inventory: str, cordon: str) -> "NodeState":
        if (inventory, cordon) == (self.inventory, self.cordon):
            return self
        topology, closed, trouble = _read(inventory)
        make = make_of(topology)
        return replace(
            self,
            topology=Topology(topology.gpus, make.bonds),
            make=make,
            closed=closed | _cordoned(topology, cordon),
            trouble=trouble,
            inventory=inventory,
            cordon=cordon,
        )

    def with_holders(self, holders: Mapping[PodUID, Holder], load: Host = NOTHING) -> "NodeState":
        """Exactly these pods are on it, and others that ask for so much CPU and memory."""
        books, free = _books(self.topology, holders, self.closed)
        asked = total([one.ask.host for one in holders.values()])
        closed = tuple([gpu.uuid in self.closed for gpu in self.topology.gpus])
        return replace(
            self,
            generation=self.generation + 1,
            holders=holders,
            books=books,
            likeness=likeness_of(self.make, free, closed, self.trouble),
            asked=asked,
            load=load,
            room=self._room(self._gpu_rooms(free), asked + load),
        )

    def with_load(self, load: Host) -> "NodeState":
        """Pods without GPUs ask for so much now."""
        room = self._room(self.room.gpus, self.asked + load)
        return replace(self, generation=self.generation + 1, load=load, room=room)

    def place(self, ask: PodAsk, wanted: tuple[Positions, ...] = ()) -> Packing | Refusal:
        return pack(self.topology, self.open_to(ask.wish), ask, wanted)

    def open_to(self, wish: Wish) -> Books:
        """The books as a pod with this wish has to see them."""
        if wish is ANY:
            return self.books
        return self.books.without(gpu for gpu in self.topology.gpus if not wish.takes(gpu))

    def room_for(self, ask: PodAsk) -> NodeRoom:
        """What a policy is to see: the GPUs that the pod may have, and at least the CPU and memory
        that it needs, since whether those suffice is kube-scheduler's to say."""
        room, host = self.room, ask.host
        fed = host.cpu_milli <= room.cpu_milli and host.memory_mib <= room.memory_mib
        if fed and ask.wish is ANY:
            return room
        gpus = self.topology.gpus
        open_ = tuple(one for one in room.gpus if ask.wish.takes(gpus[one.index]))
        return replace(
            room,
            gpus=open_,
            model=gpus[open_[0].index].model if open_ else room.model,
            cpu_milli=max(host.cpu_milli, room.cpu_milli),
            memory_mib=max(host.memory_mib, room.memory_mib),
        )

    def _gpu_rooms(self, free: tuple[Use, ...]) -> tuple[GpuRoom, ...]:
        gpus, closed = self.topology.gpus, self.closed
        return tuple(
            [
                gpu_room(place, max(0, cores), max(0, memory), blocks(gpus[place].memory))
                for place, (cores, memory, _) in enumerate(free)
                if gpus[place].uuid not in closed
            ]
        )

    def _room(self, gpus: tuple[GpuRoom, ...], taken: Host) -> NodeRoom:
        left = self.host - taken
        model = self.topology.gpus[gpus[0].index].model if gpus else ""
        free = max(0, left.cpu_milli), max(0, left.memory_mib)
        return NodeRoom("", model, gpus, *free, self.host.cpu_milli, self.host.memory_mib)


gpu_room: Final = lru_cache(maxsize=ROOMS)(GpuRoom)
gpu_book: Final = lru_cache(maxsize=ROOMS)(GpuBook)
"""Few states of a GPU recur on all nodes."""


class NodeSaid(NamedTuple):
    """What a node object says. inventory, cordon: the texts of its annotations."""

    name: str
    inventory: str = ""
    cordon: str = ""
    kind: NodeClass = PLAIN
    host: Host = BOUNDLESS


def read_node(item: Any) -> NodeSaid:
    """Of a node object; raises KeyError, TypeError, AttributeError."""
    metadata = item["metadata"]
    annotations = metadata.get("annotations") or {}
    inventory, cordon = annotations.get(ANNOTATION_INVENTORY), annotations.get(ANNOTATION_CORDON)
    return NodeSaid(
        str(metadata["name"]),
        str(inventory or ""),
        str(cordon or ""),
        NodeClass.of(metadata.get("labels") or {}),
        allocatable(item),
    )


def holder_of(node: NodeState, pod: PodView) -> Holder | None:
    """What the annotations of a pod on `node` say that it has; None for one without GPUs."""
    ask = needs_of(pod)
    return holder_with(ask, node, pod) if isinstance(ask, PodAsk) else None


def holder_with(ask: PodAsk, node: NodeState, pod: PodView) -> Holder:
    """The same of a pod that is known to ask for this."""
    gpus = tuple(_where(node.topology, pod, one) for one in asking(pod))
    return Holder(ask, _packed(node.topology, ask, gpus), pod.namespace, pod.name)


def uuids_of(topology: Topology, packing: Packing) -> tuple[frozenset[GpuUUID], ...]:
    """The GPUs of each container."""
    return tuple(frozenset(topology.gpus[place].uuid for place in held) for held in packing.gpus)


def moved(holder: Holder, gpus: tuple[frozenset[GpuUUID], ...], topology: Topology) -> Holder:
    """With these GPUs where the node lists them now."""
    rows = tuple(enumerate(topology.gpus))
    held = tuple(tuple(place for place, gpu in rows if gpu.uuid in wanted) for wanted in gpus)
    return replace(holder, packing=_packed(topology, holder.ask, held))


def _packed(topology: Topology, ask: PodAsk, gpus: tuple[Positions, ...]) -> Packing | None:
    return Packing(gpus, uses_of(topology, ask, gpus)) if any(gpus) else None


def _where(topology: Topology, pod: PodView, container: ContainerView) -> Positions:
    """The agent corrects the indices once it has granted others than planned, not the plan."""
    if pod.annotations.get(ANNOTATION_GPU_ASSIGNED) == "true" and _is_app(container):
        true = {k: text for k, text in pod.annotations.items() if k != ANNOTATION_PLAN}
        if found := _named(topology, replace(pod, annotations=true), container):
            return found
    return _named(topology, pod, container)


def _named(topology: Topology, pod: PodView, container: ContainerView) -> Positions:
    """Those that there are of as many as it asks for; a plan for another number is none."""
    found, count = named(topology, pod, container)
    if count != max(1, (container.cores or 0) // CORES_PER_GPU):
        return ()
    return tuple(place for place, gpu in enumerate(topology.gpus) if gpu in found)


def _is_app(container: ContainerView) -> bool:
    return container.kind is ContainerKind.APP


def _books(
    topology: Topology, holders: Mapping[PodUID, Holder], closed: frozenset[GpuUUID]
) -> tuple[Books, tuple[Use, ...]]:
    """With what each GPU has free, and by how many it is held; nothing is on one that is closed.

    Those of whom nobody knows where they are come last: the node will have to place them too.
    """
    left = [[CORES_PER_GPU, blocks(gpu.memory), 0] for gpu in topology.gpus]
    lost = []
    for holder in holders.values():
        if holder.packing is None:
            lost.append(holder)
        else:
            _take(left, holder.packing.uses)
    for holder in lost:
        found = pack(topology, _as_books(topology, left), holder.ask)
        if isinstance(found, Packing):
            _take(left, found.uses)
    for gpu, row in zip(topology.gpus, left, strict=True):
        if gpu.uuid in closed:
            row[:2] = 0, 0
    return _as_books(topology, left), tuple([(row[0], row[1], row[2]) for row in left])


def _take(left: list[list[int]], uses: Mapping[int, Use]) -> None:
    for position, (cores, memory, count) in uses.items():
        row = left[position]
        row[0] -= cores
        row[1] -= memory
        row[2] += count


def _as_books(topology: Topology, left: Iterable[list[int]]) -> Books:
    pairs = zip(topology.gpus, left, strict=True)
    return Books({gpu.uuid: gpu_book(row[0], row[1], row[2]) for gpu, row in pairs})


def _read(inventory: str) -> tuple[Topology, frozenset[GpuUUID], str]:
    """The GPUs, those that are unhealthy, and what is wrong with the text."""
    if not inventory:
        return NO_GPUS, frozenset(), ""
    try:
        return *read_inventory(inventory), ""
    except ValueError as error:
        return NO_GPUS, frozenset(), str(error)


def _cordoned(topology: Topology, cordon: str) -> frozenset[GpuUUID]:
    named = {word.strip() for word in cordon.split(",")}
    return frozenset(gpu.uuid for gpu in topology.gpus if EVERY in named or gpu.uuid in named)
