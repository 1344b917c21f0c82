"""Figures and names in few characters, each fit for a column. Pure."""

from collections.abc import Sequence
from typing import Final

from gpumanager.units import CORES_PER_GPU, GIB, MIB
from gpumanager.view.glyphs import Glyphs

WHOLE: Final = 99.95
"""From here on percents are written without a digit after the point."""


def cut(text: str, width: int, signs: Glyphs) -> str:
    """Shorten a long name to a width; its beginning and its end are kept."""
    if len(text) <= width:
        return text
    keep = max(0, width - len(signs.cut))
    tail = keep // 3
    return (text[: keep - tail] + signs.cut + text[len(text) - tail :])[: max(0, width)]


def of_bytes(used: float | None, limit: float) -> str:
    """Return `12/40G`, `0.5/1.0G`, `256/512M`: both in one unit; a dash for what is not told."""
    if used is None and not limit:
        return "-"
    unit, letter = (GIB, "G") if limit >= GIB else (MIB, "M")
    known = "-" if used is None else _short(used / unit)
    return f"{known}/{_short(limit / unit)}{letter}"


def size(amount: float | None) -> str:
    """Return `12G`, `0.5G`, `256M`."""
    if amount is None:
        return ""
    unit, letter = (GIB, "G") if amount >= GIB else (MIB, "M")
    return f"{_short(amount / unit)}{letter}"


def _short(number: float) -> str:
    """Return three characters, as long as it is below a thousand."""
    ten = 9.95
    return "0" if number == 0 else f"{number:.1f}" if number < ten else f"{number:.0f}"


def of_percent(taken: float | None, granted: float | None) -> str:
    """Return `29.8/30%`, `0/30%`: at most eight characters up to 100; `-`: granted is unknown."""
    if granted is None:
        return "-"
    exact = "-" if taken is None else f"{taken:.1f}" if 0 < taken < WHOLE else f"{taken:.0f}"
    short = f"{taken:.0f}" if taken and granted >= CORES_PER_GPU else exact
    return f"{short}/{granted:.0f}%"


UNITS: Final[Sequence[tuple[float, str]]] = ((86400, "d"), (3600, "h"), (60, "m"))


def seconds(amount: float | None) -> str:
    """Return `0`, `12ms`, `1.2s`, `59s`, `12m`, `3h`, `2d`."""
    if amount is None:
        return ""
    for length, letter in UNITS:
        if amount >= length:
            return f"{amount / length:.0f}{letter}"
    if 0 < amount < 1:
        return f"{max(1, amount * 1000):.0f}ms"
    return f"{_short(amount)}s" if amount else "0"


def count(number: float | None) -> str:
    """Return four characters: `0`, `1234`, `12k`, `3M`."""
    if number is None:
        return ""
    for length, letter in ((1e6, "M"), (1e4, "k")):
        if number >= length:
            return f"{number / (1e3 if letter == 'k' else length):.0f}{letter}"
    return f"{number:.0f}"
