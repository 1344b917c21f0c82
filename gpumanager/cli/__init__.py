"""The command line: one module per command, imported only when its command is called.

Exit status: 0 the command did its job; 2 bad usage or unreadable input, with one line on stderr;
1 anything else that went wrong, with one line too. A traceback is shown only on request
with GPUMANAGER_DEBUG=1.
"""

import difflib
import errno
import importlib
import io
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Never

import click

from gpumanager import __version__
from gpumanager.errors import GpuManagerError

COMMANDS: Final = {
    "agent": "Run the node agent, which answers the kubelet.",
    "doctor": "Check a node: what is wrong with it, and what to do.",
    "explain": "Explain why a pod waits for a GPU, or why it got the one it has.",
    "extender": "Run kube-scheduler's extender, which chooses nodes and GPUs.",
    "plan": "Show which GPUs requests would get, from `nvidia-smi topo -m`.",
    "probe": "Ask the agent whether it is alive or ready, for kubelet probes.",
    "replay": "Replay a trace of a GPU cluster against placement policies.",
    "simulate": "Run pods on a simulated node, with the real agent.",
    "top": "Show GPUs and the containers on them, live.",
    "tree": "Show how the GPUs of a node are connected, and what is on them.",
    "version": "Print the version.",
    "webhook": "Run the admission webhook, which completes and checks pods.",
}
"""Command name to its line in `gpumanager --help`; each is the `command` of its module here."""

INTERRUPTED: Final = 130


class LazyCommands(click.Group):
    """Knows the commands by name; imports one when it is called or asked for its help."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        command = importlib.import_module(f"gpumanager.cli.{cmd_name}").command
        if not isinstance(command, click.Command):
            raise TypeError(f"gpumanager.cli.{cmd_name}.command is not a command")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        close = difflib.get_close_matches(name, COMMANDS, 1)
        if name not in COMMANDS and close and not name.startswith("-"):
            ctx.fail(f"No such command {name!r}. Did you mean {close[0]!r}?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(
    cls=LazyCommands, context_settings={"help_option_names": ["-h", "--help"], "show_default": True}
)
@click.version_option(__version__, prog_name="gpumanager", help="Print the version and exit.")
def gpumanager() -> None:
    """Share GPUs between containers: exact memory limits, guaranteed compute shares."""


def main(arguments: Sequence[str] | None = None) -> Never:
    """Run the command line and leave with its exit status."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # None where it is closed
            stream.reconfigure(errors="backslashreplace")
    sys.exit(run(arguments))


def program_name() -> str:
    """Return the name we were called by: for `kubectl gpu` kubectl starts `kubectl-gpu`."""
    return "kubectl gpu" if Path(sys.argv[0]).name.startswith("kubectl-gpu") else "gpumanager"


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status; what went wrong is one line on stderr."""
    try:
        result = gpumanager.main(
            args=None if arguments is None else list(arguments),
            prog_name=program_name(),
            standalone_mode=False,
        )
    except BrokenPipeError:  # the reader of our output went away, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - nobody catches after us
        return status_of(error)
    return result if isinstance(result, int) else 0


def status_of(error: BaseException) -> int:
    """Print what went wrong as its kind deserves, and return the exit status for it."""
    match error:
        case click.exceptions.NoArgsIsHelpError():
            click.echo(error.format_message(), err=True)
            return 2
        case click.ClickException():
            # Of a usage error: with the command it was about, and where help is.
            context = error.ctx if isinstance(error, click.UsageError) else None
            text = error.format_message()
            text += "" if text.endswith((".", "?", "!")) else "."
            name = context.info_name if context is not None and context.parent else None
            about, which = (f"{name}: ", f" {name}") if name else ("", "")
            return complain(f"{about}{text} See {program_name()}{which} --help.", 2)
        case GpuManagerError():
            return complain(str(error), error.exit_status)
        case click.Abort() | KeyboardInterrupt():
            return complain("interrupted", INTERRUPTED)
        case OSError(errno=errno.ENOSPC):
            return complain(f"cannot write: {error.strerror}", 1)
        case _:
            if os.environ.get("GPUMANAGER_DEBUG"):
                traceback.print_exception(error)
            advice = "set GPUMANAGER_DEBUG=1 to see where, and please report it"
            return complain(f"internal error: {type(error).__name__}: {error} ({advice})", 1)


def complain(text: str, status: int) -> int:
    """Print it in one line on stderr."""
    words = "".join(letter if letter.isprintable() else " " for letter in text).split()
    click.echo("gpumanager: " + " ".join(words), err=True)
    return status
