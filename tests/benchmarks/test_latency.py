"""The table of latencies: which cells, what runs in them, and what is said of them."""

import json
from pathlib import Path

import latency
import pytest
from harness import HarnessResult

from gpumanager.errors import GpuManagerError
from gpumanager.sim.machine import REAL


def test_each_share_and_trainer_is_run_alone_first() -> None:
    words = ["--shares", "10,50", "--trainers", "2ms", "--ceilings", "hard,elastic"]

    found = list(latency.cases(latency.options(words)))

    assert [(one.share, one.limiter, one.ceiling) for one in found] == [
        (share, limiter, ceiling)
        for share in (10, 50)
        for limiter, ceiling in (
            ("alone", "-"),
            ("none", "-"),
            ("shim", "hard"),
            ("shim", "elastic"),
        )
    ]


def test_requests_arrive_at_the_load_of_the_services_share() -> None:
    text = latency.service_text(latency.options(["--load", "60", "--kernels", "15"]), 50)

    warm_up, counted = text.split("; ")
    assert "every=10000us" in counted  # 3 ms of work each 10 ms: 60 % of 50 %
    assert "seed=7 for=2s" in warm_up
    assert "seed=8 for=18s" in counted
    assert "sync=1" not in text


def test_a_decoding_service_waits_for_each_kernel() -> None:
    assert "sync=1 host=20us" in latency.service_text(latency.options(["--decode"]), 50)


def test_slices_and_switches_are_a_real_drivers_unless_given() -> None:
    chosen = latency.driver(latency.options(["--slice", "250"]))

    assert chosen is not None
    assert (chosen.slice_ns, chosen.switch_ns) == (250_000, REAL.switch_ns)
    assert latency.driver(latency.options([])) is None


@pytest.mark.parametrize(
    "words",
    [
        "--services 3 --shares 50",
        "--services 0",
        "--ceilings none",
        "--shares 0",
        "--shares ten",
        "--trainers 3ms",
        "--seconds 2",
    ],
)
def test_an_option_that_makes_no_sense_is_refused(words: str) -> None:
    with pytest.raises(SystemExit):
        latency.options(words.split())


def test_a_service_that_did_not_end_has_no_figures() -> None:
    played = HarnessResult(3, 0.1, {"service": (0.0,) * 30}, {"service": {}}, (0.0,) * 30)

    with pytest.raises(GpuManagerError, match="requests left"):
        latency.row(latency.Case(50, "200us", "alone", "-"), played, None)


@pytest.mark.namespaces
async def test_the_table_shows_what_a_neighbour_costs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "figures.json"
    words = ["--shares", "50", "--seconds", "4", "--wake", "50", "--json", str(file)]

    assert await latency.bench(latency.options(words)) == 0

    written = json.loads(file.read_text())
    alone, none, shim = written["rows"]
    assert written["simulated"]
    assert "simulated" in capsys.readouterr().out
    assert [one["limiter"] for one in written["rows"]] == ["alone", "none", "shim"]
    assert alone["p50"] == pytest.approx(3, rel=0.5)
    assert none["p99"] > 2 * alone["p99"] > shim["p99"]
    assert none["lost"] > shim["lost"] > 0
    assert alone["trained"] == 0 < shim["trained"]
