"""Processes for which no limit holds, in words. Pure.

What they lack is the label `reason` of `gpumanager_container_unlimited_processes`.
"""

from collections.abc import Iterator, Mapping
from typing import Final

LACKS: Final = {
    "session": "found another driver library than the one with the shim",
    "entry": "got functions from the driver that the shim does not know",
}


def sentences(unlimited: Mapping[str, int]) -> Iterator[str]:
    """One for each thing that is lacked."""
    for reason, count in sorted(unlimited.items()):
        processes = "1 process" if count == 1 else f"{count} processes"
        why = LACKS.get(reason, f"lacks what is called {reason}")
        each = "It" if count == 1 else "Each"
        yield (
            f"No limit holds for {processes}. {each} {why}. "
            f"What to do: runbook GpuManagerContainerUnlimited, {reason!r}."
        )
