"""What the comparison of suites itself sees, by a suite of three tests."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from tests import ROOT
from tests.clients.client_box import ClientBox
from tests.clients.suites import Suite, compare, pytest_plan

pytest_plugins = ["tests.clients.client_fixtures"]
pytestmark = [pytest.mark.clients, pytest.mark.namespaces]

NOTHING: Mapping[str, str] = MappingProxyType({})

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


def suite_of(
    folder: Path,
    *,
    by_design: Mapping[str, str] = NOTHING,
    unsteady: Mapping[str, str] = NOTHING,
) -> Suite:
    (folder / "test_three.py").write_text(TESTS)
    return Suite(
        "three",
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

    assert compared.bare["test_three.py::test_memory"] == ("passed", "")
    assert compared.unlike == {
        "test_three.py::test_memory": (("passed", ""), ("failed", "AssertionError"))
    }


async def test_what_is_unlike_by_design_is_told_apart_and_what_is_unsteady_is_run_again(
    clients: ClientBox, tmp_path: Path
) -> None:
    by_design = suite_of(tmp_path, by_design={"test_memory": "the limit"})
    unsteady = suite_of(tmp_path, unsteady={"test_memory": "not in truth: it fails each time"})

    apart = await compare(clients, by_design, by_design.plan())
    again = await compare(clients, unsteady, unsteady.plan())

    assert (apart.unlike, apart.by_design) == ({}, ["test_three.py::test_memory"])
    assert list(again.unlike) == ["test_three.py::test_memory"]


async def test_those_behind_a_test_that_ends_the_process_are_run(
    clients: ClientBox, tmp_path: Path
) -> None:
    suite = suite_of(tmp_path)

    compared = await compare(clients, suite, suite.plan())

    for ends in (compared.bare, compared.behind):
        assert ends["test_three.py::test_that_dies"][0] == "crashed"
        assert ends["test_three.py::test_behind_it"] == ("passed", "")
