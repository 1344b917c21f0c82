"""Mutants of C, for tests/mutants.py: `make mutants PACKAGE=native/shim`.

An expression in a function has a mutant where it is a comparison, a condition of `?:`, `&&`, `||`,
`!`, a sum, a difference, `&`, `|`, one of those with `=`, or a whole number. Where such an
expression ends follows from the operators around it; unary ones are told from binary ones by the
spaces that clang-format sets. What must be constant has no mutant: labels of cases, what is static.

All mutants stand in the copied sources behind `seeded_mutant(NUMBER)`, which asks a page that all
processes of the tests share, so that one build serves for all. Sources that the compiler refuses,
as `pointer + pointer`, go back to what they were, line by line.
"""

import mmap
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

STEPS: Final[Mapping[str, Sequence[str]]] = {
    "native/shim": ("shims", "shim-module"),
    "native/arbiter": ("arbiter-module",),
    "native/sim": ("driver", "clock", "sim-module"),
}
"""What vcuda_shim/build.py builds of each folder."""

_PAIRS: Final = ("< >=", "> <=", "== !=", "&& ||", "+ -", "& |", "+= -=", "&= |=")
OTHER: Final[Mapping[str, str]] = {
    one: other
    for left, right in map(str.split, _PAIRS)
    for one, other in ((left, right), (right, left))
}

_LEVELS: Final = (
    *("= += -= *= /= %= &= |= ^= <<= >>=", "? :", "||", "&&", "|", "^", "&", "== !="),
    *("< > <= >=", "<< >>", "+ -", "* / %"),
)
LEVELS: Final = {one: level for level, ops in enumerate(_LEVELS) for one in ops.split()}
"""How closely each binary operator binds."""

ASSIGNMENT: Final = 0
CONDITION: Final = 1
UNARY: Final = len(_LEVELS)
CLOSED_BY: Final = {")": "(", "]": "[", "}": "{"}
WITH_A_CONDITION: Final = frozenset({"if", "while", "for", "switch"})
BEFORE_AN_EXPRESSION: Final = frozenset({"return", "else", "do", ";", ","})
CONSTANT: Final = frozenset({"static", "_Static_assert", "case"})
"""What begins a statement, or a label, that has no mutants."""

TOKEN: Final = re.compile(
    r"""(?P<idle> \s+ | /\*.*?\*/ | //[^\n]* | (?m:^)[ \t]*\#(?:[^\n\\]|\\.)* )
    | (?P<text> L?"(?:[^"\\]|\\.)*" | L?'(?:[^'\\]|\\.)*' )
    | (?P<number> \.?\d(?:[eEpP][+-]|[\w.])* )
    | (?P<word> \w+ )
    | (?P<sign> <<=|>>=|\.\.\.|->|\+\+|--|<<|>>|[-+*/%&|^<>=!]=|&&|\|\||. )""",
    re.VERBOSE | re.DOTALL,
)
WHOLE: Final = re.compile(r"(0[xX][0-9a-fA-F]+|\d+)([uUlL]*)")

HEADER: Final = """\
#if !defined(SEEDED_MUTANT) && !defined(VCUDA_CDEF)
#define SEEDED_MUTANT
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

struct seeded_mutants {
    int active;
    unsigned char reached[%(size)d];
};
__attribute__((weak, visibility("hidden"))) struct seeded_mutants *seeded_page;
__attribute__((weak, visibility("hidden"))) struct seeded_mutants seeded_none = {.active = -1};

static inline bool seeded_mutant(int number)
{
    struct seeded_mutants *page = __atomic_load_n(&seeded_page, __ATOMIC_ACQUIRE);
    if (!page) {
        /* Straight to the kernel: the C library's own functions may be the ones that are tested. */
        int error = errno;
        long file = syscall(SYS_openat, AT_FDCWD, "%(page)s", O_RDWR | O_CLOEXEC);
        page = file < 0 ? &seeded_none
                        : (void *)syscall(SYS_mmap, 0, sizeof *page, PROT_READ | PROT_WRITE,
                                          MAP_SHARED, file, 0);
        if (file >= 0)
            syscall(SYS_close, file);
        if (page == MAP_FAILED)
            page = &seeded_none;
        errno = error;
        __atomic_store_n(&seeded_page, page, __ATOMIC_RELEASE);
    }
    __atomic_store_n(&page->reached[number], 1, __ATOMIC_RELAXED);
    return __atomic_load_n(&page->active, __ATOMIC_RELAXED) == number;
}
#endif
"""


@dataclass(frozen=True, slots=True)
class Token:
    text: str
    kind: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Place:
    """An expression that can be changed.

    start, end: where it stands in the source. written: what the mutant has there.
    before, after: the two for a reader, to whom a number alone says nothing.
    """

    start: int
    end: int
    written: str
    before: str
    after: str


class Source:
    """A C file; its tokens without comments and directives."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = [
            Token(found.group(), str(found.lastgroup), found.start(), found.end())
            for found in TOKEN.finditer(text)
            if found.lastgroup != "idle"
        ]

    @cached_property
    def places(self) -> list[Place]:
        """From the first to the last, an outer one before those in it."""
        found = dict[tuple[int, int], Place]()
        for at in self._in_functions():
            # The condition of `?:` turned round is often a comparison turned round.
            if place := self._place(at):
                found.setdefault((place.start, -place.end), place)
        return [found[one] for one in sorted(found)]

    def line(self, place: Place) -> int:
        return self.text.count("\n", 0, place.start) + 1

    def with_switches(self, numbers: Mapping[int, int], header: Path) -> str:
        """The source with each place at P behind the switch numbers[P]; no line moves."""
        chosen = [(self.places[at], number) for at, number in sorted(numbers.items())]
        return f'#include "{header}"\n#line 1\n{self._render(0, len(self.text), chosen)}'

    def _render(self, start: int, end: int, chosen: Sequence[tuple[Place, int]]) -> str:
        made = ""
        while chosen:
            (place, number), rest = chosen[0], chosen[1:]
            inner = [one for one in rest if one[0].end <= place.end]
            whole = self._render(place.start, place.end, inner)
            made += self.text[start : place.start]
            made += f"(seeded_mutant({number}) ? ({place.written}) : ({whole}))"
            start, chosen = place.end, rest[len(inner) :]
        return made + self.text[start:end]

    def _in_functions(self) -> list[int]:
        """The tokens of functions' bodies that need not be constant."""
        found, depth, body, constant, begins = list[int](), 0, False, False, True
        for at, token in enumerate(self.tokens):
            if token.text == "{":
                body = body or (depth == 0 and self.tokens[at - 1].text == ")")
                depth += 1
            elif token.text == "}":
                depth -= 1
                body = body and depth > 0
            elif body and begins and token.text in CONSTANT:
                constant = True
            if body and not constant:
                found.append(at)
            ended = token.text == ";" or (token.text == ":" and constant)
            constant = constant and not ended
            begins = ended or token.text in "{}:"
        return found

    def _place(self, at: int) -> Place | None:
        token = self.tokens[at]
        text, binds = token.text, LEVELS.get(token.text)
        spaced = self.text[token.end : token.end + 1].isspace()
        if token.kind == "number" and (number := WHOLE.fullmatch(text)):
            before, behind = self._line_of(token)
            more = f"{_one_more(number[1])}{number[2]}"
            labels = f"{before}{text}{behind}".strip(), f"{before}{more}{behind}".strip()
            return Place(token.start, token.end, more, *labels)
        if text in ("true", "false"):
            return self._changed(at, at, "false" if text == "true" else "true")
        if text == "!":
            last = self._last(at, UNARY)
            operand = self._joined(at + 1, last)
            return self._changed(at, last, operand, f"!!({operand})")
        return self._of_operator(at, binds) if binds is not None and spaced else None

    def _of_operator(self, at: int, binds: int) -> Place | None:
        sign, first = self.tokens[at].text, self._first(at, binds)
        if sign == "?":
            condition = self._joined(first, at - 1)
            return self._changed(first, at - 1, f"!({condition})")
        if (other := OTHER.get(sign)) is None:
            return None
        last = self._last(at, binds)
        left, right = self._joined(first, at - 1), self._joined(at + 1, last)
        return self._changed(first, last, f"{left} {other} {right}", f"({left}) {other} ({right})")

    def _changed(self, first: int, last: int, after: str, written: str = "") -> Place:
        start, end = self.tokens[first].start, self.tokens[last].end
        return Place(start, end, written or after, self._joined(first, last), after)

    def _joined(self, first: int, last: int) -> str:
        """The tokens with one space where the source has any, in one line."""
        made = ""
        for at in range(first, last + 1):
            token = self.tokens[at]
            apart = at > first and self.tokens[at - 1].end < token.start
            made += f" {token.text}" if apart else token.text
        return made

    def _line_of(self, token: Token) -> tuple[str, str]:
        """The parts of its line before and behind it."""
        start = self.text.rfind("\n", 0, token.start) + 1
        end = self.text.find("\n", token.end)
        return self.text[start : token.start], self.text[token.end : end]

    def _first(self, operator: int, binds: int) -> int:
        """Where the left operand begins."""
        at = operator - 1
        while True:
            text = self.tokens[at].text
            if text in CLOSED_BY and self._is_operand(at):
                at = self._opened(at) - 1
            elif (
                text in (*CLOSED_BY, *CLOSED_BY.values())
                or text in BEFORE_AN_EXPRESSION
                or (self._is_binary(at) and self._binds_less(text, binds))
            ):
                return at + 1
            else:
                at -= 1

    def _is_operand(self, at: int) -> bool:
        """Or is what this bracket closes a statement, or the condition of one?"""
        before = self._opened(at) - 1
        text = self.tokens[before].text
        if self.tokens[at].text == "}":  # `(struct one){0}`
            return text == ")" and self._is_operand(before)
        return text not in WITH_A_CONDITION

    @staticmethod
    def _binds_less(left: str, binds: int) -> bool:
        return LEVELS[left] < binds or LEVELS[left] == binds == CONDITION

    def _opened(self, at: int) -> int:
        depth = 0
        while True:
            text = self.tokens[at].text
            depth += (text in CLOSED_BY) - (text in CLOSED_BY.values())
            if depth == 0:
                return at
            at -= 1

    def _last(self, operator: int, binds: int) -> int:
        """Where the right operand ends."""
        depth, at = 0, operator + 1
        while True:
            text = self.tokens[at].text
            if depth == 0:
                if text in CLOSED_BY or text in (";", ","):
                    return at - 1
                if self._is_binary(at) and (
                    LEVELS[text] <= binds if binds != ASSIGNMENT else LEVELS[text] < binds
                ):
                    return at - 1
            depth += (text in CLOSED_BY.values()) - (text in CLOSED_BY)
            at += 1

    def _is_binary(self, at: int) -> bool:
        token = self.tokens[at]
        spaced = self.text[token.end : token.end + 1].isspace()
        return token.text in LEVELS and spaced


def _one_more(number: str) -> str:
    if number[:2].lower() == "0x":
        return hex(int(number, 16) + 1)
    return f"0{int(number, 8) + 1:o}" if number[0] == "0" != number else str(int(number) + 1)


class Switches:
    """The page by which the tests' processes know which mutant is on; `reached` is in it too."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._page = mmap.mmap(file.fileno(), 0)

    REACHED: frozenset[int] = frozenset()
    """While modules are imported: none, as the page is asked each time."""

    def activate(self, number: int) -> None:
        self._page[:4] = number.to_bytes(4, sys.byteorder, signed=True)

    def forget(self) -> None:
        self._page[4:] = bytes(len(self._page) - 4)

    def reached(self) -> set[int]:
        return {number for number, one in enumerate(self._page[4:]) if one}


SWITCH: Final = """\
from pathlib import Path

from tests.native.mutants import Switches

_switches = Switches(Path({page!r}))
REACHED = _switches.REACHED
activate, forget, reached = _switches.activate, _switches.forget, _switches.reached
"""


def write(tree: Path, numbers: Mapping[str, Mapping[int, int]]) -> set[int]:
    """Write these switches into the tree's sources, by module and place, and build them.

    Returns the numbers of those that compile.
    """
    page, header = tree / "seeded_mutants.page", tree / "seeded_mutants.h"
    size = 1 + max(number for places in numbers.values() for number in places.values())
    page.write_bytes((-1).to_bytes(4, sys.byteorder, signed=True) + bytes(size))
    header.write_text(HEADER % {"size": size, "page": page})
    (tree / "seeded_mutants.py").write_text(SWITCH.format(page=str(page)))
    recipe = tree / "vcuda_shim" / "build.py"
    flags = re.compile(r'    "-Wall",\n    "-Wextra",\n    "-Werror",\n')
    assert flags.search(recipe.read_text())
    recipe.write_text(flags.sub('    "-Werror=vla",\n', recipe.read_text()))
    originals = {module: Source((tree / module).read_text()) for module in numbers}
    left = {module: dict(places) for module, places in numbers.items()}
    steps = {one for module in numbers for one in STEPS["/".join(module.split("/")[:2])]}
    while True:
        for module, places in left.items():
            source = originals[module]
            (tree / module).write_text(source.with_switches(places, header))
        built = subprocess.run(
            [sys.executable, "-m", "vcuda_shim.build", *sorted(steps)],
            cwd=tree,
            env=os.environ | {"PYTHONPATH": str(tree)},
            capture_output=True,
            text=True,
            check=False,
        )
        if built.returncode == 0:
            return {number for places in left.values() for number in places.values()}
        refused = {
            (module, int(line))
            for module, line in re.findall(r"(native/\S+?):(\d+):\d+: error", built.stderr)
        }
        before = sum(map(len, left.values()))
        left = {
            module: {
                at: number
                for at, number in places.items()
                if not _touches(originals[module], at, refused, module)
            }
            for module, places in left.items()
        }
        if sum(map(len, left.values())) == before:
            raise RuntimeError(f"what is seeded does not compile:\n{built.stderr[-3000:]}")


def _touches(source: Source, at: int, refused: set[tuple[str, int]], module: str) -> bool:
    place = source.places[at]
    last = source.text.count("\n", 0, place.end) + 1
    return any((module, line) in refused for line in range(source.line(place), last + 1))
