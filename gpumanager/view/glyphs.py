"""The characters that a terminal has: Unicode's, or ASCII's where it does not speak UTF-8. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


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
