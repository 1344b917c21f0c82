"""The simulated driver's objects lie in layers: by nm, few need each other in a circle."""

from collections import defaultdict
from pathlib import Path

from vcuda_shim import build

LARGEST_CIRCLE = 5  # of core: a ledger that is full reaps processes, whose end gives back


def objects(folder: Path) -> list[Path]:
    """Compile each file of the driver to an object of its own."""
    generated = folder / "generated"
    generated.mkdir()
    build.load(build.NATIVE / "sim" / "table" / "generate.py").generate(generated)
    sim = build.NATIVE / "sim"
    flags = ["-std=c11", "-O0", "-D_GNU_SOURCE", *build.includes(build.NATIVE / "include", sim)]
    made = []
    for source in build.sources(sim / "core", sim / "cuda"):
        made.append(folder / "+".join(source.relative_to(sim).with_suffix(".o").parts))
        build.run([*build.compiler(), *flags, f"-I{generated}", "-c", source, "-o", made[-1]])
    return made


def needs(made: list[Path]) -> dict[str, set[str]]:
    """Which object takes a symbol from which."""
    owner: dict[str, str] = {}
    wanted: dict[str, set[str]] = defaultdict(set)
    for path in made:
        for line in build.run(["nm", "-g", path]).splitlines():
            *_, kind, symbol = line.split()
            if kind == "U":
                wanted[path.stem].add(symbol)
            elif kind in "TDBR":
                owner[symbol] = path.stem
    return {name: {owner[s] for s in wanted[name] if s in owner} for name in wanted}


def reach(graph: dict[str, set[str]], start: str) -> set[str]:
    found: set[str] = set()
    todo = [start]
    while todo:
        fresh = graph.get(todo.pop(), set()) - found
        found |= fresh
        todo += fresh
    return found


def test_no_large_circle_of_objects(tmp_path: Path) -> None:
    graph = needs(objects(tmp_path))
    reached = {name: reach(graph, name) for name in graph}

    circles = [
        sorted(other for other in reached[name] if name in reached.get(other, ())) for name in graph
    ]

    largest = max(circles, key=len)
    assert 1 < len(largest) <= LARGEST_CIRCLE, largest
