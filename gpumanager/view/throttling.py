"""How much of the last seconds containers were throttled, from looks at sums that only grow. Pure.

Agents sample once in a while, so that two looks may fall between two samples: the rate is that of
several seconds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from gpumanager.view.node import Seen

WINDOW_SECONDS: Final = 5.0

Sums = Mapping[tuple[str, str, str], float]
"""Seconds that launches had to wait, by agent, GPU and container."""


@dataclass(frozen=True, slots=True)
class ThrottlingHistory:
    """The looks of the last seconds by their time, and one before them."""

    looks: tuple[tuple[float, Sums], ...] = ()

    def with_sample(self, nodes: Sequence[Seen]) -> "ThrottlingHistory":
        """Add what was seen now; a look that brought nothing new counts as none."""
        at = max((one.at for one in nodes if not one.trouble), default=0.0)
        if self.looks and at <= self.looks[-1][0]:
            return self
        found = {
            (seen.agent, device.uuid, one.name): device.throttled_seconds
            for seen in nodes
            if seen.node
            for _, (one, device) in seen.node.shares
            if device.throttled_seconds is not None
        }
        old = [look for look in self.looks if look[0] <= at - WINDOW_SECONDS]
        recent = [look for look in self.looks if look[0] > at - WINDOW_SECONDS]
        return ThrottlingHistory((*old[-1:], *recent, (at, found)))

    def rated(self, nodes: Sequence[Seen]) -> tuple[Seen, ...]:
        """Return the nodes, their containers with the rate since their first of these looks."""
        found = []
        for seen in nodes:
            node = seen.node
            if node is not None:
                containers = tuple(
                    replace(
                        one,
                        gpus=tuple(
                            replace(
                                device, throttled=self._rate((seen.agent, device.uuid, one.name))
                            )
                            for device in one.devices
                        ),
                    )
                    for one in node.containers
                )
                node = replace(node, containers=containers)
            found.append(replace(seen, node=node))
        return tuple(found)

    def _rate(self, key: tuple[str, str, str]) -> float | None:
        known = [(at, sums[key]) for at, sums in self.looks if key in sums]
        if len(known) < 2:  # noqa: PLR2004 - a rate is between two looks
            return None
        (first, before), (last, now) = known[0], known[-1]
        # Several threads may wait at the same time, and a container that restarted begins at 0.
        return min(100.0, max(0.0, 100 * (now - before) / (last - first)))
