"""Figures, names and signs in few characters, each fit for a column of a terminal. Pure.

Signs are Unicode's, or ASCII's where the terminal does not speak UTF-8.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gpumanager.units import CORES_PER_GPU, GIB, MIB


@dataclass(frozen=True, slots=True)
class Glyphs:
    """full, parts: of a bar; parts: one to seven eighths of a cell, or none. granted, free: cells.

    branch, end: before a container. cut: where a name was shortened. down, up: of a sorted column.
    """

    full: str
    parts: str
    granted: str
    free: str
    opened: str
    closed: str
    branch: str
    end: str
    cut: str
    down: str
    up: str
    at_most: str
    degree: str
    dot: str
    arrows: str


UNICODE: Final = Glyphs(
    full="█", parts="▏▎▍▌▋▊▉", granted="░", free="·", opened="▾", closed="▸",
    branch="├ ", end="└ ", cut="…", down="▼", up="▲", at_most="≤", degree="°", dot="·",
    arrows="↑↓",
)  # fmt: skip
ASCII: Final = Glyphs(
    full="#", parts="", granted="=", free=".", opened="-", closed="+",
    branch="|-", end="`-", cut="~", down="v", up="^", at_most="<", degree=" ", dot="-",
    arrows="up/down",
)  # fmt: skip


def glyphs(environment: Mapping[str, str], encoding: str) -> Glyphs:
    """Choose what can be shown. encoding: of the output stream.

    Python turns the C locale into UTF-8 for itself and says so in LC_CTYPE, which is why that is
    believed only beside a LANG that does not speak of another. Nothing set, as in containers, is no
    word against UTF-8.
    """
    every, ctype = environment.get("LC_ALL"), environment.get("LC_CTYPE", "")
    language = every or environment.get("LANG") or ""
    set_by_a_person = not every and _utf8(ctype) and ctype != "C.UTF-8"
    if not _utf8(encoding) or (language and not _utf8(language) and not set_by_a_person):
        return ASCII
    return UNICODE


def _utf8(text: str) -> bool:
    return "utf8" in text.casefold().replace("-", "")


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
