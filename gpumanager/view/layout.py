"""Which columns a terminal of a given width has room for, and how wide each is. Pure."""

from dataclasses import dataclass, replace
from typing import Final


@dataclass(frozen=True, slots=True)
class Layout:
    """Widths of the columns on a terminal; 0: not shown. Between any two is a space."""

    name: int
    memory_bar: int = 0
    memory: int = 0
    share_bar: int = 0
    share: int = 0
    ceiling: int = 0
    wait: int = 0
    refusals: int = 0
    peak: int = 0
    processes: int = 0
    celsius: int = 0
    watts: int = 0

    @property
    def widths(self) -> tuple[int, ...]:
        return tuple(getattr(self, name) for name in ORDER)

    @property
    def width(self) -> int:
        """Return the width of a whole line."""
        shown = [one for one in self.widths if one]
        return sum(shown) + len(shown) - 1


ORDER: Final = (
    *("name", "memory_bar", "memory", "peak", "share_bar", "share"),
    *("ceiling", "wait", "refusals", "processes", "celsius", "watts"),
)
"""From left to right."""

TINY: Final = 34
NARROW: Final = 52
USUAL: Final = 76
EIGHTY: Final = 80
WIDE: Final = 108
MORE: Final = {"peak": 5, "processes": 4, "celsius": 4, "watts": 5}
"""Columns from WIDE on."""
LEAST_NAME, MOST_NAME = 8, 44
LEAST_BAR, MOST_BAR = 8, 24


def layout(width: int) -> Layout:
    """Choose the columns: below NARROW what matters most, bars from USUAL on, WIDE has all."""
    columns = Layout(0, memory=9)
    if width >= TINY:
        columns = replace(columns, share=8, refusals=4)
    if width >= NARROW:
        columns = replace(columns, ceiling=4, wait=5)
    if width >= USUAL:
        bars = min(MOST_BAR, LEAST_BAR + max(0, width - EIGHTY) // 4)
        columns = replace(columns, memory_bar=bars, share_bar=bars)
    if width >= WIDE:
        columns = replace(columns, **MORE)
    left = max(LEAST_NAME, width - columns.width - 1)
    return replace(columns, name=min(left, MOST_NAME))
