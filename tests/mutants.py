"""Seed faults in the modules that decide, and print those that no quick test finds.

    make mutants                                      # 8 mutants of each module
    python -m tests.mutants admission/transaction --number 30 --seed 2

A mutant is the module with one expression changed: a comparison or an if-expression turned round,
`and` for `or`, a `not` gone, `-` for `+`, `&` for `|`, another bool or int. The test files in the
module's row of JUDGES are run on it. If they stay green, the mutant survives: a rule of the module
has no test, or the expression does nothing. What cannot change a decision is not mutated:
annotations, decorators, the wording of messages, and lines marked `pragma: no cover`.

The tests run in a copy of the tree in a temporary directory, so the checkout is never touched.
The exit status is 0 if no mutant survives, 1 if one does, 2 if no judgement is possible.
"""

import argparse
import ast
import copy
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
COPIED: Final = ("gpumanager", "vcuda_shim", "tests", "docs", "pyproject.toml")
LEAST_TIMEOUT: Final = 60.0
"""Seconds that tests may take on a mutant; more where they take long without one."""

_TESTS: Final[Mapping[str, str]] = {
    "grants/device_ids": "deviceplugin/test_device_ids",
    "grants/grant": "grants/test_grant grants/test_journal",
    "grants/journal": "grants/test_journal",
    "grants/journal_file": "grants/test_journal grants/test_journal_file",
    "grants/journal_text": "grants/test_journal recovery/test_upgrades",
    "grants/ledger": "grants/test_ledger deviceplugin/admission/test_gpu_loss",
    "grants/node": "grants/test_node",
    "grants/offers": "grants/test_offers",
    "grants/refusals": "grants/test_grant",
    "grants/store": "grants/test_store",
    "deviceplugin/admission/decision": (
        "deviceplugin/admission/test_decision deviceplugin/admission/test_refusals "
        "deviceplugin/admission/test_allocator"
    ),
    "deviceplugin/admission/steering": (
        "deviceplugin/admission/test_steering deviceplugin/admission/test_scheduler_plan "
        "deviceplugin/admission/test_gpu_policy"
    ),
    "deviceplugin/admission/tracker": (
        "deviceplugin/admission/test_tracker deviceplugin/admission/test_allocator"
    ),
    "deviceplugin/admission/transaction": (
        "deviceplugin/admission/test_admission deviceplugin/admission/test_refusals"
    ),
    "deviceplugin/identity/adoption": "deviceplugin/identity/test_adoption",
    "deviceplugin/identity/device_checkpoint": "deviceplugin/identity/test_device_checkpoint",
    "deviceplugin/identity/evidence": "deviceplugin/identity/test_evidence",
    "deviceplugin/identity/verdict": "deviceplugin/identity/test_verdict",
    "deviceplugin/identity/resolution": "deviceplugin/identity/test_resolution",
    "deviceplugin/identity/resolver": (
        "deviceplugin/identity/test_put_back deviceplugin/admission/test_allocator "
        "recovery/test_restarts recovery/test_reconciling"
    ),
    "dra/plan": "dra/test_plan",
}
JUDGES: Final = {
    f"gpumanager/{module}.py": tuple(f"tests/{name}.py" for name in names.split())
    for module, names in _TESTS.items()
}
"""The modules, and the quick test files that judge each."""

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
NOT_MUTATED: Final = frozenset({"annotation", "returns", "decorator_list"})
"""Fields of syntax nodes."""
IDLE_ARGUMENTS: Final = frozenset({"frozen", "slots", "kw_only", "repr", "strict"})
"""Arguments that guard against mistakes of programmers, or are for debuggers."""


class NotJudged(Exception):
    """The tests cannot tell anything about mutants."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A module with one change. before, after: the expression. source: all of the module."""

    line: int
    before: str
    after: str
    source: str

    @property
    def change(self) -> str:
        return f"{self.before}  →  {self.after}"


class _Swap(ast.NodeTransformer):
    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self._old, self._new = old, new

    def visit(self, node: ast.AST) -> ast.AST:
        return self._new if node is self._old else self.generic_visit(node)


def mutants_of(source: str) -> Iterator[Mutant]:
    """All mutants of a module, from its first line to its last."""
    tree, lines = ast.parse(source), source.splitlines()
    for parent, node in list(_places(tree, lines)):
        changed = _changed(node)
        if changed is None or not isinstance(node, (ast.expr, ast.stmt)):
            continue
        # `0` alone says nothing to a reader; all parameters of a function are too much.
        around = isinstance(node, ast.Constant) and not isinstance(parent, ast.arguments)
        before = ast.unparse(parent if around else node)
        _Swap(node, changed).visit(tree)
        after = ast.unparse(parent if around else changed)
        yield Mutant(node.lineno, before, after, ast.unparse(tree))
        _Swap(changed, node).visit(tree)


def _places(parent: ast.AST, lines: Sequence[str]) -> Iterator[tuple[ast.AST, ast.AST]]:
    """The nodes below `parent` that count, each with its own parent."""
    for name, value in ast.iter_fields(parent):
        for child in value if isinstance(value, list) else [value]:
            if name in NOT_MUTATED or not isinstance(child, ast.AST) or _is_idle(child, lines):
                continue
            yield parent, child
            yield from _places(child, lines)


def _is_idle(node: ast.AST, lines: Sequence[str]) -> bool:
    match node:
        case ast.JoinedStr():
            return True
        case ast.keyword(arg=name):
            return name in IDLE_ARGUMENTS
        case ast.stmt(lineno=line):
            return "pragma: no cover" in lines[line - 1]
    return False


def _changed(node: ast.AST) -> ast.AST | None:
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


def choose(module: str, source: str, number: int, seed: int) -> list[Mutant]:
    """Some of the mutants of a module; the same ones for the same seed."""
    found = [m for m in mutants_of(source) if m.change not in EQUIVALENT.get(module, {})]
    chosen = random.Random(f"{seed} {module}").sample(found, min(number, len(found)))
    return sorted(chosen, key=lambda mutant: mutant.line)


def survivors(
    tree: Path, module: str, mutants: Sequence[Mutant], tests: Sequence[str]
) -> list[Mutant]:
    """The mutants with which the tests stay green. Changes `tree`, a copy. Raises NotJudged."""
    begun = time.monotonic()
    if output := _failure(tree, tests, 10 * LEAST_TIMEOUT):
        raise NotJudged(f"{' '.join(tests)} fail on {module} as it is:\n{output}")
    timeout = max(LEAST_TIMEOUT, 4 * (time.monotonic() - begun))
    path = tree / module
    original, found = path.read_text(), []
    for mutant in mutants:
        path.write_text(mutant.source)
        if not _failure(tree, tests, timeout):
            found.append(mutant)
    path.write_text(original)
    return found


def _failure(tree: Path, tests: Sequence[str], timeout: float) -> str:
    """What pytest prints if a test fails or takes too long; empty if all are green."""
    # No bytecode is written: Python could take that of one mutant for the next one.
    own = {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1", "GRPC_ENABLE_FORK_SUPPORT": "0"}
    run = [sys.executable, "-m", "pytest", "-xq", "--tb=short", "-p", "no:cacheprovider", *tests]
    try:
        done = subprocess.run(
            run,
            cwd=tree,
            env=os.environ | own,
            timeout=timeout,
            capture_output=True,
            text=True,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"not done after {timeout:.0f} s"
    return (done.stdout + done.stderr)[-2000:] if done.returncode else ""


def copy_tree(target: Path) -> None:
    """What the tests need of the checkout, bytecode included: modification times stay the same."""
    for one in (ROOT / name for name in COPIED):
        copied = shutil.copytree if one.is_dir() else shutil.copy2
        copied(one, target / one.name)


def main() -> int:
    parser = argparse.ArgumentParser(description="Mutants that no quick test finds.")
    parser.add_argument("module", nargs="?", default="", help="part of a path; default: all")
    parser.add_argument("--number", type=int, default=8, help="mutants of each module")
    parser.add_argument("--seed", type=int, default=1, help="another seed, other mutants")
    asked = parser.parse_args()
    modules = [module for module in JUDGES if asked.module in module]
    if not modules:
        parser.error(f"no module is called like {asked.module}; known: {', '.join(JUDGES)}")
    width, total, killed = max(map(len, modules)), 0, 0
    print(f"{'module':{width}}  mutants  killed", flush=True)
    with tempfile.TemporaryDirectory(prefix="mutants-") as directory:
        tree = Path(directory)
        copy_tree(tree)
        for module in modules:
            mutants = choose(module, (tree / module).read_text(), asked.number, asked.seed)
            try:
                alive = survivors(tree, module, mutants, JUDGES[module])
            except NotJudged as error:
                print(f"mutants: {error}", file=sys.stderr)
                return 2
            total, killed = total + len(mutants), killed + len(mutants) - len(alive)
            print(f"{module:{width}}  {len(mutants):7}  {len(mutants) - len(alive):6}")
            for mutant in alive:
                print(f"  {module}:{mutant.line}: {mutant.change}", flush=True)
    print(f"{'all':{width}}  {total:7}  {killed:6}")
    return int(killed < total)


if __name__ == "__main__":
    sys.exit(main())
