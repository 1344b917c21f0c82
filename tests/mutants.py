"""Seed faults in a package, and print those that its tests do not find.

    make mutants                                     # all packages, 100 mutants each: hours
    python -m tests.mutants grants                   # one package
    python -m tests.mutants native/shim              # one of C
    python -m tests.mutants grants --module ledger --number 30 --seed 2
    python -m tests.mutants grants --out before.json
    python -m tests.mutants grants --against before.json   # are those killed before still killed?

A mutant is the package with one expression changed: a comparison or an if-expression turned round,
`and` for `or`, a `not` gone, `-` for `+`, `&` for `|`, another bool or int. The tests in the
package's row of JUDGES are run on it. If they stay green, the mutant survives: a rule of the
package has no test, or the expression does nothing. What cannot change a decision is not mutated:
annotations, decorators, patterns, the wording of messages, and lines marked `pragma: no cover`.
C has the same mutants, see tests/native/mutants.py.

All chosen mutants are written into one copy of the tree, each behind a switch. The tests are
collected once, and run once with all switches off, to see which test reaches which mutant. Then
each mutant has a forked process of its own, in which the tests that reach it run with its switch
on, until one fails. A mutant that is reached while modules are imported has a new Python instead.

The exit status is 0 if no mutant survives (with --against: none that was killed before), 1 if one
does, 2 if no judgement is possible.
"""

import argparse
import ast
import copy
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final, cast

import pytest

from tests.native import mutants as native

ROOT: Final = Path(__file__).parents[1]
PYTEST: Final = (
    *(sys.executable, "-m", "pytest", "-q", "-s", "--tb=short", "-p", "no:cacheprovider"),
    *("-p", "tests.mutants"),
)
SURVIVED: Final = "survives"
UNREACHED: Final = "not reached"
LEAST_TIMEOUT: Final = 60.0
"""Seconds that tests may take on a mutant; more where they take long without one."""

JUDGES: Final[Mapping[str, Sequence[str]]] = {
    name: tuple(f"tests/{one}" for one in tests.split())
    for name, tests in {
        "agent": "cli recovery crashes histories",
        "cli": "cli sim/node",
        "compute": "compute limits",
        "deviceplugin": "deviceplugin recovery",
        "doctor": "doctor cli",
        "dra": "dra contracts",
        "gpu": "gpu contracts",
        "grants": "grants deviceplugin recovery",
        "isolation": "isolation deviceplugin",
        "kube": "kube contracts",
        "kubelet": "kubelet contracts",
        "legacy": "legacy",
        "limits": "limits contracts",
        "monitor": "monitor dashboards",
        "node_status": "node_status",
        "placement": "placement",
        "runtime": "runtime contracts",
        "scheduler": "scheduler",
        "sim": "sim contracts",
        "view": "view web",
        "volume": "volume",
        "native/arbiter": "native/arbiter",
        "native/shim": "native/core native/shim limits/pages",
        "native/sim": "native/sim",
    }.items()
}
"""The packages of `gpumanager`, those of C, and the tests that judge each."""

EQUIVALENT: Final[Mapping[str, Mapping[str, str]]] = {
    "gpumanager/deviceplugin/admission/decision.py": {
        "1 if not request.whole_gpus else 0  →  1 if not request.whole_gpus else 1": (
            "every GPU has a block of memory"
        ),
        "default=0  →  default=1": "a node without GPUs has no device IDs to allocate",
    },
    "gpumanager/deviceplugin/admission/tracker.py": {
        "False  →  True": "whether a call is repeated means nothing to `apart`; others say it",
        "secrets.token_hex(8)  →  secrets.token_hex(9)": "a longer name is as good",
    },
    "gpumanager/deviceplugin/admission/transaction.py": {
        "lambda _: True  →  lambda _: False": "where no candidate fits all stay, as where all fit",
        "open_.sizes.get(VCORE, 0)  →  open_.sizes.get(VCORE, 1)": "neither is a whole GPU",
    },
    "gpumanager/grants/journal_text.py": {
        "1 << 20  →  2 << 20": "a bound on damage; another is as good",
    },
    "gpumanager/grants/journal_file.py": {
        "self._used = 0  →  self._used = 1": "set when a file is opened",
        "self._size = 0  →  self._size = 1": "set when a file is opened",
    },
    "gpumanager/grants/grant.py": {
        "compare=False  →  compare=True": "the IDs follow from the source, which is compared",
    },
    "gpumanager/dra/plan.py": {
        "Share(CORES_PER_GPU, 0)  →  Share(CORES_PER_GPU, 1)": "isolation goes by cores alone",
    },
}
"""Changes that no test can find, and why."""

_PAIRS: Final[Sequence[tuple[type[ast.AST], type[ast.AST]]]] = (
    *((ast.Lt, ast.GtE), (ast.Gt, ast.LtE), (ast.Eq, ast.NotEq), (ast.In, ast.NotIn)),
    *((ast.Is, ast.IsNot), (ast.And, ast.Or), (ast.Add, ast.Sub), (ast.BitOr, ast.BitAnd)),
)
OTHER: Final = {one: other for pair in _PAIRS for one, other in (pair, pair[::-1])}
NOT_MUTATED: Final = frozenset({"annotation", "returns", "decorator_list", "pattern"})
"""Fields of syntax nodes."""
IDLE_ARGUMENTS: Final = frozenset({"frozen", "slots", "kw_only", "repr", "strict"})
"""Arguments that guard against mistakes of programmers, or are for debuggers."""

SWITCH: Final = '''"""Which mutant is on, and which ones are reached."""

import os

ACTIVE = int(os.environ.get("MUTANT", "-1"))
REACHED: set[int] = set()


def on(number: int) -> bool:
    if number not in REACHED:
        REACHED.add(number)
        if log := os.environ.get("MUTANTS_REACHED"):
            with open(log, "a") as file:
                file.write(f"{number}\\n")
    return number == ACTIVE


def activate(number: int) -> None:
    global ACTIVE
    ACTIVE = number


def forget() -> None:
    REACHED.clear()
    open(os.environ["MUTANTS_REACHED"], "w").close()


def reached() -> set[int]:
    """By this process and those that it started."""
    with open(os.environ["MUTANTS_REACHED"]) as log:
        return set(map(int, log))
'''


class NotJudged(Exception):
    """The tests cannot tell anything about mutants."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of a module. before, after: the expression, or what holds it if it is short."""

    module: str
    line: int
    before: str
    after: str
    position: int
    """The how-manyth expression of the module that can be changed."""

    @property
    def change(self) -> str:
        return f"{self.before}  →  {self.after}"

    def __str__(self) -> str:
        return f"{self.module}:{self.line}: [{self.position}] {self.change}"


def mutants_of(source: str, module: str = "") -> list[Mutant]:
    """All mutants of a module, from its first line to its last."""
    if _is_native(module):
        text = native.Source(source)
        return [
            Mutant(module, text.line(one), one.before, one.after, position)
            for position, one in enumerate(text.places)
        ]
    found = []
    for position, (parent, node) in enumerate(_places(ast.parse(source), source.splitlines())):
        # `0` alone says nothing to a reader; all parameters of a function are too much.
        around = isinstance(node, ast.Constant) and not isinstance(parent, ast.arguments)
        outer, changed = (parent if around else node), _changed(node)
        after = ast.unparse(copy.deepcopy(outer, {id(node): changed}))
        found.append(Mutant(module, node.lineno, ast.unparse(outer), after, position))
    return found


def with_switches(source: str, numbers: Mapping[int, int]) -> str:
    """The module with each mutant at position P behind the switch numbers[P]."""
    tree = ast.parse(source)
    places = [node for _, node in _places(tree, source.splitlines())]
    nodes = {id(places[position]): number for position, number in numbers.items()}
    swapped = _Switches(nodes).visit(tree)
    at = 1 if ast.get_docstring(swapped) else 0
    while isinstance(one := swapped.body[at], ast.ImportFrom) and one.module == "__future__":
        at += 1
    swapped.body.insert(at, ast.Import([ast.alias("seeded_mutants")]))
    return ast.unparse(ast.fix_missing_locations(swapped))


class _Switches(ast.NodeTransformer):
    """`E` becomes `E' if on(number) else E`; `a += b` an if-statement."""

    def __init__(self, numbers: Mapping[int, int]) -> None:
        self._numbers = numbers

    def visit(self, node: ast.AST) -> Any:
        number = self._numbers.get(id(node))
        self.generic_visit(node)
        if number is None:
            return node
        test = ast.parse(f"seeded_mutants.on({number})", mode="eval").body
        changed: Any = _changed(node)
        if isinstance(node, ast.AugAssign):
            return ast.If(test, [changed], [node])
        return ast.IfExp(test, changed, cast(ast.expr, node))


def _places(tree: ast.AST, lines: Sequence[str]) -> list[tuple[ast.AST, ast.expr | ast.AugAssign]]:
    """The expressions below `tree` that can be changed, each with the node that holds it."""
    return [
        (parent, node)
        for parent, node in _nodes(tree, lines)
        if isinstance(node, (ast.expr, ast.AugAssign)) and _changed(node) is not None
    ]


def _nodes(parent: ast.AST, lines: Sequence[str]) -> Iterator[tuple[ast.AST, ast.AST]]:
    for name, value in ast.iter_fields(parent):
        for child in value if isinstance(value, list) else [value]:
            if name in NOT_MUTATED or not isinstance(child, ast.AST) or _is_idle(child, lines):
                continue
            yield parent, child
            yield from _nodes(child, lines)


def _is_idle(node: ast.AST, lines: Sequence[str]) -> bool:
    match node:
        case ast.JoinedStr():
            return True
        case ast.keyword(arg=name):
            return name in IDLE_ARGUMENTS
        case ast.stmt(lineno=line):
            return "pragma: no cover" in lines[line - 1]
    return False


def _changed(node: ast.AST) -> Any:
    """The other expression, or statement, that a mutant has; None where there is none."""
    match node:
        case ast.Compare(ops=[op]) if type(op) in OTHER:
            return _with(node, ops=[OTHER[type(op)]()])
        case ast.BoolOp(op=op) | ast.BinOp(op=op) | ast.AugAssign(op=op) if type(op) in OTHER:
            return _with(node, op=OTHER[type(op)]())
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return operand
        case ast.IfExp(body=body, orelse=orelse):
            return _with(node, body=orelse, orelse=body)
        case ast.Constant(value=bool(value) | int(value)):
            return _with(node, value=not value if isinstance(value, bool) else value + 1)
    return None


def _with(node: ast.AST, **fields: object) -> ast.AST:
    changed = copy.copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed


def choose(sources: Mapping[str, str], number: int, seed: int) -> list[Mutant]:
    """Some of the mutants of these modules; the same ones for the same sources and seed."""
    found = [
        mutant
        for module, source in sorted(sources.items())
        for mutant in mutants_of(source, module)
        if mutant.change not in EQUIVALENT.get(module, {})
    ]
    chosen = random.Random(f"{seed} {' '.join(sorted(sources))}").sample(
        found, min(number, len(found))
    )
    return sorted(chosen, key=lambda mutant: (mutant.module, mutant.position))


def judge(
    tree: Path,
    mutants: Sequence[Mutant],
    tests: Sequence[str],
    *,
    jobs: int = 1,
    seconds: float = 60,
) -> dict[Mutant, str]:
    """Run the tests on each mutant; return for each the test that fails, UNREACHED or SURVIVED.

    Leaves out those that do not compile. Changes `tree`, a copy of the checkout. jobs: processes
    side by side, one for mutants of C. seconds: how long the tests of one mutant may take together;
    the quickest ones are taken. Raises NotJudged where no test passes without a mutant.
    """
    written = _write(tree, mutants)
    # The plugin below finds all it needs in these files.
    work = tree / "mutants"
    work.mkdir()
    (work / "asked").write_text(json.dumps([len(mutants), jobs, seconds]))
    own = {"PYTHONPATH": str(tree), "GRPC_ENABLE_FORK_SUPPORT": "0"}
    done = subprocess.run(
        [*PYTEST, *tests],
        cwd=tree,
        env=os.environ | own,
        capture_output=True,
        text=True,
        check=False,
    )
    if not (work / "verdicts").exists():
        output = (done.stdout + done.stderr)[-2000:]
        raise NotJudged(f"no test of {' '.join(tests)} passes without a mutant:\n{output}")
    verdicts = zip(mutants, json.loads((work / "verdicts").read_text()), strict=True)
    return {one: verdict for at, (one, verdict) in enumerate(verdicts) if at in written}


def _write(tree: Path, mutants: Sequence[Mutant]) -> set[int]:
    """Each mutant behind the switch of its number; returns the numbers of those written."""
    modules = {mutant.module for mutant in mutants}
    numbers: dict[str, dict[int, int]] = {
        module: {one.position: at for at, one in enumerate(mutants) if one.module == module}
        for module in modules
    }
    if all(map(_is_native, modules)):
        return native.write(tree, numbers)
    (tree / "seeded_mutants.py").write_text(SWITCH)
    for module in modules:
        path = tree / module
        path.write_text(with_switches(path.read_text(), numbers[module]))
    return set(range(len(mutants)))


def _is_native(module: str) -> bool:
    return module.endswith((".c", ".h"))


@dataclass(frozen=True, slots=True)
class _Test:
    """A test as it ran without a mutant: how long, and which mutants it reached."""

    item: pytest.Item
    seconds: float
    reached: frozenset[int]


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool:
    """In the copied tree: run the tests on each mutant, each in a process of its own."""
    work = Path("mutants")
    if number := os.environ.get("MUTANT"):
        _run_on(session, work, int(number), json.loads((work / f"tests-{number}").read_text()))
        return True
    number_of, jobs, seconds = json.loads((work / "asked").read_text())
    tests = _without_mutants(session, work)
    if tests:
        verdicts = _Verdicts(session, work, tests, seconds).of(number_of, jobs)
        (work / "verdicts").write_text(json.dumps(verdicts))
    return True


def _without_mutants(session: pytest.Session, work: Path) -> list[_Test]:
    """The tests that pass, run once in a forked process."""
    log, results = work / "reached", work / "results"

    def run_all() -> None:
        os.environ["MUTANTS_REACHED"] = str(log.resolve())
        switches = import_module("seeded_mutants")
        with results.open("w") as file:
            for at in range(len(session.items)):
                switches.forget()
                begun, failed = time.monotonic(), session.testsfailed
                _run(session, at, session.items)
                if session.testsfailed == failed:
                    found = sorted(switches.reached())
                    file.write(json.dumps([at, time.monotonic() - begun, found]) + "\n")

    os.waitpid(_fork(run_all), 0)
    rows = [json.loads(line) for line in results.read_text().splitlines()]
    return [_Test(session.items[at], seconds, frozenset(found)) for at, seconds, found in rows]


@dataclass(frozen=True, slots=True)
class _Verdicts:
    """All mutants, some at a time, each in a forked process in which its tests run."""

    session: pytest.Session
    work: Path
    tests: Sequence[_Test]
    seconds: float

    def of(self, number_of: int, jobs: int) -> list[str]:
        waiting, running = list(range(number_of)), dict[int, tuple[int, float]]()
        verdicts = [UNREACHED] * number_of
        while waiting or running:
            if waiting and len(running) < jobs:
                number = waiting.pop()
                if judges := self._judges(number):
                    deadline = time.monotonic() + max(LEAST_TIMEOUT, 4 * self.seconds)
                    running[self._start(number, judges)] = number, deadline
                continue
            time.sleep(0.01)
            for pid, (number, deadline) in list(running.items()):
                done, _ = os.waitpid(pid, os.WNOHANG)
                if done or time.monotonic() > deadline:
                    verdicts[number] = self._end(pid, number, in_time=bool(done))
                    del running[pid]
        return verdicts

    def _judges(self, number: int) -> list[_Test]:
        """The tests that reach a mutant, by file, those of quick files first."""
        imported = self._is_imported(number)
        judges, left = list[_Test](), self.seconds
        for one in sorted(self.tests, key=lambda test: test.seconds):
            if (imported or number in one.reached) and (left := left - one.seconds) >= 0:
                judges.append(one)
        seconds = Counter[Path]()
        for one in judges:
            seconds[one.item.path] += int(1000 * one.seconds)
        return sorted(judges, key=lambda one: (seconds[one.item.path], one.item.path))

    def _is_imported(self, number: int) -> bool:
        return number in import_module("seeded_mutants").REACHED

    def _start(self, number: int, judges: Sequence[_Test]) -> int:
        names = [one.item.nodeid for one in judges]
        (self.work / f"tests-{number}").write_text(json.dumps(names))

        def start() -> None:
            os.environ["MUTANT"] = str(number)
            if self._is_imported(number):
                files = sorted({name.partition("::")[0] for name in names})
                os.execv(sys.executable, [*PYTEST, *files])
            import_module("seeded_mutants").activate(number)
            _run_on(self.session, self.work, number, names)

        return _fork(start)

    def _end(self, pid: int, number: int, *, in_time: bool) -> str:
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        if not in_time:
            os.waitpid(pid, 0)
            return "no answer in time"
        failed = self.work / f"failed-{number}"
        return failed.read_text() if failed.exists() else "the process ended early"


def _run_on(session: pytest.Session, work: Path, number: int, names: Sequence[str]) -> None:
    failed = work / f"failed-{number}"
    if session.testsfailed:
        failed.write_text("collecting")
        return
    by_name = {item.nodeid: item for item in session.items}
    items = [by_name[name] for name in names]
    for at, item in enumerate(items):
        _run(session, at, items)
        if session.testsfailed:
            failed.write_text(item.nodeid)
            return
    failed.write_text(SURVIVED)


def _run(session: pytest.Session, at: int, items: Sequence[pytest.Item]) -> None:
    following = items[at + 1] if at + 1 < len(items) else None
    session.config.hook.pytest_runtest_protocol(item=items[at], nextitem=following)


def _fork(work: Callable[[], None]) -> int:
    pid = os.fork()
    if pid:
        return pid
    os.setsid()
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    try:
        work()
    finally:
        os._exit(0)


def copy_tree(target: Path) -> None:
    """What the tests need of the checkout, and what was built in it."""
    left = shutil.ignore_patterns(
        ".git", ".venv*", "build", "*.egg-info", ".*_cache", ".hypothesis"
    )
    shutil.copytree(ROOT, target, symlinks=True, ignore=left, dirs_exist_ok=True)


def sources_of(package: str, module: str = "") -> dict[str, str]:
    """The modules of a package that are written by hand, by their path in the tree."""
    is_native = package.startswith("native/")
    folder = ROOT / package if is_native else ROOT / "gpumanager" / package
    paths = [*folder.rglob("*.[ch]")] if is_native else [*folder.rglob("*.py")]
    return {
        str(path.relative_to(ROOT)): path.read_text()
        for path in sorted(paths)
        if module in str(path) and not path.name.endswith("_pb2.py")
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="Mutants that no test finds.")
    parser.add_argument("package", nargs="*", help="packages of gpumanager; default: all")
    parser.add_argument("--module", default="", help="part of a module's path")
    parser.add_argument("--tests", nargs="*", help="other tests than those of JUDGES")
    parser.add_argument("--number", type=int, default=100, help="mutants of each package")
    parser.add_argument("--seed", type=int, default=1, help="another seed, other mutants")
    parser.add_argument("--jobs", type=int, default=2, help="processes side by side")
    parser.add_argument("--seconds", type=float, default=60, help="of tests for one mutant")
    parser.add_argument("--out", type=Path, help="write all verdicts here, as JSON")
    parser.add_argument("--against", type=Path, help="verdicts to compare with")
    asked = parser.parse_args()
    if unknown := set(asked.package) - set(JUDGES):
        parser.error(f"no package {', '.join(sorted(unknown))}; known: {', '.join(JUDGES)}")
    before = json.loads(asked.against.read_text()) if asked.against else {}
    found: dict[str, str] = {}
    print(f"{'package':14}  mutants  killed", flush=True)
    for package in asked.package or JUDGES:
        mutants = choose(sources_of(package, asked.module), asked.number, asked.seed)
        if asked.against:
            mutants = [one for one in mutants if str(one) in before and _killed(before[str(one)])]
        with tempfile.TemporaryDirectory(prefix="mu") as directory:
            copy_tree(Path(directory))
            tests = asked.tests or JUDGES[package]
            try:
                jobs = 1 if package.startswith("native/") else asked.jobs
                verdicts = judge(Path(directory), mutants, tests, jobs=jobs, seconds=asked.seconds)
            except NotJudged as error:
                print(f"mutants: {error}", file=sys.stderr)
                return 2
        alive = [one for one, verdict in verdicts.items() if not _killed(verdict)]
        print(f"{package:14}  {len(verdicts):7}  {len(verdicts) - len(alive):6}")
        for mutant in alive:
            print(f"  {mutant}{'  (not reached)' if verdicts[mutant] == UNREACHED else ''}")
        sys.stdout.flush()
        found |= {str(one): verdict for one, verdict in verdicts.items()}
    if asked.out:
        asked.out.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    return int(not all(map(_killed, found.values())))


def _killed(verdict: str) -> bool:
    return verdict not in (SURVIVED, UNREACHED)


if __name__ == "__main__":
    sys.exit(main())
