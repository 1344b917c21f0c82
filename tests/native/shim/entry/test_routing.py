"""cuGetProcAddress through the shim: exactly the variant a real 555 driver was recorded to give.

The answers of the real driver are in recorded/; behind the shim is the simulated driver, so that
what is not hooked must be that library's own function, and what is must be the shim's of that name.
"""

import bisect
import json
import random
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from driver_libraries import lay_out

from tests.native.table.hook_table import hooked, recorded
from vcuda_shim import SIMULATED_DRIVER

FOUND, UNKNOWN, TOO_OLD = 0, 1, 2
NOT_FOUND, INVALID = 500, 1

ASKER = """
import ctypes, json, sys
shim, real = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL("libvcuda-real.so.1")
u64 = ctypes.c_uint64

def address(library, name):
    return ctypes.cast(getattr(library, name), ctypes.c_void_p).value

def new(function, name, version, flags):
    entry, status = ctypes.c_void_p(7), ctypes.c_int(-1)
    code = function(name.encode(), ctypes.byref(entry), version, u64(flags), ctypes.byref(status))
    bare = ctypes.c_void_p(7)
    assert function(name.encode(), ctypes.byref(bare), version, u64(flags), None) == code
    assert bare.value == entry.value
    return code, entry.value, status.value

def old(function, name, version, flags):
    entry = ctypes.c_void_p(7)
    return function(name.encode(), ctypes.byref(entry), version, u64(flags)), entry.value

def itself(form, version, parameters):
    found = form(version)
    return ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int, u64,
                            *parameters)(found)

second = itself(lambda v: new(shim.cuGetProcAddress_v2, "cuGetProcAddress", v, 0)[1], 12000,
                [ctypes.c_void_p])
first = itself(lambda v: old(shim.cuGetProcAddress, "cuGetProcAddress", v, 0)[1], 11030, [])
for line in sys.stdin:
    asked, names = json.loads(line)
    print(json.dumps({
        "v2": [new(shim.cuGetProcAddress_v2, *words) for words in asked],
        "v2 from itself": [new(second, *words) for words in asked],
        "v1": [old(shim.cuGetProcAddress, *words) for words in asked],
        "v1 from itself": [old(first, *words) for words in asked],
        "shim": {name: address(shim, name) for name in names},
        "real": {name: address(real, name) for name in names},
    }), flush=True)
"""


class Recorded:
    """What the real driver answered, by base name and whether the per-thread flag was set."""

    def __init__(self) -> None:
        self._steps: dict[tuple[str, bool], list[tuple[int, str]]] = defaultdict(list)
        for base, flags, since, symbol in recorded("cuGetProcAddress-555.58.02"):
            self._steps[base, flags == "2"].append((int(since), symbol))
        for steps in self._steps.values():
            steps.sort()
        self.bases = sorted({base for base, _ in self._steps})

    def transitions(self) -> Iterator[tuple[str, int, int, str]]:
        for (base, per_thread), steps in self._steps.items():
            yield from ((base, since, 2 if per_thread else 0, symbol) for since, symbol in steps)

    def versions(self, base: str) -> set[int]:
        """Those at which an answer changes, and their neighbours."""
        starts = {since for flag in (False, True) for since, _ in self._steps[base, flag]}
        return {since + step for since in starts for step in (-1, 0, 1)}

    def answer(self, base: str, version: int, flags: int) -> str | None:
        steps = self._steps[base, bool(flags & 2)]
        place = bisect.bisect_right(steps, version, key=lambda step: step[0])
        return steps[place - 1][1] if place else None


class Asker:
    """A program that asks through the shim."""

    def __init__(self, libraries: Path) -> None:
        environment = {"LD_LIBRARY_PATH": str(libraries), "PATH": "/usr/bin:/bin"}
        self._process = subprocess.Popen(
            [sys.executable, "-c", ASKER],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __call__(self, asked: list[tuple[str, int, int]], names: list[str]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([asked, names]) + "\n")
        self._process.stdin.flush()
        answers: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answers

    def close(self) -> None:
        self._process.communicate(timeout=300)


def differences(asked: list[Any], told: list[Any], expected: list[Any]) -> list[Any]:
    rows = zip(asked, told, expected, strict=True)
    return [(question, got, right) for question, got, right in rows if got != right]


@pytest.fixture(scope="module")
def driver() -> Recorded:
    return Recorded()


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    (cuda,) = SIMULATED_DRIVER.glob("libcuda.so.*")
    (nvml,) = SIMULATED_DRIVER.glob("libnvidia-ml.so.*")
    return lay_out(tmp_path_factory.mktemp("routing") / "lib", cuda, nvml)


@pytest.fixture(scope="module")
def ask(libraries: Path) -> Iterator[Asker]:
    asker = Asker(libraries)
    yield asker
    asker.close()


def test_the_recorded_table_is_whole(driver: Recorded) -> None:
    assert len(list(driver.transitions())) == 1058


@pytest.mark.parametrize("flags", [0, 1, 2, 3])
def test_each_name_at_each_version_gives_the_recorded_variant_in_every_form(
    driver: Recorded, ask: Asker, flags: int
) -> None:
    dice = random.Random(flags)
    more = [0, 1, 12050, 13000, 99000, *(dice.randrange(1000, 14000) for _ in range(4))]
    asked = [
        (base, version, flags)
        for base in driver.bases
        for version in sorted({*driver.versions(base), *more})
    ]
    expected = [driver.answer(*question) for question in asked]
    names = sorted({symbol for symbol in expected if symbol is not None})

    told = ask(asked, names)

    shim = told["shim"]
    pointers = [None if symbol is None else shim[symbol] for symbol in expected]
    newer = [[0, at, TOO_OLD if at is None else FOUND] for at in pointers]
    older = [[NOT_FOUND if at is None else 0, at] for at in pointers]
    assert differences(asked, told["v2"], newer) == []
    assert differences(asked, told["v2 from itself"], newer) == []
    assert differences(asked, told["v1"], older) == []
    assert differences(asked, told["v1 from itself"], older) == []


def test_every_transition_leads_to_the_hook_of_that_name_or_to_the_drivers_own(
    driver: Recorded, ask: Asker
) -> None:
    ours = set(hooked("cuda"))
    steps = list(driver.transitions())

    told = ask([step[:3] for step in steps], sorted({step[3] for step in steps}))

    found = {step[3]: answer[1] for step, answer in zip(steps, told["v2"], strict=True)}
    assert found == {step[3]: told["shim"][step[3]] for step in steps}
    differing = {symbol for symbol, at in found.items() if at != told["real"][symbol]}
    assert differing == ours & set(found)


@pytest.mark.parametrize(
    ("name", "version", "status"),
    [
        ("", 0, UNKNOWN),
        ("cuNoSuchFunction", 12050, UNKNOWN),
        ("cuMemAlloc_v2", 12050, UNKNOWN),
        ("cuLaunchKernel_ptsz", 12050, UNKNOWN),
        ("cuMemAllocAsync", 11010, TOO_OLD),
        ("cuGetProcAddress", 11000, TOO_OLD),
    ],
)
def test_what_is_not_found_is_null_in_every_form(
    ask: Asker, name: str, version: int, status: int
) -> None:
    told = ask([(name, version, 0), (name, version, 2)], [])

    assert told["v2"] == told["v2 from itself"] == [[0, None, status]] * 2
    assert told["v1"] == told["v1 from itself"] == [[NOT_FOUND, None]] * 2


def test_unknown_flags_are_refused_as_the_driver_does(ask: Asker) -> None:
    told = ask([("cuInit", 12050, 0x100), ("cuMemAlloc", 12050, 0x102)], [])

    assert told["v2"] == [[INVALID, None, -1]] * 2
    assert told["v1"] == [[INVALID, None]] * 2


def test_a_null_name_is_the_drivers_to_judge(libraries: Path) -> None:
    script = """
import ctypes
for name in ("libcuda.so.1", "libvcuda-real.so.1"):
    entry = ctypes.c_void_p(7)
    print(ctypes.CDLL(name).cuGetProcAddress_v2(None, ctypes.byref(entry), 12050, 0, None),
          entry.value)
"""
    environment = {"LD_LIBRARY_PATH": str(libraries), "PATH": "/usr/bin:/bin"}
    finished = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )

    through, direct = finished.stdout.splitlines()
    assert through == direct
