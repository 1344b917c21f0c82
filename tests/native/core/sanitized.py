"""Programs over the shim's own code, built with the compiler's sanitizers."""

import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from vcuda_shim.build import CFLAGS, NATIVE, compiler, includes

SHIM = NATIVE / "shim"
INCLUDES = includes(NATIVE / "include", SHIM)
ABSENT = "cannot find"
"""The linker's words where a sanitizer's library is not installed."""

UNMAPPABLE = "unexpected memory mapping"
"""A sanitizer's words on kernels that place memory where it does not expect it."""


class SanitizerAbsentError(Exception):
    """The compiler comes without this sanitizer."""


def options(sanitizers: str) -> list[str]:
    return [f"-fsanitize={sanitizers}", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"]


def build(target: Path, files: Iterable[Path], sanitizers: str, flags: Sequence[str] = ()) -> Path:
    """The program; SanitizerAbsentError, or an AssertionError with the compiler's words."""
    words = [*compiler(), *CFLAGS, *options(sanitizers), *INCLUDES, *flags, "-o", str(target)]
    built = subprocess.run(
        [*words, *map(str, files)], check=False, capture_output=True, text=True, timeout=600
    )
    if ABSENT in built.stderr:
        raise SanitizerAbsentError(sanitizers)
    assert built.returncode == 0, built.stderr
    return target
