"""From one row per function to everything repetitive the shims need.

For each library the table becomes a header with the declarations and the type of a struct of typed
pointers into the driver, a source with those pointers, and the linker's version script. Where
programs ask a function for entry points, as cuGetProcAddress, the source has a table of the hooks
too, with the versions by which they are asked for (native/sim/table).

A pointer begins as a function that resolves the whole table and then calls itself again, so that a
hook calls the driver by one load and one jump, and nothing runs before the first call. A function
the driver does not have becomes one that says so.

What a library exports under a hook's name is a short entry that jumps to the hook.

Where hooks are all alike, the hook itself is written here too, into the same source.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
VERSIONS = HERE.parent / "sim" / "table"

WRITTEN = frozenset({"work"})
"""Kinds whose hooks are written here."""

EXPORTED = WRITTEN | {"init", "route", "alloc", "free", "launch", "capture", "query"}
KINDS = EXPORTED | {"call"}
PACES = WRITTEN | {"launch"}
"""Kinds whose hooks are about nothing but GPU time."""

ESSENTIAL = re.compile(
    r"cuMemAlloc\w*|cuMemCreate|cu(Mipmapped)?Array(3D)?Create|cuLaunch\w*|cuGraphLaunch|cuGetProcAddress"
)
"""Families without which a program allocates or launches past its limits."""

PARAMETER = re.compile(r"((?:\w+ )+\**)(\w+)")
PER_THREAD = re.compile(r"_(ptsz|ptds)$")
VARIANT = re.compile(r"(_v\d+)?(_ptsz|_ptds)?$")


@dataclass(frozen=True, slots=True)
class Library:
    """One driver library: its short name, its results, and what a missing function answers.

    node: the version its symbols carry, so that dlvsym finds the shim's; "" for none. NVML's soname
    would be the name to give, but ld's version scripts know no hyphen; real NVML has no versions.
    routed: programs may ask one of its functions for entry points.
    """

    name: str
    node: str
    result: str
    absent: str
    routed: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """One function of the driver. parameters: C declarations; arguments: their names.

    work: of that kind, whether it takes GPU time, in C.
    """

    kind: str
    symbol: str
    parameters: tuple[str, ...]
    arguments: tuple[str, ...]
    work: str = ""

    @property
    def exported(self) -> bool:
        return self.kind in EXPORTED

    @property
    def signature(self) -> str:
        return ", ".join(self.parameters) or "void"

    @property
    def stream(self) -> str:
        """The stream it works in, as the functions without a suffix know it."""
        given = "stream" if "stream" in self.arguments else "NULL"
        return f"process_own_stream({given})" if PER_THREAD.search(self.symbol) else given

    @property
    def family(self) -> str:
        """The name cuGetProcAddress knows all variants by."""
        return VARIANT.sub("", self.symbol, count=1)


LIBRARIES = (
    Library("cuda", "libcuda.so.1", "CUresult", "CUDA_ERROR_NOT_FOUND", routed=True),
    Library("nvml", "", "nvmlReturn_t", "NVML_ERROR_FUNCTION_NOT_FOUND"),
)


def parse_row(source: str, line: str) -> Row:
    """One line of a table; a malformed one ends the build, saying where and why."""
    kind, symbol, text, work = _columns(source, line)
    if kind not in KINDS:
        raise SystemExit(f"{source}: unknown kind {kind!r}; one of {', '.join(sorted(KINDS))}")
    if not re.fullmatch(r"[a-z]\w+", symbol):
        raise SystemExit(f"{source}: {symbol!r} is not a function's name")
    parameters = () if text == "void" else tuple(part.strip() for part in text.split(","))
    matches = [PARAMETER.fullmatch(parameter) for parameter in parameters]
    arguments = tuple(match[2] for match in matches if match)
    if len(arguments) != len(parameters) or len(set(arguments)) != len(arguments):
        raise SystemExit(f"{source}: cannot read the parameters of {symbol}: {text!r}")
    return Row(kind, symbol, parameters, arguments, work)


def _columns(source: str, line: str) -> list[str]:
    """Three, or four of kind `work`; always four in the answer."""
    columns = [column.strip() for column in line.split("|")]
    expected = "kind | symbol | parameters" + (" | work" if columns[0] == "work" else "")
    if len(columns) != expected.count("|") + 1 or not all(columns):
        raise SystemExit(f"{source}: expected `{expected}`, found {line!r}")
    return [*columns, ""][:4]


def parse_table(path: Path) -> tuple[Row, ...]:
    rows: dict[str, Row] = {}
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        row = parse_row(f"{path}:{number}", line)
        if row.symbol in rows:
            raise SystemExit(f"{path}:{number}: {row.symbol} has a row already")
        rows[row.symbol] = row
    if not any(row.exported for row in rows.values()):
        raise SystemExit(f"{path}: nothing to hook")
    return tuple(rows.values())


def header(library: Library, rows: Sequence[Row]) -> Iterable[str]:
    guard = f"{library.name.upper()}_HOOKS_H"
    yield f"#ifndef {guard}\n#define {guard}\n"
    yield f'#include "{library.name}_types.h"\n'
    for row in rows:
        if row.exported:  # the export of this name is in the source, and jumps here (entry.h)
            yield f'{library.result} {row.symbol}({row.signature}) __asm__("hook_{row.symbol}");'
    yield "\n/* The driver's own functions. Any thread; resolved at the first call. */"
    yield f"struct {library.name}_driver {{"
    for row in rows:
        yield f"    {library.result} (*_Atomic {row.symbol})({row.signature});"
    yield "};\n"
    yield f"extern struct {library.name}_driver {library.name}_driver;"
    yield f"#define REAL(function) ({library.name}_driver.function)\n"
    if library.routed:
        yield '#include "cuda/hook.h"\n'
        yield f"#define HOOKS {sum(row.exported for row in rows)}"
        yield "extern struct hook hooks[HOOKS];"
    yield "#endif"


def first_call(library: Library, row: Row) -> Iterable[str]:
    """What a pointer is before it is resolved, and what it is where the driver has nothing."""
    yield f"static {library.result} absent_{row.symbol}({row.signature})\n{{"
    yield from (f"    (void){argument};" for argument in row.arguments)
    yield f"    return {library.absent};\n}}\n"
    yield f"static {library.result} first_{row.symbol}({row.signature})\n{{"
    yield "    resolve();"
    yield f"    return REAL({row.symbol})({', '.join(row.arguments)});\n}}\n"


def resolution(library: Library, rows: Sequence[Row]) -> Iterable[str]:
    yield "static void resolve(void)\n{"
    for row in rows:
        yield f'    void *{row.symbol}_entry = real_symbol("{row.symbol}");'
    for index, row in enumerate(row for row in rows if row.exported and library.routed):
        yield f"    atomic_store_explicit(&hooks[{index}].entry, {row.symbol}_entry,"
        yield "                          memory_order_relaxed);"
    for row in rows:
        kind = f"({library.result}(*)({row.signature}))"
        yield f"    atomic_store(&{library.name}_driver.{row.symbol},"
        yield f"                 {row.symbol}_entry ? {kind}{row.symbol}_entry"
        yield f"                 : absent_{row.symbol});"
    yield "}\n"


def parse_versions(path: Path) -> dict[str, tuple[int, int]]:
    """From which version of CUDA on cuGetProcAddress answers with a symbol: without and with
    per-thread streams, 0 for never."""
    lines = [line.split() for line in path.read_text().splitlines()]
    rows = [words for words in lines if words and words[0] != "#" and words[1] != "data"]
    return {
        symbol: (int(since.replace("-", "0")), int(per_thread.replace("-", "0")))
        for symbol, _base, since, per_thread in rows
    }


def hook_table(rows: Sequence[Row], versions: Mapping[str, tuple[int, int]]) -> Iterable[str]:
    yield "struct hook hooks[HOOKS] = {"
    for row in rows:
        if row.exported:
            since, per_thread = versions.get(row.symbol, (0, 0))
            yield f'    {{NULL, (void *)entry_{row.symbol}, "{row.symbol}", "{row.family}",'
            yield f'     "{row.kind}",'
            yield f"     {since}, {per_thread}, {int(row.kind in PACES)},"
            yield f"     {int(bool(ESSENTIAL.fullmatch(row.family)))}}},"
    yield "};\n"


def source(
    library: Library, rows: Sequence[Row], versions: Mapping[str, tuple[int, int]]
) -> Iterable[str]:
    yield f'#include "{library.name}_hooks.h"\n'
    yield '#include "runtime/entry.h"\n#include "runtime/real.h"\n'
    yield "#include <stdatomic.h>\n#include <stddef.h>\n"
    for row in rows:
        if row.exported:
            yield f"ENTRY({row.symbol});"
            yield f'extern const char entry_{row.symbol}[] __asm__("{row.symbol}");'
    yield "static void resolve(void);\n"
    for row in rows:
        yield from first_call(library, row)
    yield f"struct {library.name}_driver {library.name}_driver = {{"
    yield from (f"    .{row.symbol} = first_{row.symbol}," for row in rows)
    yield "};\n"
    if library.routed:
        yield from hook_table(rows, versions)
    yield from resolution(library, rows)
    yield from written(library, rows)


def work_hook(library: Library, row: Row) -> Iterable[str]:
    """It takes turns as a launch does (work.h)."""
    real = f"REAL({row.symbol})({', '.join(row.arguments)})"
    yield f"{library.result} {row.symbol}({row.signature})\n{{"
    yield f"    if (throttle_idle() || !({row.work}) || throttle_credited(NULL, {row.stream}))"
    yield f"        return {real};"
    yield f"    struct launch launch = {{.stream = {row.stream}}};"
    yield f"    {library.result} result = throttle_begin(&launch);"
    yield f"    return result != CUDA_SUCCESS ? result : throttle_end(&launch, {real});\n}}\n"


def written(library: Library, rows: Sequence[Row]) -> Iterable[str]:
    """The hooks that are all alike."""
    if any(row.kind in WRITTEN for row in rows):
        yield '#include "cuda/time/work.h"\n'
    for row in rows:
        if row.kind == "work":
            yield from work_hook(library, row)


def version_script(library: Library, rows: Sequence[Row]) -> Iterable[str]:
    yield f"{library.node} {{\n    global:".lstrip()
    yield from (f"        {row.symbol};" for row in rows if row.exported)
    yield "    local: *;\n};"


def generate(out: Path, tables: Path = HERE) -> None:
    """Write `<library>_hooks.h`, `<library>_hooks.c` and `<library>.map` into `out`."""
    for library in LIBRARIES:
        rows = parse_table(tables / f"{library.name}.hooks")
        versions = parse_versions(VERSIONS / f"{library.name}.txt") if library.routed else {}
        for name, lines in (
            (f"{library.name}_hooks.h", header(library, rows)),
            (f"{library.name}_hooks.c", source(library, rows, versions)),
            (f"{library.name}.map", version_script(library, rows)),
        ):
            (out / name).write_text("\n".join(lines) + "\n")
