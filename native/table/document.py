"""docs/hooks.md from the tables: what is hooked, and what is not and why.

python native/table/document.py        writes it anew
"""

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TARGET = ROOT / "docs" / "hooks.md"
HEAD = """# What the shim hooks, and what not

Written by `python native/table/document.py` from `native/table`: change it there.

The shim has code only for the functions that are *hooked*. All others are the driver's own, at its
own speed. Each export of the recorded drivers (550 and 555) and each function that CUDA 13's
bindings declare is in one of these tables; a test fails for one that is in none or in two.
"""
TITLES = {"cuda": "libcuda", "nvml": "libnvidia-ml"}
KINDS = {
    "init": "initialisation",
    "route": "answers with entry points: with ours where we have one",
    "alloc": "takes device memory, or makes the driver take it",
    "free": "gives device memory back",
    "query": "reports memory, memory pools or processes",
    "launch": "takes GPU time",
    "work": "takes GPU time, by the bytes it fills or copies inside of a GPU",
    "change": "changes what the launches of a graph take",
    "capture": "begins or ends a capture, in which nothing runs",
}


def families(symbols: Iterable[str]) -> Iterator[str]:
    """`cuMemcpy`, `_ptds` as `cuMemcpy (_ptds)`, in the order of the symbols."""
    base, variants = "", list[str]()
    for symbol in [*symbols, ""]:
        if base and symbol.startswith(f"{base}_"):
            variants.append(f"`{symbol.removeprefix(base)}`")
            continue
        if base:
            yield f"`{base}`" + (f" ({', '.join(variants)})" if variants else "")
        base, variants = symbol, []


def table(head: tuple[str, str], rows: Iterable[tuple[str, Iterable[str]]]) -> Iterator[str]:
    yield f"| {head[0]} | {head[1]} |\n|---|---|"
    yield from (f"| {left} | {', '.join(families(right))} |" for left, right in rows)


def of_kind(rows: Iterable[Any], kind: str) -> list[str]:
    ordered = sorted(rows, key=lambda row: (row.family, row.symbol))
    return [row.symbol for row in ordered if row.kind == kind]


def document(generate: Any, census: Any) -> str:
    lines = [HEAD]
    for library in generate.LIBRARIES:
        rows = generate.parse_table(HERE / f"{library.name}.hooks")
        unhooked = census.parse_census(HERE / f"{library.name}.census")
        kinds = [
            (f"{kind}: {KINDS.get(kind, kind)}", of_kind(rows, kind))
            for kind in dict.fromkeys(row.kind for row in rows if row.exported)
        ]
        lines += [f"## {TITLES[library.name]}: hooked\n", *table(("kind", "functions"), kinds)]
        reasons = [(f"{each.name}: {each.reason}", each.symbols) for each in unhooked]
        lines += [f"\n## {TITLES[library.name]}: not hooked\n"]
        lines += [*table(("why", "functions"), reasons), ""]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.path.insert(0, str(HERE))
    import census
    import generate

    TARGET.write_text(document(generate, census))
