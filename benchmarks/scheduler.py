"""How fast the extender answers kube-scheduler: `python benchmarks/scheduler.py --help`.

The extender is a process of its own, as is the stub of the API server that it follows; this one
calls it, one pod after another, over a connection that stays open, as kube-scheduler does. Pods go
to one of the best nodes and are bound, so that with each pod a node changes: first while the next
ones are asked about, then, with as many pods again, each before the next one is asked about, which
leaves filter and prioritize alone. The three share the machine's processors. Three settings:

  every node    each request names all nodes, those that are full too
  100 %         all that have enough free cores, which kube-scheduler sees to before it asks;
                with percentageOfNodesToScore: 100
  by default    the first of these: 500 of 5,000, as many of 10,000

How it is done: the package `extender` beside this file.
"""

import argparse
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from extender import orders, process, report
from extender.changes import change_cost
from extender.cluster import node_name, placed, shape_of
from extender.load import Load, Orders, Times
from machine_line import machine_line
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

EVERY, WHOLE, DEFAULT = "every node", "100 %", "by default"
CHANGED = 1_000, 10_000, 30_000
"""Nodes of the clusters in which a change is measured."""
WARM_UP = 200
"""Pods, before each setting."""
Place = Callable[[range, Orders, Callable[[], None]], Times]


class Bench:
    """One run. free: cores by node, as kube-scheduler counts them."""

    def __init__(self, options: argparse.Namespace, progress: Progress) -> None:
        self._options = options
        self._progress = progress
        self._next = self._bound = options.placed
        self.free = [800] * options.nodes
        for one in placed(options.nodes, options.placed):
            self.free[one.node] -= shape_of(one.pod).cores

    def run(self) -> report.Figures:
        options = self._options
        with process.api_server(options.nodes, options.placed) as api:
            with self._step("starting"), process.extender(api.port, *options.flag) as extender:
                settings = tuple(self._settings(api, extender))
                first = extender.started, extender.resident
            with self._step("restarting"), process.extender(api.port, *options.flag) as extender:
                second = extender.started, extender.resident
        counts = CHANGED if not (options.quick or options.only) else (options.nodes,)
        with self._step("changing nodes"):
            changes = tuple(change_cost(count) for count in counts)
        return report.Figures(
            machine_line(),
            " ".join(f"{one:.1f}" for one in os.getloadavg()),
            options.nodes,
            options.placed,
            settings,
            first[0],
            second[0],
            first[1],
            second[1],
            self._bound,
            changes,
        )

    def _settings(
        self, api: process.Process, extender: process.Process
    ) -> Iterator[report.Setting]:
        names = [node_name(number) for number in range(self._options.nodes)]
        luck = random.Random(self._options.seed)
        count = orders.default_count(len(names))
        chosen: dict[str, Orders] = {
            EVERY: orders.Everything(names, luck),
            WHOLE: orders.AllFeasible(names, self.free, luck),
            DEFAULT: orders.Feasible(names, self.free, count, luck),
        }
        load = Load(extender.port, self.free, self._options.seed)
        with self._step("first questions"):
            load.warm(orders.text(names))
        for name, order in chosen.items():
            if self._options.only in ("", name):
                few = min(WARM_UP, self._options.pods)
                self._load(load.run, order, few, f"{name}: warming up")
                before = _worked(extender, api)
                times = self._load(load.run, order, self._options.pods, name)
                spent = [b - a for a, b in zip(before, _worked(extender, api), strict=True)]
                apart = self._load(load.run_apart, order, self._options.pods, f"{name}: apart")
                yield report.Setting(name, times, apart, *spent)
        load.close()

    def _load(self, place: Place, order: Orders, pods: int, title: str) -> Times:
        task = self._progress.add_task(title, total=pods)
        first, self._next = self._next, self._next + pods
        told = 0

        def tell() -> None:
            nonlocal told
            told += 1
            if told % 50 == 0:
                self._progress.update(task, completed=told)

        times = place(range(first, first + pods), order, tell)
        self._bound += times.bound
        self._progress.update(task, completed=pods)
        return times

    @contextmanager
    def _step(self, title: str) -> Iterator[None]:
        task = self._progress.add_task(title, total=1)
        yield
        self._progress.update(task, completed=1)


def _worked(extender: process.Process, api: process.Process) -> tuple[float, float, float]:
    return extender.worked, time.process_time(), api.worked


def arguments(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--placed", type=int, default=22_500, help="pods that are there already")
    parser.add_argument("--pods", type=int, default=2_500, help="to place in each setting")
    parser.add_argument("--only", choices=(EVERY, WHOLE, DEFAULT), default="")
    parser.add_argument("--flag", action="append", default=[], help="for the extender; repeatable")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="figures for programs")
    parser.add_argument("--quick", action="store_true", help="whether it works, not how well")
    options = parser.parse_args(words)
    if options.quick:
        options.nodes, options.placed, options.pods = 100, 200, 40
    return options


def main(words: list[str]) -> int:
    options = arguments(words)
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    with Progress(*columns, console=Console(stderr=True), refresh_per_second=2) as progress:
        figures = Bench(options, progress).run()
    if options.json:
        print(json.dumps(figures.as_json(), indent=1))
    else:
        report.show(figures, Console())
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that no process is left behind
    sys.exit(main(sys.argv[1:]))
