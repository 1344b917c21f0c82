"""How much of the last seconds containers were throttled, from looks at sums that only grow. Pure.

Agents sample once in a while, so that two looks may fall between two samples: the rate is that of
several seconds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from gpumanager.view.node import Seen

WINDOW_SECONDS: Final = 5.0

Sums = Mapping[tuple[str, str, str], float]
"""Seconds that launches had to wait, by agent, GPU and container."""


@dataclass(frozen=True, slots=True)
class ThrottlingHistory:
    """The looks of the last seconds by their time, and one before them."""

    looks: tuple[tuple[float, Sums], ...] = field(default=())

    def with_sample(self, nodes: Sequence[Seen]) -> "ThrottlingHistory":
        """Add what was seen now; a look that brought nothing new counts as none."""
        at = max((one.at for one in nodes if not one.away), default=0.0)
        if self.looks and at <= self.looks[-1][0]:
            return self
        found = {
            (one.agent, gpu.uuid, row.name): row.throttled_seconds
            for one in nodes
            if one.node
            for gpu in one.node.gpus
            for row in gpu.containers
            if row.throttled_seconds is not None
        }
        old = [look for look in self.looks if look[0] <= at - WINDOW_SECONDS]
        recent = [look for look in self.looks if look[0] > at - WINDOW_SECONDS]
        return ThrottlingHistory((*old[-1:], *recent, (at, found)))

    def rated(self, nodes: Sequence[Seen]) -> tuple[Seen, ...]:
        """Return the nodes, their containers with the rate since their first of these looks."""
        found = []
        for seen in nodes:
            gpus = []
            for gpu in seen.node.gpus if seen.node else ():
                rows = list(gpu.containers)
                for place, row in enumerate(rows):
                    key = (seen.agent, gpu.uuid, row.name)
                    known = [(at, sums[key]) for at, sums in self.looks if key in sums]
                    if len(known) > 1:  # a rate is between two looks
                        (first, before), (last, now) = known[0], known[-1]
                        # Several threads may wait at the same time, and a container that
                        # restarted begins at 0.
                        percent = min(100.0, max(0.0, 100 * (now - before) / (last - first)))
                        rows[place] = replace(row, throttled=percent)
                gpus.append(replace(gpu, containers=tuple(rows)))
            node = replace(seen.node, gpus=tuple(gpus)) if seen.node else None
            found.append(replace(seen, node=node))
        return tuple(found)
