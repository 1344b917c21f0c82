"""The benchmark beside a real kube-scheduler: its sums, and the extender that decides nothing."""

import json

import kube_scheduler
import pytest
from aiohttp import ClientSession
from extender import empty
from kube_scheduler import EMPTY, WITH, WITHOUT, Run


def test_each_run_is_compared_with_the_one_without_an_extender_of_its_turn() -> None:
    rates = {WITHOUT: (100.0, 50.0, 80.0), EMPTY: (90.0, 45.0, 80.0), WITH: (80.0, 25.0, 72.0)}
    runs = [
        Run(name, rates[name][turn], extender=1.0, scheduler=2.0, api=3.0)
        for turn in range(3)
        for name in (WITHOUT, EMPTY, WITH)
    ]

    found = kube_scheduler.summary(5_000, 900, runs)

    assert found[WITH]["percents"] == [80.0, 50.0, 90.0]
    assert found[WITH]["percent"] == 80.0
    assert found[EMPTY]["percent"] == 90.0
    assert found[WITHOUT]["pods_per_second"] == 80.0


@pytest.mark.parametrize("letters", [1, 200_000])
async def test_the_empty_extender_names_the_nodes_it_was_sent(letters: int) -> None:
    names = ["a" * letters, "b"]
    body = json.dumps({"Pod": {}, "NodeNames": names}, separators=(",", ":")).encode()
    with empty.extender() as process:
        async with ClientSession(f"http://127.0.0.1:{process.port}/scheduler/") as session:
            async with session.post("filter", data=body) as answer:
                filtered = json.loads(await answer.read())
            async with session.post("prioritize", data=body) as answer:
                scored = json.loads(await answer.read())

    assert (filtered, scored) == ({"NodeNames": names}, [])
