"""The engines behind shares and overheads: each plays, on the simulated driver; PyTorch's over a
stand-in for it.
"""

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.gpu_check.frameworks import FRAMEWORKS
from tests.native.sim_box import SimBox, sim_box

PLAY = """
import json
from player import Player, engine_of
player = Player(engine_of({engine!r}))
size = {size}
player.load(size, 2)
played = player.play(0.02, 0.1, 0.02)
print(json.dumps({{"size": size, "rate": played["kernels"] / played["seconds"]}}))
"""


@pytest.fixture(scope="module")
def box() -> Iterator[SimBox]:
    with sim_box() as made:
        yield made


def played(box: SimBox, engine: str, size: str) -> dict[str, Any]:
    path = ":".join(map(str, (*FRAMEWORKS, os.environ.get("PYTHONPATH", ""))))
    script = PLAY.format(engine=engine, size=size)
    told: dict[str, Any] = json.loads(box.python(script, PYTHONPATH=path))
    return told


def test_kernels_have_as_many_rounds_as_take_the_wanted_time(box: SimBox) -> None:
    """A round takes the simulated GPU a nanosecond."""
    told = played(box, "driver", 'player.calibrate(2000)["size"]')

    assert told["size"] == pytest.approx(2_000_000, rel=0.1)
    assert 0 < told["rate"] < 600


def test_a_network_is_trained_step_by_step(box: SimBox) -> None:
    assert played(box, "torch", "1")["rate"] > 0
