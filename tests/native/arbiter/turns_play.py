"""Containers on a model of one GPU, in no time: programs that launch, a queue each, the arbiter.

The GPU runs what is in flight by slices in turn, one process after the other, as hardware without
MPS does. Programs launch while their container has the turn, and keep no more in flight than the
window. The arbiter steps when one of them rings, and when it said it would. Slices and switches
are those of an H100 (docs/real-gpu.md).
"""

import heapq
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from vcuda_shim import _arbiter

ffi: Any = _arbiter.ffi
lib: Any = _arbiter.lib

US, MS, SECOND = 1_000, 1_000_000, 1_000_000_000


@dataclass(frozen=True)
class Machine:
    """ns. wake: from a grant or a ring to who sleeps; seen: from the end of work to the host."""

    slice: int = 2090 * US
    switch: int = 151 * US
    wake: int = 30 * US
    seen: int = 40 * US


IDEAL = Machine(switch=0, wake=0, seen=0)

Requests = Iterator[tuple[int, int, int]]
"""(ns of the host before it, launches, ns of each): a request ends when all its launches have."""


@dataclass(eq=False)
class Player:
    """One process of a container. took: ns from a request's arrival to its end."""

    requests: Requests
    weight: float = 0.0
    ceiling: float = 1.0
    container: "Player | None" = None
    """Whose turn it shares; itself without."""
    arrivals: bool = False
    """Whether host time is between arrivals, as of a service, or after the last end."""
    forges: bool = False
    """It says that it waits and has work in flight with progress, always."""

    lies: int | None = None
    """It says that nothing ended, and that no launch takes longer, ns."""

    launches: bool = True
    """Or it waits for the turn and never comes."""

    place: int = 0
    queue: deque[int] = field(default_factory=deque)
    flying: deque[int] = field(default_factory=deque)
    known: deque[int] = field(default_factory=deque)
    """Launches not known to have ended."""
    granted: bool = False
    since: int = 0
    busy: int = 0
    progress: int = 0
    longest: int = 0
    ran: int = 0
    proved: int = 0
    """What it says that its launches that ended took; a forger, each time that it is looked at."""
    arrived: deque[tuple[int, int, int]] = field(default_factory=deque)
    took: list[int] = field(default_factory=list)
    begun: int | None = None

    def __post_init__(self) -> None:
        self.report = ffi.new("struct turns_report *")
        self.memory = ffi.new("struct turns_process *")


class Play:
    def __init__(self, players: list[Player], machine: Machine = IDEAL) -> None:
        self.gpu = ffi.new("struct turns_gpu *")
        self.rules = ffi.new("struct turns_rules *", lib.turns_rules())
        lib.turns_init(self.gpu, self.rules[0], SECOND)
        self.now, self.players, self.machine = SECOND, players, machine
        self.running: Player | None = None
        self.ran_for = self.switching = self.look = self.serial = self.steps = 0
        self.events: list[tuple[int, int, Callable[[], None]]] = []
        for player in players:
            owner = player.container or player
            if owner is player:
                player.place = lib.turns_join(self.gpu, player.weight, player.ceiling)
            player.place = owner.place
            self._arrive_later(player, self.now)

    def member(self, player: Player) -> Any:
        return self.gpu.members[player.place]

    def _at(self, when: int, act: Callable[[], None]) -> None:
        self.serial += 1
        heapq.heappush(self.events, (when, self.serial, act))

    def _arrive_later(self, player: Player, since: int) -> None:
        request = next(player.requests, None)
        if request is None:
            return
        host, launches, each = request

        def arrive() -> None:
            player.arrived.append((self.now, launches, each))
            if player.arrivals:
                self._arrive_later(player, self.now)
            self._take_up(player)

        self._at(since + host, arrive)

    def _take_up(self, player: Player) -> None:
        if player.begun is None and player.arrived:
            player.begun, launches, each = player.arrived.popleft()
            player.queue.extend([each] * launches)
            self._launch(player)
            if player.queue and not player.granted:
                self._ring()

    def _launch(self, player: Player) -> None:
        told = self.member(player).told
        while player.launches and player.queue and player.granted and told.granted:
            together = sum(sum(one.known) for one in self.players if one.place == player.place)
            if told.bounded and player.known and together >= told.window:
                return
            if not player.known:
                player.since = player.progress = self.now
            player.flying.append(player.queue[0])
            player.known.append(player.queue.popleft())

    def _ring(self) -> None:
        self.look = min(self.look, self.now + self.machine.wake)

    def _ended(self, player: Player) -> None:
        """The host learns that a launch has ended."""
        player.longest = player.known.popleft()
        player.proved += player.longest
        player.progress = self.now
        if not player.known:
            player.busy += self.now - player.since
            if self.member(player).told.wanted:
                self._ring()
        if not player.known and not player.queue and player.begun is not None:
            player.took.append(self.now - player.begun)
            player.begun = None
            if not player.arrivals:
                self._arrive_later(player, self.now)
            self._take_up(player)
        self._launch(player)

    def _step(self) -> None:
        for player in self.players:
            ffi.memmove(ffi.addressof(self.member(player), "seen"), self._nothing, self._size)
        for player in self.players:
            report = player.report
            report.waiting = (
                bool(player.queue and not player.granted) or player.forges or not player.launches
            )
            report.since_ns = (player.since or SECOND) if player.known or player.forges else 0
            report.ran_ns = player.proved * (1 + self.steps * player.forges) % 2**32
            report.busy_ns = player.busy
            report.progress_ns = self.now if player.forges else player.progress
            report.longest_ns = player.longest
            if player.lies is not None:
                report.ran_ns, report.longest_ns = 0, player.lies
            seen = ffi.addressof(self.member(player), "seen")
            last = self.gpu.last
            lib.turns_observe(seen, player.memory, report, self.rules, last, self.now)
        self.look, self.steps = int(lib.turns_step(self.gpu, self.now)), self.steps + 1
        for player in self.players:
            granted = bool(self.member(player).told.granted)
            if granted and not player.granted:
                self._at(self.now + self.machine.wake, partial(self._launch, player))
            elif granted:
                self._launch(player)
            player.granted = granted

    _size = ffi.sizeof("struct turns_seen")
    _nothing = bytes(_size)

    def _run(self, until: int) -> None:
        """The GPU works until then, or until a launch or a slice ends."""
        if self.running is None or not self.running.flying or self.ran_for >= self.machine.slice:
            ready = [player for player in self.players if player.flying]
            if self.running in self.players and ready:
                at = self.players.index(self.running)
                ready.sort(key=lambda player: (self.players.index(player) - at - 1) % 10**6)
            if ready and ready[0] is not self.running and self.running is not None:
                self.switching = self.machine.switch
            self.running, self.ran_for = (ready[0] if ready else self.running), 0
        player = self.running
        works = player is not None and bool(player.flying)
        if works and self.switching:
            span = min(self.switching, max(until - self.now, 0))
            self.switching -= span
            self.now += span
            return
        if works:
            assert player is not None
            left = self.machine.slice - self.ran_for
            until = min(until, self.now + player.flying[0], self.now + left)
        span = max(until - self.now, 0)
        self.now += span
        if works:
            assert player is not None
            player.ran += span
            self.ran_for += span
            player.flying[0] -= span
            if player.flying[0] <= 0:
                player.flying.popleft()
                self._at(self.now + self.machine.seen, lambda: self._ended(player))

    def until(self, end: int) -> None:
        end += SECOND
        while self.now < end:
            if self.look <= self.now:
                self._step()
            due = self.events[0][0] if self.events else end
            self._run(min(self.look, due, end))
            while self.events and self.events[0][0] <= self.now:
                heapq.heappop(self.events)[2]()
