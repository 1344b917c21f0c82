"""The journal: every grant in force, as a value.

`journal_text` encodes it, `journal_log` orders its lines, `journal_file` keeps it on disk.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Final

from gpumanager.grants.grant import Claimant, Grant, State
from gpumanager.ids import AllocationID, PodUID

ORDERED_CHANGES: Final = 4
"""Changed grants up to which `differences` compares in order; more are compared by name."""


@dataclass(frozen=True, slots=True)
class Journal:
    """All grants, by their names, oldest first. A value: changes make new journals."""

    grants: Mapping[AllocationID, Grant] = field(default_factory=dict)

    def get(self, allocation: AllocationID) -> Grant | None:
        return self.grants.get(allocation)

    def confirmed(self, allocation: AllocationID) -> Claimant | None:
        """Return the container of an allocation, once that is confirmed."""
        known = self.grants.get(allocation)
        return known.pod if known and known.state is State.CONFIRMED else None

    def confirmed_pod(self, allocation: AllocationID) -> PodUID | None:
        claimant = self.confirmed(allocation)
        return claimant.uid if claimant else None

    def live(self) -> tuple[Grant, ...]:
        """Return the grants that hold something."""
        return tuple(a for a in self.grants.values() if not a.released)

    def put(self, *changed: Grant) -> "Journal":
        return Journal({**self.grants, **{a.id: a for a in changed}})

    def release(self, names: Iterable[AllocationID]) -> "Journal":
        """Mark them as released."""
        return self.put(*(replace(self.grants[name], released=True) for name in names))

    def suspect(self, names: Iterable[AllocationID]) -> "Journal":
        """The kubelet has given their devices to other pods."""
        return self.put(*(replace(self.grants[name], suspect=True) for name in names))

    def drop(self, names: Iterable[AllocationID]) -> "Journal":
        """Forget them."""
        dropped = set(names)
        return Journal({n: a for n, a in self.grants.items() if n not in dropped})


def differences(before: Journal, after: Journal) -> tuple[list[Grant], list[Grant]]:
    """Return the grants that only `before` has, and those that only `after` has, by identity.

    Most changes append one grant or replace one in its place, which the first loop finds.
    """
    old, new = before.grants, after.grants
    if len(new) - len(old) in (0, 1):
        pairs = zip_longest(old.values(), new.values())
        unlike = [(a, b) for a, b in pairs if a is not b]
        in_place = all(a is None or b is None or a.id == b.id for a, b in unlike)
        if in_place and len(unlike) <= ORDERED_CHANGES:
            return [a for a, _ in unlike if a], [b for _, b in unlike if b]
    gone = [a for name, a in old.items() if new.get(name) is not a]
    return gone, [a for name, a in new.items() if old.get(name) is not a]
