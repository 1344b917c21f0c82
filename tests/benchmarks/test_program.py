"""The command of the benchmark, and the baselines it runs beside the shim."""

import json
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest
from compute import figures, program
from compute.baselines import build
from compute.grid import cases, chosen, compared
from compute.runner import Runner
from harness import HarnessResult, Tenant, play

from gpumanager.sim.machine import (
    BEHAVIOURS,
    DEFAULT_BEHAVIOUR,
    REAL,
    DriverBehaviour,
    UtilizationSamples,
)


def test_the_list_names_every_case(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["--list"]) == 0

    names = [one.name for one in (*cases(), *compared())]
    assert capsys.readouterr().out.split("\n")[:-1] == names


def test_a_name_that_no_case_has_is_refused() -> None:
    with pytest.raises(SystemExit, match="no case is called no/such; see --list"):
        program.main(["--case", "no/such"])


def test_drawings_need_only_cases_that_exist() -> None:
    given = program.options(["--case", "one/1ms/async/50", "--drawings", "."])

    assert [one.name for one in program.wanted(given)] == ["one/1ms/async/50", *figures.needed()]
    assert program.rivals(given) == compared()


def test_options_say_how_the_driver_behaves() -> None:
    words = ["--switch-cost", "150", "--samples", "none"]

    chosen = program.behaviour(program.options(words))
    real = program.behaviour(program.options(["--driver", "real", "--switch-cost", "2"]))

    assert chosen == replace(
        DEFAULT_BEHAVIOUR,
        switch_ns=150_000,
        samples=UtilizationSamples.NONE,
    )
    assert real == replace(REAL, switch_ns=2_000)
    assert program.behaviour(program.options([])) == DEFAULT_BEHAVIOUR


@pytest.mark.parametrize("words", ["3us", "-1", "", "2000000"])
def test_a_switch_cost_that_is_no_time_is_refused(words: str) -> None:
    with pytest.raises(SystemExit):
        program.options([f"--switch-cost={words}"])


@pytest.mark.namespaces
async def test_a_run_says_what_the_switches_cost() -> None:
    (case,) = chosen(["two/30-60/1ms/async"], cases())

    ran = await Runner(driver=DriverBehaviour(switch_ns=100_000)).run(case)

    assert 0 < ran.verdicts[0].lost < 10  # two for each 2 ms of both at most


@pytest.mark.namespaces
def test_a_case_is_run_shown_and_written_down(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "figures.json"

    assert program.main(["--case", "one/1ms/async/50", "--json", str(file)]) == 0

    rows = [line for line in capsys.readouterr().out.split("\n") if line.startswith("one/")]
    written = json.loads(file.read_text())
    assert len(rows) == len(written["rows"]) == 1
    assert written["simulated"]
    assert f"{written['rows'][0]['tenants']['a']['share']:.1f}" in rows[0].split()


@pytest.mark.namespaces
async def test_a_baseline_holds_kernels_back_and_lets_graphs_go(tmp_path: Path) -> None:
    runner, limiters = Runner(), build(tmp_path)
    kernels, graphs = chosen(["compare/50us/async/30", "compare/1ms/graph/30"], compared())

    for library in limiters.values():
        held, free = [await runner.run(case, library) for case in (kernels, graphs)]
        assert 10 < held.verdicts[0].tenants["a"].share < 70
        assert free.verdicts[0].tenants["a"].share > 99


@pytest.mark.namespaces
@pytest.mark.parametrize("driver", BEHAVIOURS.values(), ids=BEHAVIOURS)
async def test_vcuda_controllers_loop_refills_tokens_after_an_idle_second(
    tmp_path: Path, driver: DriverBehaviour
) -> None:
    """Its share is 0 when the process has used more than its limit for some beats. The process then
    waits, and only NVML's answer that it uses nothing makes the share grow again."""
    tenant = Tenant("a", 10, "kernel=2ms blocks=10000 threads=256 for=20s")

    played = await play([tenant], 20, driver=driver, limiter=build(tmp_path)["delta"])

    used = [played.share("a", second, second + 4) for second in range(0, 20, 4)]
    assert all(0 < share < 1 for share in used), used


def test_runs_become_drawings() -> None:
    runs = {}
    for case in chosen(figures.needed(), cases()):
        busy = {actor.name: (0.03,) * round(10 * case.seconds) for actor in case.actors}
        runs[case.name] = case, HarnessResult(case.seconds, 0.1, busy, {}, ())

    drawn = figures.shares(runs)

    texts = {one.text for one in ET.fromstring(drawn).iter("{http://www.w3.org/2000/svg}text")}
    assert {"A tenant starts", "A neighbour comes and goes", "10 %", "90 %"} <= texts
