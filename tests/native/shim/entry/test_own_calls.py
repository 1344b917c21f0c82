"""A call of the driver that is not the hooked call itself is made in the relaxed capture mode.

By reading the sources: from each `REAL(name)` back to all hooks that lead there, the way passes
`own_calls_begin()` (native/shim/cuda/own_calls.h), or the hook is that of `name`.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import ROOT
from tests.native.table.hook_table import load

SHIM = ROOT / "native/shim/cuda"

READERS = {
    *("cuCtxGetCurrent", "cuCtxGetDevice", "cuCtxGetId", "cuCtxGetApiVersion", "cuCtxGetLimit"),
    *("cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2", "cuDevicePrimaryCtxGetState"),
    *("cuDeviceGetCount", "cuDeviceGetUuid", "cuDeviceGetUuid_v2", "cuModuleGetLoadingMode"),
    *("cuGetProcAddress", "cuGetProcAddress_v2", "cuThreadExchangeStreamCaptureMode"),
    *("cuStreamGetCtx", "cuStreamIsCapturing", "cuPointerGetAttribute"),
}
"""They read or set what belongs to the thread or to a handle, in no stream's order, and programs
make them while they capture: PyTorch's allocator and dispatcher do with most of them."""

FUNCTION = re.compile(
    r"^(?!typedef|enum|struct [^(]*\{|#)((?:static |inline |NOT_INLINE )*)"
    r"[A-Za-z_][^;{}()=]*?\**\b(\w+)\(([^;{}]*)\)\s*\n\{\n(.*?)^\}",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Function:
    file: Path
    name: str
    private: bool
    body: str

    def __str__(self) -> str:
        return f"{self.file.name}: {self.name}"

    def is_relaxed(self, position: int) -> bool:
        """Whether what stands there lies between begin and end, or in OWN_CALL()."""
        before = self.body[:position]
        inside = before.count("own_calls_begin(") > before.count("own_calls_end(")
        return inside or re.search(r"OWN_CALL\([^;]*$", before) is not None


def functions(folder: Path) -> Iterator[Function]:
    for file in sorted([*folder.rglob("*.c"), *folder.rglob("*.h")]):
        text = re.sub(r"/\*.*?\*/", "", file.read_text(), flags=re.DOTALL)
        for found in FUNCTION.finditer(text):
            private = "static" in found[1] and file.suffix == ".c"
            yield Function(file, found[2], private, found[4])


class Calls:
    """Which function calls which in these sources."""

    def __init__(self, folder: Path) -> None:
        self.functions = list(functions(folder))

    def callers(self, of: Function) -> Iterator[tuple[Function, bool]]:
        """Functions that call it, and whether they do in the relaxed mode. One that is handed to
        another function is called by that one."""
        for caller in self.functions:
            if caller == of or (of.private and caller.file != of.file):
                continue
            for found in re.finditer(rf"\b{of.name}\b", caller.body):
                yield caller, caller.is_relaxed(found.start()) or self._is_handed_on(caller, found)

    def _is_handed_on(self, caller: Function, found: re.Match[str]) -> bool:
        taker = re.search(r"(\w+)\([^()]*$", caller.body[: found.start()])
        return (
            taker is not None
            and caller.body[found.end()] != "("
            and any(
                one.name == taker[1] and "own_calls_begin(" in one.body for one in self.functions
            )
        )

    def offences(self) -> list[str]:
        return sorted(
            f"{function} calls {name[1]}"
            for function in self.functions
            for name in re.finditer(r"REAL\((\w+)\)", function.body)
            if name[1] not in READERS
            and not function.is_relaxed(name.start())
            and not self._is_settled(function, name[1], frozenset())
        )

    def _is_settled(self, function: Function, hooked: str, seen: frozenset[Function]) -> bool:
        if function.name == hooked:
            return True
        callers = list(self.callers(function))
        return callers != [] and all(
            relaxed or caller in seen or self._is_settled(caller, hooked, seen | {function})
            for caller, relaxed in callers
        )


def test_every_call_of_our_own_to_the_driver_is_made_in_the_relaxed_capture_mode() -> None:
    assert Calls(SHIM).offences() == []


def test_a_call_of_the_hooked_function_itself_is_made_in_the_programs_mode() -> None:
    relaxed = [
        f"{function} calls {name[1]}"
        for function in functions(SHIM)
        for name in re.finditer(r"REAL\((\w+)\)", function.body)
        if function.name == name[1] and function.is_relaxed(name.start())
    ]

    assert relaxed == []


def test_a_generated_hook_calls_its_own_function_alone(tmp_path: Path) -> None:
    load("generate").generate(tmp_path)

    found = list(functions(tmp_path))

    assert len(found) > 50
    for function in found:
        own = function.name.removeprefix("first_")  # which looks it up
        assert set(re.findall(r"REAL\((\w+)\)", function.body)) <= {own}


HOOK = """
static int ask(void)
{{
    return REAL(cuMemPoolGetAttribute)();
}}

int cuMemAllocAsync(void)
{{
    {before}
    int result = ask();
    {after}
    return result + REAL(cuMemAllocAsync)();
}}
"""


@pytest.mark.parametrize(
    ("before", "after", "offences"),
    [
        ("", "", ["hook.c: ask calls cuMemPoolGetAttribute"]),
        ("int mode = own_calls_begin();", "own_calls_end(mode);", []),
        ("own_calls_end(own_calls_begin());", "", ["hook.c: ask calls cuMemPoolGetAttribute"]),
    ],
)
def test_the_rule_finds_a_call_that_lies_a_function_away(
    tmp_path: Path, before: str, after: str, offences: list[str]
) -> None:
    (tmp_path / "hook.c").write_text(HOOK.format(before=before, after=after))

    assert Calls(tmp_path).offences() == offences
