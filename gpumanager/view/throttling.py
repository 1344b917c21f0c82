"""How much of the last seconds containers were throttled, from looks at sums that only grow. Pure.

Agents sample once in a while, so that two looks may fall between two samples: the rate is that of
several seconds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from gpumanager.view.values import ContainerRow, GpuRow, Seen

WINDOW_SECONDS: Final = 5.0

Sums = Mapping[tuple[str, str, str], float]
"""Seconds that launches had to wait, by agent, GPU and container."""


@dataclass(frozen=True, slots=True)
class ThrottlingHistory:
    """Looks of the last seconds by their time, and one before them."""

    looks: tuple[tuple[float, Sums], ...] = field(default=())

    def with_look(self, nodes: Sequence[Seen]) -> "ThrottlingHistory":
        """With what was seen now; a look that brought nothing new counts as none."""
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
        """The same nodes, their containers with the rate since they were first in these looks."""
        return tuple(self._seen(one) for one in nodes)

    def _seen(self, seen: Seen) -> Seen:
        if seen.node is None:
            return seen
        gpus = [
            replace(
                gpu, containers=tuple(self._container(seen, gpu, row) for row in gpu.containers)
            )
            for gpu in seen.node.gpus
        ]
        return replace(seen, node=replace(seen.node, gpus=tuple(gpus)))

    def _container(self, seen: Seen, gpu: GpuRow, row: ContainerRow) -> ContainerRow:
        key = (seen.agent, gpu.uuid, row.name)
        known = [(at, sums[key]) for at, sums in self.looks if key in sums]
        if len(known) < 2:  # noqa: PLR2004 - a rate is between two looks
            return row
        (first, before), (last, now) = known[0], known[-1]
        # Several threads may wait at the same time, and a container that restarted begins at 0.
        percent = min(100.0, max(0.0, 100 * (now - before) / (last - first)))
        return replace(row, throttled=percent)
