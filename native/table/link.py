"""The link libraries' generated part: names, their targets, a trampoline for each.

    <library>_link_names.c   names and targets, and the answer of what the driver lacks
    <library>_link.S         the trampolines
    <library>_link.map       the linker's list of exports

The exports carry no version: a program linked so starts over the shim and over the driver alike.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any


def names(library: Any, functions: Sequence[str]) -> Iterable[str]:
    yield f'#include "{library.name}_types.h"\n#include "link/link.h"\n'
    yield f"int link_absent(void)\n{{\n    return {library.absent};\n}}\n"
    yield "const char *const link_names[] = {"
    yield from (f'    "{function}",' for function in functions)
    yield "};\n"
    yield f"void *_Atomic link_targets[{len(functions)}] = {{"
    yield from ("    (void *)link_first," for _ in functions)
    yield "};"


def trampolines(functions: Sequence[str]) -> Iterable[str]:
    yield '#include "link/trampolines.S"'
    yield from (f"TRAMPOLINE {function}, {index}" for index, function in enumerate(functions))


def export_map(functions: Sequence[str]) -> Iterable[str]:
    yield "{\n    global:"
    yield from (f"        {function};" for function in functions)
    yield "    local: *;\n};"


def generate(out: Path, library: Any, functions: Sequence[str]) -> None:
    """Write the three files of one library into `out`."""
    for name, lines in (
        (f"{library.name}_link_names.c", names(library, functions)),
        (f"{library.name}_link.S", trampolines(functions)),
        (f"{library.name}_link.map", export_map(functions)),
    ):
        (out / name).write_text("\n".join(lines) + "\n")
