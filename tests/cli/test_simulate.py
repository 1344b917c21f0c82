"""`gpumanager simulate`: usage, bad input, and how results are shown."""

import contextlib
import io
import json
import os
import socket
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from gpumanager.cli import run
from gpumanager.cli.output import simulate_report
from gpumanager.cli.output.simulate_progress import Progress, plain
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

POD_TEXT = """\
apiVersion: v1
kind: Pod
metadata: {name: one}
spec:
  containers:
    - name: main
      command: ["true"]
"""


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


def complaint(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line on stderr of a run that ends with status 2."""
    assert run(["simulate", *arguments]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    return said


def test_without_a_pod_it_says_what_to_type(capsys: pytest.CaptureFixture[str]) -> None:
    assert "gpumanager simulate --machine t4x4 examples/half-a-gpu.yaml" in complaint(capsys)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--machine", "dgx", "POD"], "--machine: no machine 'dgx': known are dgx-a100"),
        (["--machine", "none.yaml", "POD"], "none.yaml: cannot be read: No such file"),
        (["none.yaml"], "none.yaml: cannot be read: No such file"),
        (["--cuda-version", "13", "POD"], "--cuda-version: expected for example 13.4, found '13'"),
        (["--seed", "x", "POD"], "'x' is not a valid integer range"),
        (["--seed", "-1", "POD"], "-1 is not in the range"),
        (["--timeout", "0", "POD"], "'0' is not a time; write for example 30s"),
        (["--timeout", "nan", "POD"], "'nan' is not a time"),
        (["--what", "POD"], "No such option '--what'"),
        (["BROKEN"], "broken.yaml:1: not YAML"),
        (["EMPTY"], "empty.yaml: no pod in it"),
        (["POD", "POD"], "a second pod default/one"),
    ],
)
def test_bad_input_is_one_line_and_status_2(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {"POD": POD_TEXT, "BROKEN": "a: [", "EMPTY": ""}
    for name, text in files.items():
        (tmp_path / f"{name.lower()}.yaml").write_text(text)
    paths = {name: str(tmp_path / f"{name.lower()}.yaml") for name in files}
    words = [paths.get(word, word) for word in arguments]

    assert message in complaint(capsys, *words)


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


@pytest.mark.parametrize("width", [80, 100, 160])
def test_the_table_fits_and_says_everything(
    width: int,
    machine: Machine,
    results: tuple[ContainerResult, ...],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(simulate_report, "WIDTH_WITHOUT_TERMINAL", width)

    print_report(Report(machine, results))

    shown = capsys.readouterr().out
    assert max(len(line) for line in shown.splitlines()) <= width
    together = " ".join(shown.split())
    for words in ("half", "50 cores", "fullest GPU that still fits", "49.8 of 50 %", "0, 1, 2, 3"):
        assert words in together
    assert "refused: UnexpectedAdmissionError: not [valid]" in together
    assert "8 x NVIDIA A100-SXM4-40GB" in together


def test_a_narrow_table_breaks_between_words(
    machine: Machine,
    results: tuple[ContainerResult, ...],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(simulate_report, "WIDTH_WITHOUT_TERMINAL", 80)
    long = replace(results[0], pod=pod("one-and-a-half-gpus", 50, 8))

    print_report(Report(machine, (long, *results)))

    words = capsys.readouterr().out.split()
    assert {"one-and-a-half-gpus", "/main", "cores,"} <= set(words)


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
        progress.show(events.ContainerPrinted(one, main, "\x1b[31mepoch [1]\x07"))
        running = progress.unfinished
        progress.show(events.ContainerEnded(one, main, 0))
        progress.show(events.PodRefused(pod("two", 1, 0), Rejection("R", "m", "no memory asked")))

    said = capsys.readouterr()
    assert running == "still running: one/main"
    assert said.out == ""
    for words in (
        "agent registered",
        "one/main on GPU 3",
        "epoch [1]",
        "exit 0",
        "no memory asked",
    ):
        assert words in said.err


def test_output_of_a_program_cannot_move_the_cursor() -> None:
    assert plain("a\x1b[2Jb\tc") == "a [2Jb c"


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


def test_a_port_that_is_taken_is_said_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pod.yaml").write_text(POD_TEXT)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]

        status = run(["simulate", "--serve", str(port), str(tmp_path / "pod.yaml")])

    assert status == 1
    said = capsys.readouterr().err
    assert said == (
        f"gpumanager: cannot serve on port {port}: Address already in use; "
        "name another one with --serve PORT\n"
    )


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


def test_a_busy_machine_is_said_in_one_line(
    machine: Machine,
    results: tuple[ContainerResult, ...],
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_report(Report(machine, results, late=0.12))
    busy = capsys.readouterr().out
    print_report(Report(machine, results, late=0.01))
    quiet = capsys.readouterr().out

    assert "This machine was busy: programs waited for a processor for 12%" in busy
    assert "busy" not in quiet


def test_the_header_does_not_break_above_short_names(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    short = pod("a", 30, 4)

    print_report(Report(machine, [ContainerResult(short, short.containers[0], refused="x")]))

    assert any(line.startswith("pod/container ") for line in capsys.readouterr().out.splitlines())


def test_the_column_of_reasons_is_there_only_where_one_is_needed(
    machine: Machine, results: tuple[ContainerResult, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    print_report(Report(machine, results))
    enough = capsys.readouterr().out
    less = replace(results[0], measured=replace(results[0].measured, share=20.0, memory_denied=0))
    print_report(Report(machine, [less]))
    short = capsys.readouterr().out

    assert "because" not in enough
    assert "because" in short
    assert "asked for less" in short
