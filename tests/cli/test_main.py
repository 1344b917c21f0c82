"""The top of the command line: exit statuses, and one line on stderr whatever happens."""

import subprocess
import sys

import click
import pytest

from gpumanager import __version__
from gpumanager.cli import COMMANDS, gpumanager, run
from gpumanager.errors import GpuManagerError, InputError


def fail_with(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the `plan` command raise `error`."""

    @click.command()
    def failing() -> None:
        raise error

    monkeypatch.setattr(gpumanager, "get_command", lambda ctx, name: failing)


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (InputError("topo.txt", "no GPU row", line=3), 2, "gpumanager: topo.txt:3: no GPU row"),
        (GpuManagerError("the agent died"), 1, "gpumanager: the agent died"),
        (click.UsageError("No."), 2, "gpumanager: plan: No. See gpumanager plan --help."),
        (KeyboardInterrupt(), 130, "\ngpumanager: interrupted"),  # below the ^C
        (GpuManagerError("two\nlines"), 1, "gpumanager: two lines"),
    ],
)
def test_an_error_is_one_line_and_its_exit_status(
    error: BaseException,
    status: int,
    line: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    fail_with(error, monkeypatch)

    assert run(["plan"]) == status

    assert capsys.readouterr().err == line + "\n"


def test_a_fault_of_ours_is_one_line_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("GPUMANAGER_DEBUG", raising=False)
    fail_with(ZeroDivisionError("oops"), monkeypatch)

    assert run(["plan"]) == 1

    shown = capsys.readouterr().err
    assert shown.startswith("gpumanager: internal error: ZeroDivisionError: oops")
    assert shown.count("\n") == 1


def test_the_traceback_is_shown_to_who_asks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GPUMANAGER_DEBUG", "1")
    fail_with(ZeroDivisionError("oops"), monkeypatch)

    run(["plan"])

    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["nope"], ["plan", "--nope"], ["--nope"], [""]])
def test_bad_usage_is_status_2_and_one_line(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2

    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("gpumanager: ")
    assert shown.err.count("\n") == 1


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([name, "--help"]) == 0

    assert "Usage: gpumanager" in capsys.readouterr().out


def test_a_kubectl_plugin_calls_itself_as_kubectl_does(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["/usr/local/bin/kubectl-gpu"])

    assert run(["top", "--help"]) == 0
    assert run(["top", "--nothing"]) == 2
    said = capsys.readouterr()
    assert said.out.startswith("Usage: kubectl gpu top")
    assert "See kubectl gpu top --help." in said.err


def test_no_command_shows_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 2

    shown = capsys.readouterr().err
    assert all(name in shown for name in COMMANDS)


def test_a_reader_that_goes_away_is_no_error() -> None:
    script = f"{sys.executable} -m gpumanager --help | true"
    finished = subprocess.run(["sh", "-c", script], check=False, capture_output=True, text=True)

    assert (finished.returncode, finished.stderr) == (0, "")


def test_a_full_disk_is_said() -> None:
    script = f"{sys.executable} -m gpumanager --help > /dev/full"
    finished = subprocess.run(["sh", "-c", script], check=False, capture_output=True, text=True)

    assert finished.returncode == 1
    assert finished.stderr == "gpumanager: cannot write: No space left on device\n"


def test_a_file_s_name_cannot_move_the_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", "--topology", "\x1b[2Jnowhere", "--request", "100"]) == 2

    assert capsys.readouterr().err.startswith("gpumanager: [2Jnowhere: cannot be read")


def test_a_usage_error_ends_with_one_full_stop_before_the_advice(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run(["simulate", "--timeout", "nan", "x.yaml"])
    run(["plan", "--nope"])

    first, second = capsys.readouterr().err.splitlines()
    assert first.endswith("is not a time; write for example 30s. See gpumanager simulate --help.")
    assert second.endswith("Did you mean '--occupied'? See gpumanager plan --help.")


def test_help_does_not_load_what_commands_need() -> None:
    script = "import sys, gpumanager.cli as c; c.run(['--help']); sys.exit('grpc' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


@pytest.mark.parametrize(
    ("written", "meant"), [("simulat", "simulate"), ("explian", "explain"), ("agents", "agent")]
)
def test_a_misspelled_command_is_told_what_is_meant(
    written: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([written]) == 2

    assert f"Did you mean '{meant}'? See gpumanager --help." in capsys.readouterr().err


def test_a_command_like_no_other_gets_no_advice(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["xyzzy"]) == 2

    assert "Did you mean" not in capsys.readouterr().err


def test_version_is_a_command_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["version"]) == 0

    assert capsys.readouterr().out.startswith(f"gpumanager {__version__}, Python 3.")
