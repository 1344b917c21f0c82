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
    if width < TINY:
        return _fitted(Layout(0, memory=9), width)
    if width < NARROW:
        return _fitted(Layout(0, memory=9, share=8, refusals=4), width)
    if width < USUAL:
        return _fitted(Layout(0, memory=9, share=8, ceiling=4, wait=5, refusals=4), width)
    bars = min(MOST_BAR, LEAST_BAR + max(0, width - EIGHTY) // 4)
    columns = Layout(0, bars, 9, bars, 8, ceiling=4, wait=5, refusals=4)
    return _fitted(columns if width < WIDE else replace(columns, **MORE), width)


def _fitted(columns: Layout, width: int) -> Layout:
    """Give the name what is left."""
    left = max(LEAST_NAME, width - columns.width - 1)
    return replace(columns, name=min(left, MOST_NAME))
