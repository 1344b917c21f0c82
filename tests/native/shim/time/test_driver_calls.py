"""What the shim asks of the driver for each launch, and what that would cost on a real one.

On the virtual clock, where only the GPU takes time: how often the shim looks is what it would be
for a program that launches as fast as the GPU runs.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.native.shim.time.counted_driver import (
    COUNTS,
    cost_us,
    counted_environment,
    counted_libraries,
)
from tests.native.timed_gpu import TimedGpu

pytestmark = pytest.mark.namespaces

MARK_US = 2.0
"""A mark takes so much of the GPU's time."""
MARKS = 0.003
"""Of the GPU's time."""
CALLS = 0.015
"""Of the launching thread's: most of it while that waits for room."""


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return counted_libraries(tmp_path_factory.mktemp("counted"))


async def calls(timed: TimedGpu, libraries: Path, script: str, cores: int = 99) -> dict[str, Any]:
    container = replace(await timed.container("one", cores), libraries=libraries)
    environment = "".join(
        f"os.environ[{name!r}] = {value!r}\n" for name, value in counted_environment().items()
    )
    (told,) = await timed.run((container, f"\n{environment}{COUNTS}{script}"))
    return told


STEADY = """
driver = cuda()
function = begin(driver)
def go(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for _ in range(100):
            spin(driver, function, {length})
go(1.5)  # no other container has woken for a second
before, begun = counts(), time.monotonic()
go(1)
tell(counts={{name: count - before[name] for name, count in counts().items()}},
     seconds=time.monotonic() - begun)
"""


async def test_at_200_000_launches_a_second_marks_take_three_thousandths_of_the_gpu(
    timed: TimedGpu, libraries: Path
) -> None:
    told = await calls(timed, libraries, STEADY.format(length=5_000))

    launches = told["counts"]["cuLaunchKernel"] / told["seconds"]
    assert launches == pytest.approx(198_000, rel=0.02)
    assert told["counts"]["cuEventCreate"] + told["counts"]["cuEventDestroy_v2"] <= 16
    assert told["counts"]["cuEventRecord"] * MARK_US / 1e6 / told["seconds"] <= MARKS
    assert cost_us(told["counts"]) / 1e6 / told["seconds"] <= CALLS
