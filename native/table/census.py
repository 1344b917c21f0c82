"""Every function of a driver library is either hooked or said here not to be, and why.

`<library>.hooks` has the hooked ones; `<library>.census` has all others known, class by class. Who
is in neither is unknown: a new driver's function, which a person has to place.
`<library>.arguments` does the same for values, fields and types of its header, in the same form.
"""

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

HEAD = re.compile(r"([a-z][a-z-]*): (\S.*)")
FUNCTION = re.compile(r"(cu|nvml)[A-Z]\w*")


@dataclass(frozen=True, slots=True)
class Unhooked:
    """A class of symbols, and why they need no hook. holes: those that do, and have none yet."""

    name: str
    reason: str
    symbols: tuple[str, ...]


def parse_census(path: Path) -> tuple[Unhooked, ...]:
    """All classes of a census; a malformed one ends the build, saying where and why."""
    classes: dict[str, tuple[str, list[str]]] = {}
    seen: set[str] = set()
    symbols: list[str] = []
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        where = f"{path}:{number}"
        if not line.strip() or line.startswith("#"):
            continue
        if not line.startswith(" "):
            name, reason = _head(where, line)
            symbols = classes.setdefault(name, (reason, []))[1]
            if symbols:
                raise SystemExit(f"{where}: class {name} is there already")
            continue
        if not classes:
            raise SystemExit(f"{where}: symbols before the first `class: reason`")
        for symbol in expand(where, line.split()):
            if symbol in seen:
                raise SystemExit(f"{where}: {symbol} is placed already")
            seen.add(symbol)
            symbols.append(symbol)
    return tuple(Unhooked(name, reason, tuple(of)) for name, (reason, of) in classes.items())


def _head(where: str, line: str) -> tuple[str, str]:
    match = HEAD.fullmatch(line)
    if match is None:
        raise SystemExit(f"{where}: expected `class: reason`, found {line!r}")
    return match[1], match[2]


def expand(where: str, words: Iterable[str]) -> Iterator[str]:
    """`cuMemcpy _ptds` names cuMemcpy and cuMemcpy_ptds."""
    base = ""
    for word in words:
        if not word.startswith("_"):
            base = word
        elif not base:
            raise SystemExit(f"{where}: {word} is a variant of nothing")
        yield word if word is base else base + word


def placed(path: Path) -> dict[str, str]:
    """The class of each name in a file of this form."""
    return {symbol: each.name for each in parse_census(path) for symbol in each.symbols}


def arguments(tables: Path, library: str) -> dict[str, str]:
    """The class of each value, field and type that is placed."""
    return placed(tables / f"{library}.arguments")


def functions(hooked: Collection[str], census: Iterable[Unhooked]) -> tuple[str, ...]:
    """All functions a program may call by name, hooked or not; the debugger's own are left out."""
    names = {symbol for unhooked in census for symbol in unhooked.symbols} | set(hooked)
    return tuple(sorted(name for name in names if FUNCTION.match(name)))
