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


INTERNAL = (
    "gpumanager: internal error: ZeroDivisionError: oops"
    " (set GPUMANAGER_DEBUG=1 to see where, and please report it)"
)


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (InputError("topo.txt", "no GPU row", line=3), 2, "gpumanager: topo.txt:3: no GPU row"),
        (GpuManagerError("the agent died"), 1, "gpumanager: the agent died"),
        (click.UsageError("No."), 2, "gpumanager: plan: No. See gpumanager plan --help."),
        (KeyboardInterrupt(), 130, "\ngpumanager: interrupted"),  # below the ^C
        (GpuManagerError("two\nlines"), 1, "gpumanager: two lines"),
        (ZeroDivisionError("oops"), 1, INTERNAL),
    ],
)
def test_an_error_is_one_line_and_its_exit_status(
    error: BaseException,
    status: int,
    line: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("GPUMANAGER_DEBUG", raising=False)
    fail_with(error, monkeypatch)

    assert run(["plan"]) == status

    assert capsys.readouterr().err == line + "\n"


def test_the_traceback_is_shown_on_request(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GPUMANAGER_DEBUG", "1")
    fail_with(ZeroDivisionError("oops"), monkeypatch)

    run(["plan"])

    assert "Traceback" in capsys.readouterr().err


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


@pytest.mark.parametrize(
    ("output", "ended"),
    [
        ("| true", (0, "")),
        ("> /dev/full", (1, "gpumanager: cannot write: No space left on device\n")),
    ],
    ids=["a reader that goes away is no error", "a full disk is an error"],
)
def test_output_that_cannot_be_written(output: str, ended: tuple[int, str]) -> None:
    script = f"{sys.executable} -m gpumanager --help {output}"
    finished = subprocess.run(["sh", "-c", script], check=False, capture_output=True, text=True)

    assert (finished.returncode, finished.stderr) == ended


def test_help_does_not_load_what_commands_need() -> None:
    script = "import sys, gpumanager.cli as c; c.run(['--help']); sys.exit('grpc' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_version_is_a_command_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["version"]) == 0

    assert capsys.readouterr().out.startswith(f"gpumanager {__version__}, Python 3.")
