"""One node as the extender knows it: a value. Changes make a new one.

What a verdict about a node depends on is its `likeness`: how its GPUs are linked, and what is free
on each. Nodes that are alike get one verdict between them, however many they are.
"""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final

from gpumanager.allocator.plan import planned
from gpumanager.cluster.labels import read_inventory
from gpumanager.gpu.values import Bond, Gpu, GpuUUID, Topology
from gpumanager.kubelet.pods import ContainerKind, ContainerView, PodUID, PodView
from gpumanager.names import (
    ANNOTATION_CORDON,
    ANNOTATION_GPU_ASSIGNED,
    ANNOTATION_INVENTORY,
    ANNOTATION_PLAN,
)
from gpumanager.placement.values import Books, GpuBook, Refusal
from gpumanager.scheduler.asks import PodAsk, Wish, ask_of, asking
from gpumanager.scheduler.packing import Packing, Positions, Use, pack, uses_of, without
from gpumanager.scheduler.quota import NodeClass
from gpumanager.units import CORES_PER_GPU, blocks

Bonds = tuple[tuple[Bond | None, ...], ...]

NO_GPUS: Final = Topology((), ())
EVERY: Final = "*"
PLAIN: Final = NodeClass()
MAKES: Final = 1024
"""How many kinds of machine are told apart; beyond, machines of one kind are seen as several."""


class Make:
    """What machines have in common that are built alike, whatever their GPUs are called."""

    def __init__(self, bonds: Bonds) -> None:
        self.bonds = bonds


@dataclass(frozen=True, slots=True)
class Holder:
    """A pod on a node. packing: None where nobody has said which GPUs it has."""

    ask: PodAsk
    packing: Packing | None
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class NodeState:
    """generation: counts up with each change. closed: GPUs on which nothing new is placed.

    inventory: the text it was read from. trouble: why that text is not understood.
    kind: what quotas know of it.
    """

    name: str
    generation: int = 0
    topology: Topology = NO_GPUS
    make: Make | None = None
    closed: frozenset[GpuUUID] = frozenset()
    holders: Mapping[PodUID, Holder] = field(default_factory=dict)
    books: Books = field(default_factory=Books)
    likeness: Hashable = ()
    inventory: str = ""
    cordon: str = ""
    trouble: str = ""
    kind: NodeClass = PLAIN

    def of_kind(self, kind: NodeClass) -> "NodeState":
        """Labelled so."""
        return self if kind == self.kind else replace(self, kind=kind)

    def with_gpus(self, inventory: str, cordon: str) -> "NodeState":
        """The node says that these are its GPUs. Its pods are not looked at: see `with_holders`."""
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

    def with_holders(self, holders: Mapping[PodUID, Holder]) -> "NodeState":
        """Exactly these pods are on it."""
        books = _books(self.topology, holders)
        books = without(books, (gpu for gpu in self.topology.gpus if gpu.uuid in self.closed))
        return replace(
            self,
            generation=self.generation + 1,
            holders=holders,
            books=books,
            likeness=(self.make, _free(self.topology, books)),
        )

    def place(self, ask: PodAsk, wanted: tuple[Positions, ...] = ()) -> Packing | Refusal:
        return pack(self.topology, self.open_to(ask.wish), ask, wanted)

    def open_to(self, wish: Wish) -> Books:
        """The books as a pod with this wish has to see them."""
        return without(self.books, (gpu for gpu in self.topology.gpus if not wish.takes(gpu)))


def read_node(item: Any) -> tuple[str, str, str, NodeClass]:
    """Name, inventory, cordon and kind of a node object.

    Raises KeyError, TypeError, AttributeError.
    """
    metadata = item["metadata"]
    annotations = metadata.get("annotations") or {}
    inventory, cordon = annotations.get(ANNOTATION_INVENTORY), annotations.get(ANNOTATION_CORDON)
    kind = NodeClass.of(metadata.get("labels") or {})
    return str(metadata["name"]), str(inventory or ""), str(cordon or ""), kind


def holder_of(node: NodeState, pod: PodView) -> Holder | None:
    """What the annotations of a pod on `node` say that it has; None for one without GPUs."""
    ask = ask_of(pod)
    if not isinstance(ask, PodAsk):
        return None
    gpus = tuple(_where(node.topology, pod, one) for one in asking(pod))
    if not all(gpus):
        return Holder(ask, None, pod.namespace)
    return Holder(ask, Packing(gpus, uses_of(node.topology, ask, gpus)), pod.namespace)


def moved(holder: Holder, before: Topology, after: Topology) -> Holder:
    """The same GPUs where their node lists other ones now; None of them known where one is gone."""
    if holder.packing is None:
        return holder
    places = {gpu.uuid: place for place, gpu in enumerate(after.gpus)}
    uuids = [[before.gpus[place].uuid for place in held] for held in holder.packing.gpus]
    if not all(uuid in places for held in uuids for uuid in held):
        return replace(holder, packing=None)
    gpus = tuple(tuple(sorted(places[uuid] for uuid in held)) for held in uuids)
    return replace(holder, packing=Packing(gpus, uses_of(after, holder.ask, gpus)))


def _where(topology: Topology, pod: PodView, container: ContainerView) -> Positions:
    """The agent corrects the indices once it has granted others than planned, not the plan."""
    found: tuple[Gpu, ...] = ()
    if pod.annotations.get(ANNOTATION_GPU_ASSIGNED) == "true" and _is_app(container):
        true = {k: text for k, text in pod.annotations.items() if k != ANNOTATION_PLAN}
        found = planned(topology, replace(pod, annotations=true), container)
    gpus = found or planned(topology, pod, container)
    return tuple(place for place, gpu in enumerate(topology.gpus) if gpu in gpus)


def _is_app(container: ContainerView) -> bool:
    return container.kind is ContainerKind.APP


def _books(topology: Topology, holders: Mapping[PodUID, Holder]) -> Books:
    """Those of whom nobody knows where they are come last: the node will have to place them too."""
    left = [[CORES_PER_GPU, blocks(gpu.memory), 0] for gpu in topology.gpus]
    for holder in holders.values():
        if holder.packing is not None:
            _take(left, holder.packing.uses)
    books = _as_books(topology, left)
    for holder in (one for one in holders.values() if one.packing is None):
        found = pack(topology, books, holder.ask)
        if isinstance(found, Packing):
            _take(left, found.uses)
            books = _as_books(topology, left)
    return books


def _take(left: list[list[int]], uses: Mapping[int, Use]) -> None:
    for position, (cores, memory, count) in uses.items():
        left[position][0] -= cores
        left[position][1] -= memory
        left[position][2] += count


def _as_books(topology: Topology, left: Iterable[list[int]]) -> Books:
    pairs = zip(topology.gpus, left, strict=True)
    return Books({gpu.uuid: GpuBook(one[0], one[1], one[2]) for gpu, one in pairs})


def _free(topology: Topology, books: Books) -> tuple[tuple[int, int, int], ...]:
    rooms = (books.of(gpu) for gpu in topology.gpus)
    return tuple((room.free_cores, room.free_blocks, room.processes) for room in rooms)


def make_of(topology: Topology) -> Make:
    gpus = tuple((gpu.model, gpu.memory, gpu.numa_node) for gpu in topology.gpus)
    return _make(gpus, topology.bonds)


@lru_cache(maxsize=MAKES)
def _make(_gpus: Hashable, bonds: Bonds) -> Make:
    return Make(bonds)


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
