"""The closed loop: one pod after another is filtered, prioritized, and bound.

A pod's time is from before its filter is sent until its scores are read. `run` binds in the
background: meanwhile the bindings of the pods before it are on their way, and the events of those
before them, and the extender has that to do too. `run_apart` asks about the next pod when that is
over: a node has changed since the last question, as ever, and both questions have the extender for
themselves. A pod whose binding is refused, or that fits nowhere, is counted and not tried again.
"""

import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Final, Protocol

from extender.caller import Connection, Pool
from extender.cluster import SHAPES, Shape, encoded, node_name, pod_object, shape_of

BINDERS: Final = 8
SETTLED_SECONDS: Final = 0.002
"""After a binding was answered, its events have come too: they were sent before the answer."""
BEST: Final = b'"Score":10}'
ROW: Final = b'{"Host":"'
BETWEEN: Final = b'","'
END: Final = b'"]}'
NAMES: Final = b'"NodeNames":['


class Orders(Protocol):
    """Who is named to the extender."""

    def names(self, shape: Shape) -> bytes:
        """As `a","b","c`; empty for nobody."""
        ...


@dataclass(slots=True)
class Times:
    """Seconds of each pod, for each of the two. whole: seconds of all, bindings included. named:
    nodes of all filters, answered_bytes: of all their answers."""

    filter: list[float] = field(default_factory=list)
    prioritize: list[float] = field(default_factory=list)
    nowhere: int = 0
    refused: int = 0
    bound: int = 0
    whole: float = 0.0
    named: int = 0
    answered_bytes: int = 0

    @property
    def pods(self) -> list[float]:
        return [a + b for a, b in zip(self.filter, self.prioritize, strict=True)]


class Load:
    """Places pods. free: cores by node; what is placed is taken from it."""

    def __init__(self, port: int, free: list[int], seed: int) -> None:
        self._caller = Connection(port)
        self._binders = Pool(port, BINDERS)
        self._free = free
        self._luck = random.Random(seed)
        self._nodes = {node_name(number): number for number in range(len(free))}

    def close(self) -> None:
        self._caller.close()
        self._binders.close()

    def warm(self, names: bytes) -> None:
        """Every shape has been asked about every node once."""
        for shape in SHAPES:
            number = next(number for number in count() if shape_of(number) is shape)
            self._caller.ask("/scheduler/filter", _start(number), names, END)

    def run(self, pods: range, orders: Orders, tell: Callable[[], None]) -> Times:
        times = Times()
        began = time.perf_counter()
        for number in pods:
            self._place(number, orders, times)
            self._collect(times, 0)
            tell()
        while self._binders.waiting:
            self._collect(times, 1000)
        times.whole = time.perf_counter() - began
        return times

    def run_apart(self, pods: range, orders: Orders, tell: Callable[[], None]) -> Times:
        times = Times()
        began = time.perf_counter()
        for number in pods:
            self._place(number, orders, times)
            while self._binders.waiting:
                self._collect(times, 1000)
            time.sleep(SETTLED_SECONDS)
            tell()
        times.whole = time.perf_counter() - began
        return times

    def _place(self, number: int, orders: Orders, times: Times) -> None:
        shape = shape_of(number)
        start = _start(number)
        names = orders.names(shape)
        if not names:
            times.nowhere += 1
            return
        began = time.perf_counter()
        said = self._caller.ask("/scheduler/filter", start, names, END)
        filtered = time.perf_counter()
        fitting = _fitting(said)
        times.named += names.count(b",") + 1
        times.answered_bytes += len(said)
        middle = time.perf_counter()
        scores = self._caller.ask("/scheduler/prioritize", start, fitting, END) if fitting else b""
        times.prioritize.append(time.perf_counter() - middle)
        times.filter.append(filtered - began)
        if fitting:
            self._bind(number, self._choose(fitting, bytes(scores)), times)
        else:
            times.nowhere += 1

    def _choose(self, fitting: bytes, scores: bytes) -> str:
        """One of the best; where nobody is named, all are alike."""
        last = scores.rfind(BEST)
        if last < 0:
            before = fitting.rfind(BETWEEN, 0, self._luck.randrange(len(fitting)))
            start = 0 if before < 0 else before + len(BETWEEN)
            return fitting[start:].partition(b'"')[0].decode()
        at = self._luck.randrange(last)
        row = scores.rfind(ROW, 0, max(at, len(ROW) + 1))
        return scores[row + len(ROW) :].partition(b'"')[0].decode()

    def _bind(self, number: int, node: str, times: Times) -> None:
        while self._binders.full:
            self._collect(times, 1000)
        pod = pod_object(number)["metadata"]
        names = {"PodName": pod["name"], "PodNamespace": "default", "PodUID": pod["uid"]}
        self._binders.send("/scheduler/bind", encoded({**names, "Node": node}), number)
        self._free[self._nodes[node]] -= shape_of(number).cores

    def _collect(self, times: Times, milliseconds: int) -> None:
        for _, answer in self._binders.answers(milliseconds):
            if json.loads(answer)["Error"]:
                times.refused += 1
            else:
                times.bound += 1


def _start(number: int) -> bytes:
    """Of what is asked about a pod; names and END follow."""
    return b'{"Pod":%s,"Nodes":null,"NodeNames":["' % encoded(pod_object(number))


def _fitting(answer: memoryview) -> bytes:
    """Of a filter: `a","b","c`, or nothing."""
    said = bytes(answer)
    start = said.index(NAMES) + len(NAMES)
    return said[start : said.index(b"]", start)][1:-1]
