"""The suites of others that must end alike bare and behind the shim, and how they are compared."""

import json
import re
import signal
import sys
import sysconfig
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from gpumanager.units import GIB
from tests.clients import sources
from tests.clients.client_box import ClientBox

INSIDE: Final = Path(__file__).with_name("inside")
LIMIT: Final = 12 * GIB
"""Of 16: more than any of these tests takes, so that none may notice."""

CORES: Final = 60
"""Below 100, so that launches go through the shim."""

CRASHES: Final = 200
TRIES: Final = 3
ALARM: Final = 128 + signal.SIGALRM


@dataclass(frozen=True, slots=True)
class Plan:
    """How a suite's tests are run in a container."""

    command: tuple[str, ...]
    directory: Path
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Suite:
    """ran, passed: at least so many, bare: the counts of docs/clients.md, less what is unsteady.

    launches: as many kernels must reach the driver. seconds, test_seconds: bounds for all of it and
    for one test, on a busy machine.
    unsteady: tests (patterns) that now and then end otherwise without any shim, and why; they are
    run again alone. by_design: tests that answer otherwise behind a limit, and why.
    """

    name: str
    tests: str
    plan: Callable[[], Plan]
    ran: int
    passed: int
    launches: bool = False
    gpus: int = 1
    seconds: float = 600.0
    test_seconds: int = 120
    quick: bool = True
    unsteady: Mapping[str, str] = field(default_factory=dict)
    by_design: Mapping[str, str] = field(default_factory=dict)


End = tuple[str, str]
"""A test's outcome, and what it said of it: errors, or an answer."""
Ends = dict[str, End]
MISSING: Final = ("missing", "")
"""Where a test is on the other side only."""


async def ends_of(
    clients: ClientBox, suite: Suite, plan: Plan, limit: int | None, only: Sequence[str] = ()
) -> Ends:
    """Run it. Where a test ends the process, it has crashed, and those behind it are run then."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "ends"
        file.touch()
        environment = {
            **plan.environment,
            "CLIENT_ENDS": str(file),
            "CLIENT_ONLY": json.dumps(only),
            "CLIENT_SECONDS": str(suite.test_seconds),
            "PYTHONPATH": f"{INSIDE}:{plan.environment.get('PYTHONPATH', '')}",
        }
        ends: Ends = {}
        for _ in range(CRASHES):
            finished = await clients.run(
                *plan.command,
                limit=limit,
                cores=CORES,
                environment=environment,
                directory=plan.directory,
                seconds=suite.seconds,
            )
            rows = [json.loads(line) for line in file.read_text().splitlines()]
            ends = {row[0]: (row[1], row[2]) for row in rows if len(row) == 3}
            begun = [row[0] for row in rows if row[0] not in ends]
            if not begun:
                break
            how = "hung" if finished.status == ALARM else "crashed"
            with file.open("a") as dead:
                dead.write(json.dumps([begun[-1], how, f"{finished.status}"]) + "\n")
        assert ends or only, finished.text
        return ends


def matches(patterns: Mapping[str, str], test: str) -> bool:
    return any(re.search(pattern, test) for pattern in patterns)


@dataclass(frozen=True, slots=True)
class Compared:
    """unlike: what ended otherwise behind the shim, though nothing says that it may; bare, behind.

    unsteady: what differed at first, and was alike when run alone. launches: of both.
    """

    bare: Ends
    behind: Ends
    unsteady: Sequence[str]
    by_design: Sequence[str]
    unlike: Mapping[str, tuple[End, End]]
    launches: tuple[int, int]

    @property
    def counts(self) -> tuple[Counter[str], Counter[str]]:
        return (
            Counter(outcome for outcome, _ in self.bare.values()),
            Counter(outcome for outcome, _ in self.behind.values()),
        )


async def compare(clients: ClientBox, suite: Suite, plan: Plan) -> Compared:
    bare = await ends_of(clients, suite, plan, None)
    launches = sum(account.launches for account in clients.accounts())
    behind = await ends_of(clients, suite, plan, LIMIT)
    launches_behind = sum(account.launches for account in clients.accounts()) - launches
    ends = {
        name: (bare.get(name, MISSING), behind.get(name, MISSING))
        for name in sorted(bare.keys() | behind.keys())
    }
    found = [name for name, (one, other) in ends.items() if one != other]
    by_design = [n for n in found if MISSING not in ends[n] and matches(suite.by_design, n)]
    rest = [name for name in found if name not in by_design]
    hung = {name for name in rest if "hung" in (end[0] for end in ends[name])}
    unsteady = [name for name in rest if name in hung or matches(suite.unsteady, name)]
    settled = [name for name in unsteady if await _ends_alike_alone(clients, suite, plan, name)]
    unlike = {name: ends[name] for name in rest if name not in settled}
    launched = (launches, launches_behind)
    return Compared(bare, behind, settled, by_design, unlike, launched)


async def _ends_alike_alone(clients: ClientBox, suite: Suite, plan: Plan, test: str) -> bool:
    """Whether one of some tries ends as one of the other side's did."""
    bare, behind = set(), set()
    for _ in range(TRIES):
        bare.add((await ends_of(clients, suite, plan, None, (test,))).get(test))
        behind.add((await ends_of(clients, suite, plan, LIMIT, (test,))).get(test))
        if bare & behind - {None}:
            return True
    return False


def pytest_plan(directory: Path, *tests: str, path: Path | None = None) -> Plan:
    """path: where the package is whose tests these are, if it is not installed."""
    command = (
        *(sys.executable, "-m", "pytest", "-q", "--tb=line", "-W", "ignore"),
        "--continue-on-collection-errors",
        *("-c", str(INSIDE / "pytest.ini"), f"--rootdir={directory}"),
        *("-p", "each_end", "-p", "no:cacheprovider", "-p", "no:asyncio"),
    )
    environment = {} if path is None else {"PYTHONPATH": str(path)}
    return Plan((*command, *tests), directory, environment)


def pycuda() -> Plan:
    folder = sources.built("pycuda-2026.1", sources.pycuda)
    return pytest_plan(folder / "pycuda-2026.1" / "test", ".", path=folder / "installed")


def pynvml() -> Plan:
    source = sources.built("pynvml-13.0.1", sources.pynvml) / "pynvml-13.0.1"
    return pytest_plan(source, "pynvml_utils/tests", path=source)


def tinygrad() -> Plan:
    source = sources.built("tinygrad-0.14.0", sources.tinygrad) / "tinygrad-0.14.0"
    plan = pytest_plan(source, "test/test_tiny.py")
    return replace(plan, environment={**plan.environment, "DEV": "CUDA"})


def cuda_core() -> Plan:
    return pytest_plan(INSIDE, "core_members.py")


def numba(*parts: str) -> Callable[[], Plan]:
    """The package brings them along; it takes its place in `numba` itself, so none of its folders
    may come before numba's on the path."""
    root = Path(sysconfig.get_path("purelib")) / "numba_cuda"
    folders = [f"numba/cuda/tests/{part}" for part in parts]
    return lambda: pytest_plan(root, "-p", "numba_fixture", "--import-mode=importlib", *folders)


def numba_by_ctypes() -> Plan:
    """Without this environment's packages: there numba-cuda takes the place of numba's CUDA."""
    folder = sources.built("numba-0.61.2", sources.numba)
    python, *words = (plan := pytest_plan(folder, "numba/cuda/tests/cudadrv", path=folder)).command
    return replace(plan, command=(python, "-S", *words))


def alone(kind: str, *programs: Path) -> tuple[str, ...]:
    script = INSIDE / "each_alone.py"
    return (sys.executable, str(script), kind, *(str(program) for program in programs))


def go(program: str, module: str, package: str = ".") -> Callable[[], Plan]:
    """Tests read files beside their sources."""

    def plan() -> Plan:
        folder = sources.built("go", sources.go)
        directory = sources.go_sources(module) / package
        return Plan(alone("go", folder / f"{program}.test"), directory)

    return plan


def go_examples() -> Plan:
    folder = sources.built("go", sources.go)
    return Plan(alone("plain", *(folder / name for name in sources.EXAMPLES)), folder)


def go_methods() -> Plan:
    folder = sources.built("go", sources.go)
    return Plan((str(folder / "methods"),), folder)


def crate(name: str, version: str, sha256: str, features: str = "") -> Callable[[], Plan]:
    def plan() -> Plan:
        build = sources.crate(name, version, sha256, features)
        folder = sources.built(f"{name}-{version}", build)
        nvrtc = {"LD_LIBRARY_PATH": str(sources.NVIDIA / "cuda_nvrtc" / "lib")}
        return Plan(alone("rust", folder / "tests"), folder / name, nvrtc)

    return plan


SUITES: Final = (
    Suite(
        "pycuda 2026.1",
        "test_driver, test_gpuarray, test_cumath",
        pycuda,
        ran=319,
        passed=24,
        unsteady={
            "test_jit_link_module|test_recursive_launch": "where linking fails, pycuda reads a log "
            "that nobody wrote: its bytes are sometimes text, sometimes not",
        },
    ),
    Suite("pynvml 13.0.1", "pynvml_utils", pynvml, ran=45, passed=22),
    Suite(
        "go-nvml 0.13.4-1",
        "tests of pkg/nvml",
        go("nvml", "github.com/NVIDIA/go-nvml", "pkg/nvml"),
        ran=15,
        passed=13,
    ),
    Suite("go-nvml 0.13.4-1", "examples", go_examples, ran=3, passed=2),
    Suite(
        "go-nvml 0.13.4-1",
        "every method of a device without arguments, and its answer",
        go_methods,
        ran=146,
        passed=62,
        by_design={
            r"^GetMemoryInfo(_v2)?$": "the limit and what the container holds",
            "Processes$": "the container's own",
        },
    ),
    Suite(
        "gorgonia.org/cu 0.9.6",
        "tests",
        go("cu", "gorgonia.org/cu"),
        ran=26,
        passed=15,
        test_seconds=30,
        unsteady={
            "^Test(Array|CUContext|DevicePtr_AddressRange|JIT|Malloc|MemInfo|Memcpy|MemcpyAsync|Memset"
            "|Module|MultipleContextSingleHostThread)$": "makes a context on one thread, and "
            "goes on where Go's scheduler puts it: now and then on a thread without one",
        },
    ),
    Suite(
        "cudarc 0.19.10",
        "library tests: driver, nvrtc",
        crate(
            "cudarc",
            "0.19.10",
            "7359bf1de037ddada72729c3acec9b040f3468400c6e9e740b01ba0cd2e89562",
            "std,driver,nvrtc,cuda-12050,fallback-dynamic-loading",
        ),
        ran=57,
        passed=42,
        unsteady={
            "launch::tests::test_multi_stream_concurrent_reads$": "the second kernel must begin "
            "while the first runs, which takes 9 us: not so where the thread is preempted between",
            "core::tests::test_(pinned_copy_is|default_pinned_host_reads_are)_faster": "compares "
            "how long a few copies take on the host, by its clock",
        },
        by_design={
            "launch::tests::test_par_launch$": "compares events around kernels of 9 us; the first "
            "launch under a compute share comes 0.7 ms later, once",
        },
    ),
    Suite(
        "nvml-wrapper 0.13.0",
        "library tests",
        crate(
            "nvml-wrapper",
            "0.13.0",
            "d164abbde0b3c03edb9edb9cb8d31a7f5b79015c692b7c771f6e0840e9106b9f",
        ),
        ran=206,
        passed=77,
    ),
    Suite(
        "cuda.core 1.2.2",
        "every public member of every class (tests of ours)",
        cuda_core,
        ran=832,
        passed=710,
        gpus=2,
        launches=True,
    ),
    Suite("tinygrad 0.14.0", "test_tiny", tinygrad, ran=21, passed=4, launches=True),
    Suite("numba 0.61.2", "cudadrv", numba_by_ctypes, ran=235, passed=168, launches=True),
    Suite("numba-cuda 0.30.4", "cudadrv", numba("cudadrv"), ran=267, passed=208, launches=True),
    Suite(
        "numba-cuda 0.30.4",
        "nrt, core, nocuda, doc_examples",
        numba("nrt", "core", "nocuda", "doc_examples"),
        ran=110,
        passed=78,
        quick=False,
        seconds=1800,
    ),
    Suite(
        "numba-cuda 0.30.4",
        "cudapy",
        numba("cudapy"),
        ran=1654,
        passed=830,
        quick=False,
        seconds=5400,
    ),
)
