"""Where memory that comes and goes by itself meets a measurement: the books never hold less than
the driver does, and what was presumed meanwhile is exact again after the next look."""

import asyncio
from typing import Any

import pytest

from gpumanager.units import MIB
from tests.native.measured_node import CONTEXT, LIMIT, MeasuredNode, eventually
from tests.native.sim_box import PAGE

pytestmark = pytest.mark.namespaces

CLIENT = """
from tests.native.programs.seam_client import *
import json, subprocess, sys
from tests.native.programs.shim_client import *
"""


class Interrupted:
    """A program that stops twice: for a regular measurement, and for a look at its books."""

    def __init__(self, measured: MeasuredNode) -> None:
        self.measured = measured

    async def run(self, before: str, after: str) -> tuple[int, int, Any]:
        """What the books hold at the end, what the driver does, and what the program told."""
        script = f"""
program = Program({LIMIT})
{before}
pause()
{after}
pause()
tell(both=program.both())
"""
        container = await self.measured.container()
        program = container.begin(CLIENT + script)
        await program.pauses()
        await self.measured.manager.measure()
        await program.pauses()
        books, truth = self.measured.held(), self.measured.account().bytes_now
        return books, truth, (await program.ends())["both"]


SHRINKS = {
    "a pool that a synchronisation empties": (
        f"""
assert program.free(program.had({100 * MIB})) == SUCCESS
assert program.real.cuStreamSynchronize(None) == SUCCESS
""",
        "assert program.sync() == SUCCESS",
    ),
    "a pool that was emptied and has grown again": (
        f"""
assert program.free(program.had({100 * MIB})) == SUCCESS
assert program.real.cuStreamSynchronize(None) == SUCCESS
""",
        f"program.had({100 * MIB})",
    ),
    "graphs whose memory is trimmed": (
        f"""
assert program.launch(program.graph({100 * MIB})) == SUCCESS
assert program.sync() == SUCCESS
assert program.trim_graphs(program.real) == SUCCESS
""",
        "assert program.trim_graphs() == SUCCESS",
    ),
    "graphs whose memory was trimmed and is there again": (
        f"""
made = program.graph({100 * MIB})
assert program.launch(made) == SUCCESS
assert program.sync() == SUCCESS
assert program.trim_graphs(program.real) == SUCCESS
""",
        f"assert program.launch(program.graph({100 * MIB})) == SUCCESS",
    ),
    "an address that is given out again": (
        f"""
result, address = allocate(program.driver, {100 * MIB})
assert free(program.real, address) == SUCCESS
""",
        f"assert allocate(program.driver, {100 * MIB}) == (SUCCESS, address)",
    ),
}


@pytest.mark.parametrize("kind", SHRINKS)
async def test_a_measurement_between_the_drivers_giving_back_and_ours_leaves_no_gap(
    measured: MeasuredNode, kind: str
) -> None:
    books, truth, both = await Interrupted(measured).run(*SHRINKS[kind])

    assert books >= truth
    assert both == [truth, truth]


@pytest.mark.parametrize("seed", range(2))
async def test_programs_that_do_everything_at_the_limit_race_with_measurements(
    measured: MeasuredNode, seed: int
) -> None:
    limit = 6 * CONTEXT
    await measured.run("make()")  # so that the size of a context is known
    sampling = asyncio.create_task(measured.manager.measure_every(0.005))
    container = await measured.container(limit)

    told = await container.run(
        CLIENT
        + f"""
words = "from tests.native.programs.seam_client import *\\n"
words += "from tests.native.programs.shim_client import *\\ntell(**race({{}}, {limit}, 1.2))"
start = lambda seed: subprocess.Popen([sys.executable, "-c", words.format(seed)],
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
children = [start({4 * seed} + which) for which in range(4)]
assert [child.stdout.readline() for child in children] == 4 * ["ready\\n"]
for child in children:
    child.stdin.write("\\n") and child.stdin.flush()
did = [json.loads(child.communicate()[0]) for child in children]
tell(did=did)
"""
    )

    sampling.cancel()
    assert sum(did["granted"] for did in told["did"]) > 40
    assert sum(did["refused"] for did in told["did"]) > 10
    beyond = 4 * PAGE  # each has several contexts: in whose pages there is room is a guess
    assert limit // 2 < measured.account().bytes_peak <= limit + beyond
    assert await eventually(lambda: measured.held() == 0)


@pytest.mark.parametrize("seed", range(2))
async def test_books_are_the_ledger_again_after_one_look_when_all_is_quiet(
    measured: MeasuredNode, seed: int
) -> None:
    sampling = asyncio.create_task(measured.manager.measure_every(0.005))
    container = await measured.container()

    told = await container.run(
        CLIENT
        + f"""
program, wrong = Program({LIMIT}, {seed}), []
for turn in range(150):
    name = program.choice.choice(TAKING + GIVING)
    result = getattr(program, name)()
    if result not in RESULTS or turn % 10 == 9 and program.books() != program.truth():
        wrong.append([turn, name, result, *program.both()])
tell(wrong=wrong)
"""
    )

    sampling.cancel()
    assert told == {"wrong": []}
    assert measured.account().bytes_peak <= LIMIT
