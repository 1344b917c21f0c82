"""The pages of the project as a reader has them: code blocks, headings, links.

A block of commands says behind its language where it can be run:

    sh run       anywhere; the tests run it
    sh make      a target of the Makefile, which takes minutes or builds things
    sh cluster   on a cluster, on a node of one, or as root on one of the tests'
    sh gpu       on a machine with an NVIDIA GPU or its driver
    sh files     with files of the reader's own, which the project does not have
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = ROOT / "docs"
MARKS: Final = ("run", "make", "cluster", "gpu", "files")

_FENCE: Final = re.compile(r"(\s*)(`{3,})\s*(.*)")
_ITEM: Final = re.compile(r"\s*([-*]|\d+\.) ")
_HEADING: Final = re.compile(r"#{1,6} (.*)")
_LINK: Final = re.compile(r"!?\[(?:[^\]\[]|\[[^\]]*\])*\]\(([^)\s]+)\)")
_SPAN: Final = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_LINKED: Final = re.compile(r"\[([^\]]*)\]\([^)]*\)")


@dataclass(frozen=True, slots=True)
class Block:
    """Code on a page. words: what stands behind its opening fence; none where it is indented."""

    page: Path
    line: int
    words: tuple[str, ...] | None
    text: str

    @property
    def language(self) -> str:
        return self.words[0] if self.words else ""

    @property
    def mark(self) -> str:
        """Where commands can be run; empty where that is not said."""
        return self.words[1] if self.words and len(self.words) > 1 else ""

    @property
    def place(self) -> str:
        return f"{name_of(self.page)}:{self.line}"


def pages() -> list[Path]:
    """Those beside README and all of docs, decisions and runbooks among them."""
    return [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path) -> list[Block]:
    return [part for part in _parts(page) if isinstance(part, Block)]


def every_block() -> list[Block]:
    return [block for page in pages() for block in blocks(page)]


def prose(page: Path) -> str:
    """The page without its code blocks."""
    return "\n".join(part for part in _parts(page) if isinstance(part, str))


def spans(page: Path) -> list[str]:
    """What stands in backticks within the text."""
    return _SPAN.findall(prose(page))


def links(page: Path) -> list[str]:
    return _LINK.findall(_SPAN.sub("", prose(page)))


def anchors(page: Path) -> set[str]:
    """Of its headings, as GitHub makes them: a second one of a name gets a number."""
    found: dict[str, int] = {}
    for line in prose(page).splitlines():
        if match := _HEADING.fullmatch(line):
            name = slug(match[1])
            found[name] = found.get(name, 0) + 1
    return {f"{name}-{n}" if n else name for name, count in found.items() for n in range(count)}


def slug(heading: str) -> str:
    text = _LINKED.sub(r"\1", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def _parts(page: Path) -> Iterator[Block | str]:
    """Blocks, and the lines between them."""
    lines = page.read_text().splitlines()
    number, in_list = 0, False
    while number < len(lines):
        line = lines[number]
        if fence := _FENCE.fullmatch(line):
            end = _closing(lines, number, fence[2])
            text = _dedented(lines[number + 1 : end], len(fence[1]))
            yield Block(page, number + 1, tuple(fence[3].split()), text)
            number = end + 1
            continue
        if _is_code(lines, number) and not in_list:
            end = _end_of_indented(lines, number)
            yield Block(page, number + 1, None, _dedented(lines[number:end], 4))
            number = end
            continue
        if line and not line.startswith(" "):
            in_list = _ITEM.match(line) is not None
        yield line
        number += 1


def _closing(lines: list[str], start: int, fence: str) -> int:
    for number in range(start + 1, len(lines)):
        if lines[number].strip() == fence:
            return number
    raise AssertionError(f"line {start + 1}: a code block without an end")


def _is_code(lines: list[str], number: int) -> bool:
    after_blank = number == 0 or not lines[number - 1].strip()
    return after_blank and lines[number].startswith("    ")


def _end_of_indented(lines: list[str], start: int) -> int:
    end = start
    while end < len(lines) and (lines[end].startswith("    ") or not lines[end].strip()):
        end += 1
    while not lines[end - 1].strip():
        end -= 1
    return end


def _dedented(lines: list[str], by: int) -> str:
    return "\n".join(line[by:] if line[:by].isspace() else line for line in lines) + "\n"
