"""The shim against a manager and pages that may be anything, for a bounded time."""

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.native.core import fuzz
from tests.native.core.sanitized import UNMAPPABLE, SanitizerAbsentError

SECONDS = 3
SEED = 20250703
FEWEST = 200
"""Inputs that even a host with much else to do gets through; usually it is thousands a second."""


@pytest.fixture(scope="module", params=fuzz.TARGETS)
def target(request: pytest.FixtureRequest) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="gm", dir="/tmp") as folder:
        try:
            yield fuzz.build(Path(folder), request.param)
        except SanitizerAbsentError as absent:
            pytest.skip(f"the compiler comes without -fsanitize={absent}")


def test_no_answer_of_a_manager_and_no_page_does_harm_or_is_kept_or_takes_long(
    target: Path,
) -> None:
    ran = fuzz.run(target, SEED, SECONDS)

    if UNMAPPABLE in ran.stderr:
        pytest.skip("this kernel places memory where the compiler's runtime does not expect it")
    assert (ran.returncode, ran.stderr) == (0, "")
    inputs = re.match(rf"(\d+) inputs of seed {SEED}$", ran.stdout)
    assert inputs is not None
    assert int(inputs[1]) >= FEWEST


def test_an_input_can_be_tried_again_by_seed_and_number(target: Path) -> None:
    ran = fuzz.run(target, SEED, 77, "only")

    if UNMAPPABLE in ran.stderr:
        pytest.skip("this kernel places memory where the compiler's runtime does not expect it")
    assert (ran.returncode, ran.stdout) == (0, f"77 inputs of seed {SEED}\n")
