"""What the comparison of suites itself sees, by suites of a few tests."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from tests import ROOT
from tests.clients.client_box import ClientBox
from tests.clients.suites import MISSING, Suite, compare, pytest_plan

pytest_plugins = ["tests.clients.client_fixtures"]
pytestmark = [pytest.mark.clients, pytest.mark.namespaces]

NOTHING: Mapping[str, str] = MappingProxyType({})
PASSED = ("passed", "")

TESTS = """
import os
from tests.native.programs.shim_client import begin, cuda, memory

def test_memory():
    driver = cuda()
    begin(driver)
    assert memory(driver)[1] == 16 << 30

def test_that_dies():
    os.abort()

def test_behind_it():
    pass
"""

ON_ONE_SIDE = """
from tests.native.programs.shim_client import begin, cuda, memory

driver = cuda()
begin(driver)
if memory(driver)[1] == 16 << 30:
    def test_bare(): pass
else:
    def test_behind(): pass
"""

FLAKY = """
runs = []

def test_that_fails_once():
    runs.append(None)
    assert len(runs) == 2

def test_that_fails_each_time():
    runs.append(None)
    raise ValueError if len(runs) == 3 else OSError
"""

RERUNS = """
from _pytest.runner import runtestprotocol

def pytest_runtest_protocol(item, nextitem):
    for is_last in (False, True):
        for report in runtestprotocol(item, nextitem=nextitem, log=False):
            is_rerun = report.failed and not is_last
            if is_rerun:
                report.outcome = "rerun"
            item.ihook.pytest_runtest_logreport(report=report)
            if is_rerun:
                break
        else:
            break
    return True
"""
"""As pytest-rerunfailures does it with `--reruns=1`."""


def suite_of(
    folder: Path,
    tests: str = TESTS,
    *,
    by_design: Mapping[str, str] = NOTHING,
    unsteady: Mapping[str, str] = NOTHING,
) -> Suite:
    (folder / "test_few.py").write_text(tests)
    return Suite(
        "few",
        "all",
        lambda: pytest_plan(folder, ".", path=ROOT),
        ran=3,
        passed=2,
        by_design=by_design,
        unsteady=unsteady,
    )


async def test_a_test_that_ends_otherwise_behind_the_shim_is_named(
    clients: ClientBox, tmp_path: Path
) -> None:
    suite = suite_of(tmp_path)

    compared = await compare(clients, suite, suite.plan())

    assert compared.bare["test_few.py::test_memory"] == PASSED
    assert compared.unlike == {"test_few.py::test_memory": (PASSED, ("failed", "AssertionError"))}


async def test_a_test_on_one_side_only_is_named_with_the_side_where_it_is_missing(
    clients: ClientBox, tmp_path: Path
) -> None:
    suite = suite_of(tmp_path, ON_ONE_SIDE, by_design={"test_bare": "", "test_behind": ""})

    compared = await compare(clients, suite, suite.plan())

    assert compared.unlike == {
        "test_few.py::test_bare": (PASSED, MISSING),
        "test_few.py::test_behind": (MISSING, PASSED),
    }


async def test_a_test_that_a_plugin_runs_again_ends_as_its_last_run(
    clients: ClientBox, tmp_path: Path
) -> None:
    (tmp_path / "conftest.py").write_text(RERUNS)
    suite = suite_of(tmp_path, FLAKY)

    compared = await compare(clients, suite, suite.plan())

    assert compared.unlike == {}
    assert compared.behind == {
        "test_few.py::test_that_fails_once": PASSED,
        "test_few.py::test_that_fails_each_time": ("failed", "OSError"),
    }


async def test_what_is_unlike_by_design_is_told_apart_and_what_is_unsteady_is_run_again(
    clients: ClientBox, tmp_path: Path
) -> None:
    by_design = suite_of(tmp_path, by_design={"test_memory": "the limit"})
    unsteady = suite_of(tmp_path, unsteady={"test_memory": "not in truth: it fails each time"})

    apart = await compare(clients, by_design, by_design.plan())
    again = await compare(clients, unsteady, unsteady.plan())

    assert (apart.unlike, apart.by_design) == ({}, ["test_few.py::test_memory"])
    assert list(again.unlike) == ["test_few.py::test_memory"]


async def test_those_behind_a_test_that_ends_the_process_are_run(
    clients: ClientBox, tmp_path: Path
) -> None:
    suite = suite_of(tmp_path)

    compared = await compare(clients, suite, suite.plan())

    for ends in (compared.bare, compared.behind):
        assert ends["test_few.py::test_that_dies"][0] == "crashed"
        assert ends["test_few.py::test_behind_it"] == PASSED
