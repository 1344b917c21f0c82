"""`gpumanager doctor --bundle FILE.tar.gz`: all that somebody needs to find out what is wrong.

Each source is read in a thread of its own and given up after some seconds: a driver that hangs
costs its own files, not the bundle. Progress goes to standard error.
"""

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Final

import click

from gpumanager import __version__
from gpumanager.cli.support.bundle_sources import Source, sources
from gpumanager.doctor.bundle import Piece, piece, within, write
from gpumanager.doctor.question import DoctorQuestion
from gpumanager.doctor.values import Unseen
from gpumanager.errors import GpuManagerError
from gpumanager.settings import AgentSettings

SOURCES_SECONDS: Final = 15.0
"""For all sources together: they are read at the same time."""
STDOUT: Final = Path("-")


def make_bundle(
    to: Path, settings: AgentSettings, logs: Path | None, reports: Iterable[Piece]
) -> None:
    """Write it, and print what is in it. reports: what the doctor itself has found.

    Raises GpuManagerError where it cannot be written.
    """
    made = time.time()
    pieces = within([*reports, *collect(sources(settings, logs), _print)])
    if to == STDOUT:
        write(pieces, __version__, made, sys.stdout.buffer)
        sys.stdout.buffer.flush()
    else:
        # Whole or not at all, and for its owner's eyes only.
        try:
            with NamedTemporaryFile(dir=to.parent, prefix=".bundle-", delete=False) as file:
                try:
                    write(pieces, __version__, made, file.file)
                    file.flush()
                    Path(file.name).rename(to)
                except BaseException:
                    Path(file.name).unlink(missing_ok=True)
                    raise
        except OSError as error:
            cause = error.strerror or os.strerror(error.errno or 0)
            raise GpuManagerError(f"{to}: cannot write the bundle: {cause}") from error
    there = [one for one in pieces if not one.cause]
    redacted = sum(one.redacted for one in there)
    _print(
        f"{to}: {len(there)} files, {sum(one.size for one in there):,} bytes before packing; "
        f"{len(pieces) - len(there)} could not be had, manifest.json says why; "
        f"secrets taken out: {redacted}. Read it before you give it away."
    )


def collect(
    wanted: Iterable[Source], say: Callable[[str], None], seconds: float = SOURCES_SECONDS
) -> Iterator[Piece]:
    """Yield pieces in the sources' order, each as soon as it is read."""
    asked = [(one, DoctorQuestion(one.text, seconds)) for one in wanted]
    for source, question in asked:
        answer = question.answer()
        if isinstance(answer, Unseen):
            found = Piece(source.name, source.origin, cause=answer.cause)
        else:
            found = piece(source.name, source.origin, answer)
        say(f"{found.name}: {found.cause or f'{found.size:,} bytes'}")
        yield found


def _print(text: str) -> None:
    click.echo("".join(one if one.isprintable() else "?" for one in text), err=True)
