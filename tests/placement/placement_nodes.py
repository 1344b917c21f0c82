"""Machines to place on, and a short way to say what is placed where."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from gpumanager.gpu.values import Bond, Gpu, GpuUUID, Level, Topology, topology
from gpumanager.placement.place import place
from gpumanager.placement.values import FreeGpus, GpuChoice, Refusal, Request
from gpumanager.units import GIB, MEMORY_BLOCK, Bytes

BondOf = Callable[[int, int], Bond]


def machine(
    size: int,
    bond: BondOf,
    numa: Sequence[int | None] | None = None,
    memory: Sequence[int] | None = None,
) -> Topology:
    """`bond` is asked with the lower index first; `memory` is in blocks."""
    gpus = [
        Gpu(
            index,
            index,
            GpuUUID(f"GPU-{index}"),
            f"{index:02x}",
            "any",
            Bytes(memory[index] * MEMORY_BLOCK if memory else 16 * GIB),
            numa[index] if numa else None,
        )
        for index in range(size)
    ]
    return topology(
        gpus,
        [
            [None if a == b else bond(min(a, b), max(a, b)) for b in range(size)]
            for a in range(size)
        ],
    )


@dataclass(frozen=True, slots=True)
class Node:
    """A machine and its books. Changes make a new one."""

    topology: Topology
    books: FreeGpus

    def occupy(self, held: Mapping[int, int | tuple[int, int]]) -> "Node":
        """Cores, or cores and blocks, of each GPU by index; 100 cores take it whole."""
        books = self.books
        for index, amount in held.items():
            cores, memory = amount if isinstance(amount, tuple) else (amount, 0)
            gpu = self.topology.gpus[index]
            books = books.occupy(gpu.uuid, Request(cores, memory))
        return Node(self.topology, books)

    def ask(self, cores: int, memory: int = 0) -> GpuChoice | Refusal:
        return place(self.topology, self.books, Request(cores, memory))

    def pick(self, cores: int, memory: int = 0) -> list[int] | None:
        """Indices of the GPUs granted; None if refused."""
        answer = self.ask(cores, memory)
        return [gpu.index for gpu in answer.gpus] if isinstance(answer, GpuChoice) else None


def make_node(
    size: int,
    bond: BondOf,
    numa: Sequence[int | None] | None = None,
    memory: Sequence[int] | None = None,
) -> Node:
    """An idle node with the machine of these arguments."""
    topology = machine(size, bond, numa, memory)
    return Node(topology, FreeGpus.of_idle(topology))


def six() -> Node:
    """gpu-manager's test machine: pairs on switches, two pairs on one bridge, one pair apart."""

    def bond(a: int, b: int) -> Bond:
        if a // 2 == b // 2:
            return Bond(Level.PIX)
        return Bond(Level.PHB if b < 4 else Level.SYS)

    return make_node(6, bond)
