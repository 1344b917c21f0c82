"""What one context takes of a GPU, learnt from measurements.

A context's size is learnt from the first that a process makes: the smallest figure seen of a GPU
model. A container can lie about what else it holds, so that its context looks large. So what one
container shows counts for itself alone, until a second one shows its own. Nothing is assumed
before. The first context may then be over a limit that is smaller than itself, and is undone; at
that moment its container cannot hold anything else. Where the driver does not list a process that
asks, nothing will be learnt: then a size is assumed, for its container only.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from gpumanager.gpu.values import GpuUUID
from gpumanager.ids import AllocationID
from gpumanager.units import MIB, Bytes

ASSUMED: Final = Bytes(512 * MIB)
"""What a context takes if nobody can say: about as much as on the largest GPUs."""

WITNESSES: Final = 2
"""Containers that must have shown how large a context is before others believe it."""

ModelOf = Callable[[GpuUUID], str | None]


def unknown_model(gpu: GpuUUID) -> str | None:
    """Return None: each GPU counts for itself."""
    del gpu
    return None


@dataclass(slots=True)
class ContextSizes:
    """What one context takes, by GPU model; of a GPU without a known model for itself alone.

    model_of: asked anew each time, because a GPU may appear late. The smallest figures of
    WITNESSES containers are kept of each model.
    """

    model_of: ModelOf = unknown_model
    _seen: dict[str, dict[AllocationID, Bytes]] = field(default_factory=dict)

    def learn(self, gpu: GpuUUID, size: Bytes, shown_by: AllocationID) -> bool:
        """Enter one more context; return whether that changes what is known."""
        seen = self._seen.setdefault(self.model_of(gpu) or gpu, {})
        before = dict(seen)
        if size > 0:
            seen[shown_by] = Bytes(min(size, seen.get(shown_by, size)))
        if len(seen) > WITNESSES:
            del seen[max(seen, key=lambda name: seen[name])]
        return seen != before

    def of(self, gpu: GpuUUID, container: AllocationID) -> Bytes:
        """Return the size that this container may believe; 0 while none is known."""
        seen = self._seen.get(self.model_of(gpu) or gpu, {})
        believed = container in seen or len(seen) >= WITNESSES
        return min(seen.values()) if believed else Bytes(0)
