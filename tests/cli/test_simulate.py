"""`gpumanager simulate`: its flags, and how results are shown."""

import contextlib
import io
import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from gpumanager.cli.output import simulate_report
from gpumanager.cli.output.simulate_progress import Progress
from gpumanager.cli.output.simulate_report import Report, as_json, print_report, shortfall
from gpumanager.cli.simulate import check_ports, command
from gpumanager.errors import GpuManagerError
from gpumanager.kube.pod import ContainerKind
from gpumanager.names import VCORE, VMEMORY
from gpumanager.sim import events
from gpumanager.sim.kubelet.pods import Rejection
from gpumanager.sim.machine import Machine
from gpumanager.sim.machines import load_machine, machine_names
from gpumanager.sim.manifest.pods import ContainerManifest, Pod
from gpumanager.sim.results import ContainerResult, MeasuredUse
from gpumanager.units import GIB


@pytest.fixture
def machine() -> Machine:
    return load_machine("dgx-a100")


def pod(name: str, cores: int, blocks: int) -> Pod:
    asks = {VCORE: cores, VMEMORY: blocks}
    return Pod("default", name, (ContainerManifest("main", ContainerKind.APP, ("x",), asks=asks),))


@pytest.fixture
def results(machine: Machine) -> tuple[ContainerResult, ...]:
    """One that ran within its limits, one on whole GPUs, one that never ran."""
    gpus = machine.topology.gpus
    half, four, none = pod("half", 50, 8), pod("four", 400, 0), pod("none", 150, 0)
    return (
        ContainerResult(
            half,
            half.containers[0],
            gpus=gpus[4:5],
            why="fullest GPU that still fits",
            memory_limit=2 * GIB,
            measured=MeasuredUse(memory_peak=2 * GIB, memory_denied=3, share=49.8),
            exit_code=0,
        ),
        ContainerResult(
            four,
            four.containers[0],
            gpus=gpus[:4],
            memory_limit=160 * GIB,
            measured=MeasuredUse(memory_peak=GIB),
            exit_code=1,
        ),
        ContainerResult(none, none.containers[0], refused="UnexpectedAdmissionError: not [valid]"),
    )


def test_the_machines_are_listed() -> None:
    finished = CliRunner().invoke(command, ["--list-machines"])

    assert finished.exit_code == 0
    for name in machine_names():
        assert name in finished.output


def test_json_has_the_fields_others_script_against(
    machine: Machine, results: tuple[ContainerResult, ...]
) -> None:
    report = json.loads(json.dumps(as_json(Report(machine, results))))

    assert report["machine"] == "dgx-a100"
    assert report["containers"][0] == {
        "pod": "default/half",
        "container": "main",
        "gpus": [machine.topology.gpus[4].uuid],
        "cores": 50,
        "memory_limit_bytes": 2 * GIB,
        "memory_peak_bytes": 2 * GIB,
        "memory_denied": 3,
        "share_target_percent": 50,
        "share_achieved_percent": 49.8,
        "share_less_because": None,
        "throttled_launches": 0,
        "throttled_seconds": 0.0,
        "exit_code": 0,
        "stopped": False,
        "refused": None,
    }
    assert report["containers"][1]["share_target_percent"] == 100
    assert report["containers"][2]["exit_code"] is None
    assert report["containers"][2]["gpus"] == []
    assert report["containers"][2]["refused"] == "UnexpectedAdmissionError: not [valid]"


@pytest.mark.parametrize("width", [80, 160])
def test_the_table_fits_and_says_everything(
    width: int,
    machine: Machine,
    results: tuple[ContainerResult, ...],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(simulate_report, "WIDTH_WITHOUT_TERMINAL", width)
    long = replace(results[0], pod=pod("one-and-a-half-gpus", 50, 8))

    print_report(Report(machine, (long, *results)))

    shown = capsys.readouterr().out
    assert max(len(line) for line in shown.splitlines()) <= width
    together = " ".join(shown.split())
    for words in (
        "half",
        "50 cores",
        "fullest GPU that still fits",
        "49.8 of 50 %",
        "0, 1,",
        "2, 3",
    ):
        assert words in together
    assert "refused: UnexpectedAdmissionError: not [valid]" in together
    assert "8 x NVIDIA A100-SXM4-40GB" in together
    names = {"one-and-a-half-gpus", "/main"} if width == 80 else {"one-and-a-half-gpus/main"}
    assert names <= set(shown.split())  # a narrow table breaks between words


def test_the_table_uses_characters_that_the_output_has(
    machine: Machine, results: tuple[ContainerResult, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))

    print_report(Report(machine, results))
    sys.stdout.flush()

    assert b"-" * 80 in written.getvalue()


def test_a_reader_of_the_table_may_go_away(
    machine: Machine, results: tuple[ContainerResult, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with contextlib.suppress(BrokenPipeError), open(writing, "w") as closed:  # noqa: PTH123
        monkeypatch.setattr(sys, "stdout", closed)

        with pytest.raises(BrokenPipeError):
            print_report(Report(machine, results))


def test_progress_that_nobody_reads_stops_nothing(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with contextlib.suppress(OSError), Path("/dev/full").open("w") as full:
        monkeypatch.setattr(sys, "stderr", full)

        with Progress(machine) as progress:
            progress.show(events.NodeReady(8))
            progress.show(events.PodAdmitted(pod("one", 30, 4)))
            heard = progress.unfinished

    assert heard == "no container was running yet"


def test_progress_tells_each_event_on_stderr(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    one = pod("one", 30, 4)
    main = one.containers[0]
    uuid = machine.topology.gpus[3].uuid

    with Progress(machine) as progress:
        progress.show(events.NodeReady(8))
        progress.show(events.PodAdmitted(one))
        progress.show(events.ContainerStarted(one, main, uuid))
        progress.show(events.ContainerPrinted(one, main, "\x1b[31mepoch\t[1]\x07"))
        running = progress.unfinished
        progress.show(events.ContainerEnded(one, main, 0))
        progress.show(events.PodRefused(pod("two", 1, 0), Rejection("R", "m", "no memory asked")))

    said = capsys.readouterr()
    assert running == "still running: one/main"
    assert said.out == ""
    for words in (
        "agent registered",
        "one/main on GPU 3",
        " [31mepoch [1]",
        "exit 0",
        "no memory asked",
    ):
        assert words in said.err


def test_a_terminal_of_another_width_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Console, "is_terminal", property(lambda self: True))
    monkeypatch.setenv("COLUMNS", "64")

    assert simulate_report.console_for_results().width == 64


@pytest.mark.parametrize(
    ("words", "port"),
    [
        (["--serve", "x.yaml"], 5678),
        (["--serve", "6000", "x.yaml"], 6000),
        (["--serve=6000", "x.yaml"], 6000),
        (["x.yaml", "--serve"], 5678),
        (["x.yaml"], None),
    ],
)
def test_the_port_of_serve_may_be_left_out(words: list[str], port: int | None) -> None:
    context = command.make_context("simulate", words)

    assert context.params["serve"] == port
    assert context.params["pods"] == (Path("x.yaml"),)


def test_ports_end_somewhere() -> None:
    with pytest.raises(GpuManagerError, match="port 65536: there is no such port"):
        check_ports(65535, 2)


@pytest.mark.parametrize(
    ("share", "throttled", "denied", "late", "why"),
    [
        (30.0, 0.0, 0, 0.0, None),
        (28.6, 0.0, 0, 0.0, None),
        (None, 0.0, 0, 0.0, None),
        (10.0, 0.0, 0, 0.0, "asked for less"),
        (10.0, 0.5, 0, 0.0, "asked for less"),
        (10.0, 9.0, 0, 0.0, "throttled"),
        (25.0, 9.0, 0, 0.3, "this machine was busy"),
        (25.0, 0.0, 0, 0.3, "this machine was busy"),
        (10.0, 0.0, 0, 0.05, "asked for less"),
        (10.0, 0.0, 2, 0.0, "refused memory"),
    ],
)
def test_less_than_its_share_has_a_reason(  # noqa: PLR0917 - a row of the table
    share: float | None,
    throttled: float,
    denied: int,
    late: float,
    why: str | None,
    machine: Machine,
) -> None:
    """Of 30 %, in 10 seconds."""
    asking = pod("p", 30, 4)
    measured = MeasuredUse(
        share=share, memory_denied=denied, throttled_seconds=throttled, seconds=10
    )
    result = ContainerResult(
        asking, asking.containers[0], gpus=machine.topology.gpus[:1], measured=measured
    )

    assert shortfall(result, late) == why


def test_the_report_says_what_is_the_matter_and_no_more(
    machine: Machine, results: tuple[ContainerResult, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    def printed(*found: ContainerResult, late: float = 0.0) -> str:
        print_report(Report(machine, found, late))
        return capsys.readouterr().out

    less = replace(results[0], measured=replace(results[0].measured, share=20.0, memory_denied=0))
    one = pod("a", 30, 4)
    well, short, busy = printed(*results, late=0.01), printed(less), printed(*results, late=0.12)
    narrow = printed(ContainerResult(one, one.containers[0], refused="x"))

    assert "because" not in well
    assert "because" in short
    assert "asked for less" in short
    assert "busy" not in well
    assert "This machine was busy: programs waited for a processor for 12%" in busy
    assert any(line.startswith("pod/container ") for line in narrow.splitlines())
