"""The engines behind shares and overheads: each plays, on the simulated driver; PyTorch's over a
stand-in for it.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.gpu_check.frameworks import FRAMEWORKS
from tests.native.sim_box import SimBox, sim_box

PLAY = Path(__file__).with_name("programs") / "play_engine.py"


@pytest.fixture(scope="module")
def box() -> Iterator[SimBox]:
    with sim_box() as made:
        yield made


def played(box: SimBox, engine: str, size: str) -> dict[str, Any]:
    path = ":".join(map(str, (*FRAMEWORKS, os.environ.get("PYTHONPATH", ""))))
    told: dict[str, Any] = json.loads(box.program(PLAY, engine, size, PYTHONPATH=path))
    return told


def test_kernels_have_as_many_rounds_as_take_the_wanted_time(box: SimBox) -> None:
    """A round takes the simulated GPU a nanosecond."""
    told = played(box, "driver", "2000us")

    assert told["size"] == pytest.approx(2_000_000, rel=0.1)
    assert 0 < told["rate"] < 600


def test_a_network_is_trained_step_by_step(box: SimBox) -> None:
    assert played(box, "torch", "8")["rate"] > 0
