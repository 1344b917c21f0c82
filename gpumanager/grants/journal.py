"""The journal: every grant in force, as a value; and those of them that hold something.

`journal_text` encodes it, `journal_log` orders its lines, `journal_file` keeps it on disk.
"""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
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


class LiveGrants(tuple[Grant, ...]):  # noqa: SLOT001 - a tuple cannot have any that hold something
    """Grants that hold something, oldest first, with an index of their device IDs.

    Each call of the kubelet asks which of hundreds of grants have some of thousands of IDs.
    """

    by_id: dict[str, tuple[Grant, ...]] | None = None
    """The index; None until it is needed, and where later grants have taken it over."""

    def replaced(self, later: "LiveGrants") -> "LiveGrants":
        """Return `later`, which takes the index over: few grants differ."""
        later.by_id, self.by_id = self.by_id, None
        if later.by_id is not None:
            before, now = ({id(one): one for one in some} for some in (self, later))
            for key in before.keys() - now.keys():
                for device_id in {*before[key].ids.all}:
                    left = tuple(one for one in later.by_id[device_id] if one is not before[key])
                    later.by_id[device_id] = left
                    if not left:
                        del later.by_id[device_id]
            _enter(later.by_id, [now[key] for key in now.keys() - before.keys()])
        return later

    def holding(self, ids: AbstractSet[str]) -> list[Grant]:
        """Return those that hold any of `ids`."""
        if self.by_id is None:
            self.by_id = {}
            _enter(self.by_id, self)
        index = self.by_id
        found = {id(one) for device_id in index.keys() & ids for one in index[device_id]}
        return [one for one in self if id(one) in found] if found else []


def _enter(index: dict[str, tuple[Grant, ...]], grants: Iterable[Grant]) -> None:
    for grant in grants:
        for device_id in {*grant.ids.all}:
            index[device_id] = (*index.get(device_id, ()), grant)


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
