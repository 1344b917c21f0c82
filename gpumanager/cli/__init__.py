"""The command line: one module per command, imported only when its command is called.

Exit status: 0 the command did its job; 2 bad usage or unreadable input, with one line on stderr;
1 anything else that went wrong, with one line too. A traceback is shown only on request
with GPUMANAGER_DEBUG=1.
"""

import errno
import importlib
import io
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Final, Never

import click

from gpumanager import __version__
from gpumanager.errors import GpuManagerError

COMMANDS: Final = {
    "agent": "The node agent: answers the kubelet, serves containers their limits.",
    "doctor": "What this node has for the agent, what is wrong with it, and what to do.",
    "explain": "Why a pod waits for a GPU, or why it got the one it has.",
    "extender": "kube-scheduler's extender: which nodes have the GPUs, which GPUs it will be.",
    "plan": "What would be placed where, from the text of `nvidia-smi topo -m`.",
    "probe": "Whether the agent is alive or ready, for the kubelet's probes.",
    "replay": "Traces of GPU clusters, placed by the policies of the scheduler.",
    "simulate": "A whole node in a box: real agent, simulated GPUs, your pods.",
    "top": "Who has which GPU, what they use of it and who waits, as it goes on.",
    "tree": "How the GPUs of a node lie, and who sits where.",
    "webhook": "Completes and judges new pods that ask for GPUs, for the API server.",
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

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=LazyCommands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="gpumanager")
def gpumanager() -> None:
    """Share GPUs between containers: exact memory limits, guaranteed compute shares."""


def main(arguments: Sequence[str] | None = None) -> Never:
    """Run the command line and leave with its exit status."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # None where it is closed
            stream.reconfigure(errors="backslashreplace")
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status; what went wrong is one line on stderr."""
    try:
        result = gpumanager.main(
            args=None if arguments is None else list(arguments),
            prog_name="gpumanager",
            standalone_mode=False,
        )
    except BrokenPipeError:  # the reader of our output went away, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - nobody catches after us
        return status_of(error)
    return result if isinstance(result, int) else 0


def status_of(error: BaseException) -> int:
    """Say what went wrong as its kind deserves, and give the exit status for it."""
    match error:
        case click.exceptions.NoArgsIsHelpError():
            click.echo(error.format_message(), err=True)
            return 2
        case click.ClickException():
            return complain(_with_command(error), 2)
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
    """Say it in one line on stderr."""
    words = "".join(letter if letter.isprintable() else " " for letter in text).split()
    click.echo("gpumanager: " + " ".join(words), err=True)
    return status


def _with_command(error: click.ClickException) -> str:
    """The message of a usage error, with the command it was about and where help is."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    said = error.format_message()
    said += "" if said.endswith((".", "?", "!")) else "."
    if context is None or context.parent is None:
        return f"{said} See gpumanager --help."
    name = context.info_name
    return f"{name}: {said} See gpumanager {name} --help."
