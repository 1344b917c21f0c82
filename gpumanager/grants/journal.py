"""The journal: every grant in force, as a value.

`journal_text` encodes it, `journal_file` keeps it on disk.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from gpumanager.grants.grant import Claimant, Grant, State
from gpumanager.ids import AllocationID


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
