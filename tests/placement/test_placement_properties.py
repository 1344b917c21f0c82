"""Placement against a search that tries everything, on random machines with random histories.

The objective is written here a second time, the long way: sorted lists and all combinations.
"""

from itertools import combinations, permutations

from hypothesis import given, settings
from hypothesis import strategies as st

from gpumanager.gpu.values import Bond, Level
from gpumanager.placement.link import candidates_of, good_set, link
from gpumanager.placement.place import place
from gpumanager.placement.values import FreeGpus, GpuChoice, Refusal, Request
from gpumanager.units import CORES_PER_GPU, blocks
from tests.placement.placement_nodes import Node, machine

MODES = {
    "any": [Bond(level) for level in Level] + [Bond(Level.SYS, n) for n in (1, 2, 4, 12)],
    "few": [Bond(Level.SYS), Bond(Level.PIX)],
    "three": [Bond(Level.SYS), Bond(Level.PHB), Bond(Level.PIX)],
    "switch": [Bond(Level.SYS, 12)],
    "same sum": [Bond(Level.PIX), Bond(Level.PHB), Bond(Level.SYS), Bond(Level.NODE)],
}


@st.composite
def nodes(draw: st.DrawFn, most: int = 8) -> Node:
    """A machine of random links, NUMA nodes and cards, on which something may be held."""
    size = draw(st.integers(1, most))
    kinds = st.sampled_from(MODES[draw(st.sampled_from(sorted(MODES)))])
    bonds = {pair: draw(kinds) for pair in combinations(range(size), 2)}
    some_nodes = st.lists(st.none() | st.integers(0, 2), min_size=size, max_size=size)
    cards = st.lists(st.sampled_from([8, 64, 64, 96]), min_size=size, max_size=size)
    found = machine(size, lambda a, b: bonds[a, b], draw(some_nodes), draw(cards))
    held = draw(st.dictionaries(st.integers(0, size - 1), amounts, max_size=size // 2))
    return Node(found, FreeGpus.of_idle(found)).occupy(held)


amounts = st.tuples(st.sampled_from([1, 30, 50, 99, 100]), st.integers(0, 8))


def free(node: Node) -> list[int]:
    books = [node.books.of(gpu) for gpu in node.topology.gpus]
    return [
        index
        for index, book in enumerate(books)
        if book.cores == CORES_PER_GPU and book.processes == 0
    ]


def quality(node: Node, a: int, b: int) -> int:
    bond = node.topology.bond(a, b)
    return 100 * bond.nvlinks if bond.nvlinks else bond.level.value


def broken(node: Node, members: tuple[int, ...]) -> list[int]:
    remaining = [other for other in free(node) if other not in members]
    return sorted((quality(node, a, b) for a in members for b in remaining), reverse=True)


def cost(node: Node, members: tuple[int, ...]) -> tuple[int, int, list[int], tuple[int, ...]]:
    total = sum(quality(node, a, b) for a, b in combinations(members, 2))
    numa = {node.topology.gpus[member].numa_node for member in members}
    return -total, len(numa), broken(node, members), members


def best_by_trying_all(node: Node, size: int, memory: int) -> list[int] | None:
    fitting = [i for i in free(node) if blocks(node.topology.gpus[i].memory) >= memory]
    sets = combinations(fitting, size)
    best = min(sets, key=lambda members: cost(node, members), default=None)
    return None if best is None else list(best)


@settings(max_examples=150, deadline=None)
@given(nodes(), st.integers(2, 8), st.sampled_from([0, 8, 9, 65, 97]))
def test_link_finds_the_best_of_all_sets(node: Node, size: int, memory: int) -> None:
    assert node.pick(100 * size, memory) == best_by_trying_all(node, size, memory)


@settings(max_examples=150, deadline=None)
@given(nodes(), st.sampled_from([0, 8, 9, 65, 97]))
def test_fragment_finds_the_gpu_that_breaks_least(node: Node, memory: int) -> None:
    fitting = [i for i in free(node) if blocks(node.topology.gpus[i].memory) >= memory]
    best = min(fitting, key=lambda i: (broken(node, (i,)), i), default=None)

    assert node.pick(100, memory) == (None if best is None else [best])


@settings(max_examples=150, deadline=None)
@given(nodes(), st.integers(1, 99), st.integers(1, 100))
def test_share_finds_the_fullest_gpu_that_fits(node: Node, cores: int, memory: int) -> None:
    rows = []
    for gpu in node.topology.gpus:
        book = node.books.of(gpu)
        if book.cores >= cores and book.blocks >= memory:
            rows.append((book.cores, book.blocks, book.processes, gpu.index))

    assert node.pick(cores, memory) == ([min(rows)[3]] if rows else None)


requests = st.builds(
    Request, st.integers(1, 99) | st.sampled_from([100, 200, 300, 400, 0, 150]), st.integers(0, 64)
)


@settings(deadline=None)
@given(nodes(), st.lists(requests, max_size=20))
def test_no_history_takes_more_than_there_is(node: Node, history: list[Request]) -> None:
    books, given_whole = node.books, set[int]()
    for request in history:
        match place(node.topology, books, request):
            case GpuChoice() as grant:
                indices = [gpu.index for gpu in grant.gpus]
                assert indices == sorted(set(indices))
                assert len(indices) == max(1, request.cores // 100)
                assert not given_whole.intersection(indices)
                given_whole |= set(indices) if grant.whole else set()
                books = books.take(grant)
            case Refusal() as refusal:
                assert refusal.detail
        for book in books.gpus.values():
            assert min(book.cores, book.blocks, book.processes) >= 0


@settings(max_examples=40, deadline=None)
@given(nodes(most=16), st.integers(5, 9))
def test_no_exchange_of_one_gpu_makes_a_set_of_a_large_machine_better(
    node: Node, size: int
) -> None:
    """Where trying all sets takes too long, at least every neighbour is tried."""
    chosen = node.pick(100 * size)
    if chosen is None:
        assert len(free(node)) < size
        return
    reached = cost(node, tuple(chosen))
    others = [other for other in free(node) if other not in chosen]
    for gone in chosen:
        for added in others:
            exchanged = tuple(sorted({*chosen, added} - {gone}))
            assert reached <= cost(node, exchanged)


@settings(max_examples=60, deadline=None)
@given(nodes(most=6), st.integers(2, 4))
def test_twins_really_are_interchangeable(node: Node, size: int) -> None:
    """Exchanging twins changes the cost of no set but for its indices."""
    idle = free(node)
    twins = candidates_of(node.topology, idle, idle).twin
    for place_of, twin in enumerate(twins):
        if twin is None:
            continue
        pair = {idle[place_of]: idle[twin], idle[twin]: idle[place_of]}
        for members in combinations(idle, size):
            exchanged = tuple(sorted(pair.get(member, member) for member in members))
            assert cost(node, members)[:3] == cost(node, exchanged)[:3]


@settings(max_examples=60, deadline=None)
@given(nodes(most=7), st.integers(2, 5))
def test_the_greedy_search_gives_a_set_of_free_gpus_and_never_a_better_one(
    node: Node, size: int
) -> None:
    idle = free(node)
    if len(idle) < size:
        return
    reached = tuple(idle[m] for m in good_set(candidates_of(node.topology, idle, idle), size))
    exact = link(node.topology, node.books, Request(100 * size))

    assert isinstance(exact, GpuChoice)
    assert len(set(reached) & set(idle)) == size
    assert cost(node, tuple(gpu.index for gpu in exact.gpus)) <= cost(node, reached)


@settings(max_examples=60, deadline=None)
@given(nodes(most=4), st.data())
def test_quality_and_breakage_do_not_depend_on_how_gpus_are_numbered(
    node: Node, data: st.DataObject
) -> None:
    """Renumbering a machine may change who wins a tie, never how good the winner is."""
    size = len(node.topology.gpus)
    order = data.draw(st.sampled_from(list(permutations(range(size)))))
    old = node.topology
    renumbered = machine(
        size,
        lambda a, b: old.bond(order[a], order[b]),
        [old.gpus[i].numa_node for i in order],
        [blocks(old.gpus[i].memory) for i in order],
    )
    idle = Node(old, FreeGpus.of_idle(old))
    again = Node(renumbered, FreeGpus.of_idle(renumbered))
    for cores in (100, 200, 300):
        first, second = idle.pick(cores), again.pick(cores)
        assert (first is None) == (second is None)
        if first and second:
            assert cost(idle, tuple(first))[2] == cost(again, tuple(second))[2]
