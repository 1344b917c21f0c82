"""Write docs/hooks.md and docs/census.md from the tables: hooked functions, the reasons for the
others, and the count of names in NVIDIA's headers that are in neither.

python native/table/document.py        writes both pages
"""

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TARGET = ROOT / "docs" / "hooks.md"
CENSUS = ROOT / "docs" / "census.md"
CENSUS_HEAD = """# Census of NVIDIA's headers

What `cuda.h` and `nvml.h` declare, and what the shim does with each name. You need it when a new
CUDA version or driver comes out: a test fails for every name that is not placed here.

`python native/table/document.py` writes this page from `native/table`: change it there. The
declarations are in `native/table/*.headers`, as names and numbers alone; `make headers` regenerates
these files from the headers on the package index.

* **Functions**: names that a program can be linked with. Macros are expanded, with and without
  default streams per thread (`CUDA_API_PER_THREAD_DEFAULT_STREAM`). Names kept for older programs
  count, and so do the headers for OpenGL, EGL and VDPAU that come with `cuda.h`, as they are on
  Linux (`cuWGLGetDevice` is on Windows alone).
* **Hooked**: the shim has its own function ([hooks](hooks.md)).
* **Explained**: it is the driver's own, and [hooks](hooks.md#libcuda-not-hooked) says why.
* **Unknown**: neither.
* **Values, fields**: enumerators, constants and struct fields about memory, locations, limits,
  handles, graph nodes, copies and launches; of `nvml.h`, fields about memory and processes. Each
  is in a row of the tables below.
* **Types**: all other enumerations and structs, placed as a whole in the same tables.

Tests also fail for a value or field that the shim declares at another place than the headers, and
for a name that a program in a container cannot be linked with.
"""
HEAD = """# Hooked driver functions

Which functions of the driver the shim hooks, and why it does not hook the others. Look here before
you [add a hook](extending.md#a-hook).

`python native/table/document.py` writes this page from `native/table`: change it there.

The shim has code only for *hooked* functions. All others are the driver's own, at its own speed.
The tables contain each export of the recorded drivers (550 and 555) and each function that the
headers of CUDA 12.8 to 13.5 declare ([the census](census.md)). A test fails for a function that is
in none of them or in two.
"""
TITLES = {"cuda": "libcuda", "nvml": "libnvidia-ml"}
KINDS = {
    "init": "initialisation",
    "route": "returns entry points, ours for hooked functions",
    "alloc": "allocates device memory, or makes the driver allocate it",
    "free": "frees device memory",
    "query": "reports memory, memory pools or processes",
    "launch": "takes GPU time",
    "work": "takes GPU time for the bytes it fills or copies inside a GPU",
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


def census_rows(generate: Any, census: Any, headers: Any) -> Iterator[str]:
    """One version of one header each."""
    for library in generate.LIBRARIES:
        rows = generate.parse_table(HERE / f"{library.name}.hooks")
        hooked = {row.symbol for row in rows if row.exported}
        explained = set(census.placed(HERE / f"{library.name}.census"))
        arguments = set(census.arguments(HERE, library.name))
        known = headers.parse(HERE / f"{library.name}.headers", census.expand)
        for version, header in known.items():
            functions, members, types = header.functions, header.names, header.types
            sets = [functions, functions & hooked, functions & explained]
            sets += [functions - hooked - explained, members, members - arguments]
            sets += [types, types - arguments]
            counts = " | ".join(str(len(one)) for one in sets)
            yield f"| `{library.name}.h` {version} | {counts} |"


def census_document(generate: Any, census: Any, headers: Any) -> str:
    head = ("header", "functions", "hooked", "explained", "unknown")
    head += ("values, fields", "unknown", "types", "unknown")
    lines = [CENSUS_HEAD, f"| {' | '.join(head)} |\n|---|{'---:|' * (len(head) - 1)}"]
    lines += census_rows(generate, census, headers)
    for library in generate.LIBRARIES:
        lines += [f"\n## {TITLES[library.name]}: values, fields and types\n"]
        lines += ["| why | names |\n|---|---|"]
        for each in census.parse_census(HERE / f"{library.name}.arguments"):
            names = ", ".join(f"`{symbol}`" for symbol in each.symbols)
            lines.append(f"| {each.name}: {each.reason} | {names} |")
    lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.path.insert(0, str(HERE))
    import census
    import generate
    import headers

    TARGET.write_text(document(generate, census))
    CENSUS.write_text(census_document(generate, census, headers))
