"""The engines behind shares and overheads: each plays every way of launching, on the simulated
driver; PyTorch's over a stand-in for it."""

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest
from frameworks import FRAMEWORKS
from sim_box import SimBox, sim_box

PLAY = """
import json
from player import Player, engine_of
player = Player(engine_of({engine!r}))
calibrated = player.calibrate(2000)
told = {{"micros": calibrated["micros"], "rates": {{}}}}
for pattern in ("async", "sync", "graph", "steps"):
    player.load(calibrated["size"], pattern, 2)
    played = player.play(0.02, 0.1, 0.02)
    told["rates"][pattern] = played["kernels"] / played["seconds"]
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def box() -> Iterator[SimBox]:
    with sim_box() as made:
        yield made


@pytest.mark.parametrize("engine", ["torch", "driver"])
def test_every_way_of_launching_is_played_with_kernels_of_the_wanted_length(
    box: SimBox, engine: str
) -> None:
    path = ":".join(map(str, (*FRAMEWORKS, os.environ.get("PYTHONPATH", ""))))

    told: dict[str, Any] = json.loads(box.python(PLAY.format(engine=engine), PYTHONPATH=path))

    assert told["micros"] == pytest.approx(2000, rel=0.1)
    assert set(told["rates"]) == {"async", "sync", "graph", "steps"}
    assert all(0 < told["rates"][pattern] < 600 for pattern in ("async", "sync", "graph"))
