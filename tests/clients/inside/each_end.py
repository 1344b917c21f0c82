"""A plugin of pytest inside a container: appends how each test ends to the file $CLIENT_ENDS.

A row is `[test, outcome, errors]`. A test that begins has a row without the last two: where the
process dies in it (a crash, or the alarm, whose default action also ends what waits in C), the next
run with the same file leaves out all tests that it names, and goes on behind the dead one.
$CLIENT_ONLY, a JSON list, names the only tests to run.
"""

import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from error_names import error_names

ENDS = Path(os.environ["CLIENT_ENDS"])
SECONDS = int(os.environ["CLIENT_SECONDS"])
ORDER = ("passed", "skipped", "failed")
_ADDRESS = re.compile("0x[0-9a-f]+")


def name_of(node: str) -> str:
    return _ADDRESS.sub("0x", node)


def append(*row: str) -> None:
    with ENDS.open("a") as file:
        file.write(json.dumps(row) + "\n")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    ended = {json.loads(line)[0] for line in ENDS.read_text().splitlines()}
    only = set(json.loads(os.environ.get("CLIENT_ONLY", "[]")))

    def is_left(item: pytest.Item) -> bool:
        name = name_of(item.nodeid)
        return name not in ended and (not only or name in only)

    config.hook.pytest_deselected(items=[item for item in items if not is_left(item)])
    items[:] = [item for item in items if is_left(item)]


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.outcome != "passed":
        append(name_of(report.nodeid), report.outcome, errors_of(report))


class Ends:
    """The worst of a test's phases and subtests, in its last run."""

    def __init__(self) -> None:
        self._worst, self._errors = "passed", ""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        name = name_of(item.nodeid)
        self._worst, self._errors = "passed", ""
        append(name)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(SECONDS)
        result = yield
        signal.alarm(0)
        append(name, self._worst, self._errors)
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.outcome not in ORDER:  # "rerun", of pytest-rerunfailures: the test runs again
            self._worst, self._errors = "passed", ""
            signal.alarm(SECONDS)
        elif ORDER.index(report.outcome) > ORDER.index(self._worst):
            self._worst, self._errors = report.outcome, errors_of(report)


def errors_of(report: Any) -> str:
    """The type of the exception that failed it, and the driver's errors that its message names."""
    if report.outcome != "failed":
        return ""
    crash = getattr(report.longrepr, "reprcrash", None)
    message = str(report.longrepr) if crash is None else str(crash.message)
    kind = (
        "AssertionError" if message.startswith("assert ") else message.split(":")[0].split("\n")[0]
    )
    return " ".join((kind[:80], *error_names(message)))


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Ends())
