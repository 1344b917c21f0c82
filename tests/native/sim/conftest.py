"""Test modules that are programs: those that say `MACHINE = {…}`.

Each of their tests runs in a process of its own, which program_host.py forks, and in which
`libcuda.so.1` is the simulated driver on a machine made for it: sim_box.machine(**MACHINE), or what
`@on` says instead, once for each `@on`; their words may be those of DriverBehaviour and GpuModel
too.
The module is imported there alone, so it may use the words of tests/native/programs, which take the
driver at their import. A test may ask for `box`.
"""

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT

PROGRAMS = pytest.StashKey["Programs"]()


class ProgramFailed(Exception):
    """The test's traceback, or how its process ended."""


class Programs:
    """The process that runs the tests, from the first of them to the end of the session."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.native.sim.program_host"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def failure(self, module: str, test: str, wanted: dict[str, Any]) -> str:
        """How the test fails; empty if it passes."""
        asked, answers = self._process.stdin, self._process.stdout
        assert asked is not None
        assert answers is not None
        asked.write(json.dumps([module, test, wanted]) + "\n")
        asked.flush()
        return str(json.loads(answers.readline() or '"program_host.py ended"'))

    def close(self) -> None:
        self._process.communicate()


class ProgramTest(pytest.Item):
    def __init__(self, *, test: ast.FunctionDef, wanted: dict[str, Any], **more: Any) -> None:
        super().__init__(**more)
        self._test, self._machine = test, wanted

    def runtest(self) -> None:
        if PROGRAMS not in self.config.stash:
            self.config.stash[PROGRAMS] = programs = Programs()
            self.config.add_cleanup(programs.close)
        module = ".".join(self.path.relative_to(ROOT).with_suffix("").parts)
        told = self.config.stash[PROGRAMS].failure(module, self._test.name, self._machine)
        if told:
            raise ProgramFailed(told)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], *_: Any) -> Any:
        if isinstance(excinfo.value, ProgramFailed):
            return str(excinfo.value)
        return super().repr_failure(excinfo)

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, self._test.lineno, self.name


class ProgramModule(pytest.File):
    def collect(self) -> Iterator[pytest.Item]:
        tree = ast.parse(self.path.read_text())
        for node in tree.body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                for name, other in machines_of(node):
                    wanted = machine_of(tree) | other
                    yield ProgramTest.from_parent(self, name=name, test=node, wanted=wanted)


def machines_of(test: ast.FunctionDef) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each `@on`: what the test is called there, and how that machine differs."""
    for mark in test.decorator_list:
        match mark:
            case ast.Call(func=ast.Name(id="on"), keywords=words):
                other = {word.arg or "": ast.literal_eval(word.value) for word in words}
                yield f"{test.name}[{ast.unparse(mark)[3:-1]}]", other
    if not test.decorator_list:
        yield test.name, {}


def machine_of(tree: ast.Module) -> Any:
    """What the module says of its machine; None of a module that is no program."""
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id="MACHINE")], value=value):
                return ast.literal_eval(value)
    return None


def pytest_pycollect_makemodule(
    module_path: Path, parent: pytest.Collector
) -> pytest.Collector | None:
    if machine_of(ast.parse(module_path.read_text())) is None:
        return None
    made: pytest.Collector = ProgramModule.from_parent(parent, path=module_path)
    return made
