"""For test modules that are programs: see conftest.py."""

from collections.abc import Callable
from typing import TypeVar

Test = TypeVar("Test")


def on(**_machine: int | str) -> Callable[[Test], Test]:
    """The test runs on this machine, which differs so from MACHINE."""
    return lambda test: test
