"""What the simulated libraries export, as C: from cuda.txt and nvml.txt.

    {cuda,nvml}_stubs.c         a weak definition of every export; a real one elsewhere replaces it
    cuda_entries.c              what cuGetProcAddress answers
    {cuda,nvml}-<release>.map   the linker's list of exports of one release

A stub answers NOT_SUPPORTED, as a driver does that lacks the feature.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
RELEASES = {"555.58.02": 12050, "615.71.09": 13040}
"""The releases of the driver that are simulated, and the CUDA version that each was made for."""

CUDA_NOT_SUPPORTED = 801
NVML_NOT_SUPPORTED = 3
DEFAULT_VISIBILITY = "#pragma GCC visibility push(default)\n"


@dataclass(frozen=True, slots=True)
class Symbol:
    """One line of cuda.txt: a function with its versions, or a variable (base `data`)."""

    name: str
    base: str
    since: str
    since_per_thread: str

    @property
    def variable(self) -> bool:
        return self.base == "data"

    @property
    def reachable(self) -> bool:
        return not self.variable and self.base != "-"

    def known_to(self, cuda_version: int) -> bool:
        """Does the release for that CUDA version export it?"""
        versions = [int(text) for text in (self.since, self.since_per_thread) if text != "-"]
        return not self.reachable or min(versions) <= cuda_version


def rows(path: Path) -> list[list[str]]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return [line.split() for line in lines if line and not line.startswith("#")]


def stub(name: str, answer: int) -> str:
    return f"int {name}(void);\n__attribute__((weak)) int {name}(void) {{ return {answer}; }}\n"


def variable(symbol: Symbol) -> str:
    return f"char {symbol.name}[{symbol.since}] __attribute__((aligned(8)));\n"


def version(text: str) -> str:
    return "0" if text == "-" else text


def entries(symbols: Iterable[Symbol]) -> str:
    """The table behind cuGetProcAddress; a version of 0 means never."""
    reachable = [symbol for symbol in symbols if symbol.reachable]
    declared = "".join(f"extern int {symbol.name}(void);\n" for symbol in reachable)
    lines = "".join(
        f'    {{"{symbol.base}", {version(symbol.since)}, {version(symbol.since_per_thread)}, '
        f"(void *){symbol.name}}},\n"
        for symbol in reachable
    )
    return (
        '#include "cuda/entries.h"\n'
        f"{declared}const struct entry entries[] = {{\n{lines}}};\n"
        f"const unsigned entry_count = {len(reachable)};\n"
    )


def export_map(names: Iterable[str]) -> str:
    """An anonymous version node: exports without versions, as the real libraries have them."""
    listed = "".join(f"    {name};\n" for name in names)
    return f"{{\nglobal:\n{listed}local:\n    *;\n}};\n"


def generate(out: Path) -> None:
    """Write everything the build compiles into the folder `out`."""
    symbols = [Symbol(*row) for row in rows(HERE / "cuda.txt")]
    nvml = [row[0] for row in rows(HERE / "nvml.txt")]
    functions = [symbol.name for symbol in symbols if not symbol.variable]
    variables = [symbol for symbol in symbols if symbol.variable]
    texts = {
        "cuda_stubs.c": DEFAULT_VISIBILITY
        + "".join(map(variable, variables))
        + "".join(stub(name, CUDA_NOT_SUPPORTED) for name in functions),
        "cuda_entries.c": entries(symbols),
        "nvml_stubs.c": DEFAULT_VISIBILITY
        + "".join(stub(name, NVML_NOT_SUPPORTED) for name in nvml),
    }
    for release, cuda_version in RELEASES.items():
        exports = [symbol.name for symbol in symbols if symbol.known_to(cuda_version)]
        texts[f"cuda-{release}.map"] = export_map(exports)
        texts[f"nvml-{release}.map"] = export_map(nvml)
    for name, text in texts.items():
        (out / name).write_text(text, encoding="utf-8")
