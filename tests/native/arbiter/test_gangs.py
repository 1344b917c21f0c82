"""Several GPUs on which containers run collectives: one decision for all GPUs of a gang."""

import random
from collections.abc import Sequence
from typing import Any

import pytest

from vcuda_shim import _arbiter

ffi: Any = _arbiter.ffi
lib: Any = _arbiter.lib

MS, SECOND = 1_000_000, 1_000_000_000
HISTORIES, STEPS = 2_000, 60
LONGEST_WAIT = 200 * MS


class Node:
    """containers: of each the weight and its GPUs; those of `gangs` run collectives on all."""

    def __init__(
        self, gpus: int, containers: Sequence[tuple[float, Sequence[int]]], gangs: Sequence[int]
    ) -> None:
        self.now = SECOND
        self.gpus = ffi.new("struct turns_gpu[]", gpus)
        self.all = ffi.new("struct turns_gpu *[]", [self.gpus + at for at in range(gpus)])
        for at in range(gpus):
            lib.turns_init(self.all[at], lib.turns_rules(), self.now)
        self.places = [
            {gpu: lib.turns_join(self.all[gpu], weight, 1) for gpu in where}
            for weight, where in containers
        ]
        self.gangs = ffi.new("struct turns_gang[]", len(containers))
        self.form(gangs)

    def member(self, container: int, gpu: int) -> Any:
        return self.gpus[gpu].members[self.places[container][gpu]]

    def form(self, gangs: Sequence[int]) -> None:
        self.first = ffi.NULL
        for container, places in enumerate(self.places):
            gang = self.gangs[container]
            ganged = container in gangs and len(places) > 1
            for at, (gpu, place) in enumerate(places.items()):
                self.gpus[gpu].members[place].gang = ganged
                gang.seats[at].gpu, gang.seats[at].member = self.all[gpu], place
            gang.count = len(places)
            if ganged:
                gang.next, self.first = self.first, self.gangs + container

    def step(self) -> int:
        lib.gangs_decide(self.all, len(self.gpus), self.first, self.now)
        return min(int(lib.turns_tell(gpu, self.now)) for gpu in self.all)

    def granted(self, container: int) -> list[bool]:
        return [bool(self.member(container, gpu).told.granted) for gpu in self.places[container]]

    def play(self, ns: int, wants: Sequence[int]) -> None:
        """These always want all of their GPUs, and work where they are granted them."""
        end = self.now + ns
        while self.now < end:
            before, self.now = self.now, min(self.step(), self.now + MS, end)
            for container in wants:
                for gpu in self.places[container]:
                    member = self.member(container, gpu)
                    mine = bool(member.told.granted)
                    member.seen.waiting, member.seen.live = not mine, mine
                    member.seen.work.all_ns = (self.now - before) * mine

    def part(self, container: int, gpu: int) -> float:
        return float(self.member(container, gpu).charged_ns) / (self.now - SECOND)


ALL = (0, 1)
TABLE = [
    pytest.param([(0.5, ALL), (0.5, [0])], [0], {(0, 0): 0.5, (0, 1): 0.5, (1, 0): 0.5}, id="one"),
    pytest.param(
        [(0.5, ALL), (0.5, [0]), (0.5, [1])],
        [0],
        {(0, 0): 0.5, (0, 1): 0.5, (1, 0): 0.5, (2, 1): 0.5},
        id="a neighbour on each",
    ),
    pytest.param(
        [(0.3, ALL), (0.3, [0]), (0.7, [1])],
        [0],
        {(0, 0): 0.3, (0, 1): 0.3, (1, 0): 0.7, (2, 1): 0.7},
        id="no more than on the GPU with the least",
    ),
    pytest.param(
        [(0.7, ALL), (0.3, ALL)],
        [0, 1],
        {(0, 0): 0.7, (0, 1): 0.7, (1, 0): 0.3, (1, 1): 0.3},
        id="two of them",
    ),
    pytest.param(
        [(0.5, (0, 1)), (0.5, (1, 2)), (0.5, (2, 0))],
        [0, 1, 2],
        {(at, gpu): 1 / 3 for at in range(3) for gpu in (at, (at + 1) % 3)},
        id="three in a ring",
    ),
    pytest.param([(0.5, ALL), (0.5, ALL)], [], {(0, 0): 0.5, (1, 1): 0.5}, id="none"),
]


@pytest.mark.parametrize(("containers", "gangs", "parts"), TABLE)
def test_a_gang_and_its_neighbours_have_their_shares(
    containers: Sequence[tuple[float, Sequence[int]]],
    gangs: Sequence[int],
    parts: dict[tuple[int, int], float],
) -> None:
    node = Node(3, containers, gangs)
    node.play(4 * SECOND, range(len(containers)))

    had = {seat: node.part(*seat) for seat in parts}
    assert had == pytest.approx(parts, abs=0.01)


def test_no_gpu_idles_while_a_gang_waits_for_another_one() -> None:
    node = Node(2, [(0.5, ALL), (0.5, [0]), (0.5, [1])], [0])
    node.play(SECOND, [0, 1, 2])

    for gpu, neighbour in ((0, 1), (1, 2)):
        assert node.part(0, gpu) + node.part(neighbour, gpu) > 0.99


def test_a_gang_pays_on_all_of_its_gpus_for_the_one_that_it_uses() -> None:
    node = Node(2, [(0.5, ALL), (0.5, [1])], [0])
    end = node.now + 2 * SECOND
    while node.now < end:
        before, node.now = node.now, min(node.step(), node.now + MS)
        idle, used, neighbour = (node.member(*seat) for seat in ((0, 1), (0, 0), (1, 1)))
        for member in (used, neighbour):
            member.seen.waiting = not member.told.granted
            member.seen.live = bool(member.told.granted)
            member.seen.work.all_ns = (node.now - before) * member.told.granted
        idle.seen.work.all_ns = idle.seen.live = 0

    assert node.part(0, 1) == pytest.approx(0.5, abs=0.01)
    assert node.part(1, 1) == pytest.approx(0.5, abs=0.01)


def play(chance: random.Random, *, honest: bool) -> int:
    """Container 0 wants all of its GPUs always, and so does 1, on one GPU alone; the others do
    anything, and are gangs now and then. Returns the longest that one of the two waited."""
    gpus, longest = chance.randint(2, 4), 0
    weighed = [chance.uniform(0.05, 0.5) for _ in range(chance.randint(2, 6))]
    containers = [
        (weight, [chance.randrange(gpus)] if at == 1 else spread(chance, gpus, least=2 - (at > 0)))
        for at, weight in enumerate(weighed)
    ]
    others = range(2, len(containers))
    node = Node(gpus, containers, [0, *others])
    for at in others:
        if chance.random() < 0.3:
            for gpu in node.places[at]:
                node.member(at, gpu).ceiling = weighed[at]
    since = [node.now, node.now]
    for step in range(STEPS):
        if step > 0 and chance.random() < 0.05:
            node.form([0, *(at for at in others if chance.random() < 0.6)])
        before, look = node.now, node.step()
        assert look > node.now
        check(node)
        for at in (0, 1):
            if node.granted(at)[0]:
                since[at] = node.now
        node.now = min(look, node.now + chance.choice([5000, MS // 10, MS, 10 * MS, 50 * MS]))
        longest = max(longest, *(node.now - one for one in since))
        for at in range(len(containers)):
            report(chance, node, at, node.now - before, honest=honest)
    return longest


def check(node: Node) -> None:
    """One container has a GPU, and a gang has all of its GPUs or none."""
    for gpu in node.all:
        holders = [at for at in range(gpu.count) if gpu.members[at].told.granted]
        assert holders == ([] if gpu.holder == lib.TURNS_NOBODY else [gpu.holder])
    gang = node.first
    while gang != ffi.NULL:
        assert len(set(node.granted(gang - node.gangs))) == 1
        gang = gang.next


def spread(chance: random.Random, gpus: int, least: int) -> list[int]:
    return chance.sample(range(gpus), chance.randint(least, gpus))


def report(chance: random.Random, node: Node, at: int, span: int, *, honest: bool) -> None:
    for gpu in node.places[at]:
        member = node.member(at, gpu)
        mine, seen = bool(member.told.granted), member.seen
        busy = mine and (at < 2 or chance.random() < 0.8)
        if not honest and at > 1:
            busy = chance.random() < 0.6
        seen.live = busy * (1 if at < 2 else chance.randint(1, 3))
        seen.waiting = (not mine) if at < 2 else chance.random() < 0.7
        seen.work.all_ns = seen.live * span * chance.random()
        seen.stalled_ns = seen.work.all_ns * (not honest and chance.random() < 0.2)
        seen.longest_ns = chance.choice([0, MS, 100 * MS])


def test_random_histories_of_gangs_end_each_wait() -> None:
    chance = random.Random(22)
    for number in range(HISTORIES):
        assert play(chance, honest=number % 2 == 0) < LONGEST_WAIT
