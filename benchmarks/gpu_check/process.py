"""A program of the check: run to its end or its bound, with nothing of it left behind."""

import asyncio
import contextlib
import json
import os
import signal
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from gpu_check.bench import patient
from gpu_check.outcome import CheckFailed, Lost

LAST_WORDS: Final = 3
"""Lines of a failed program's output that are shown."""


@asynccontextmanager
async def started(
    command: Sequence[str | Path], environment: Mapping[str, str], output: Path
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A program with its output in a file; whatever it started ends with this context."""
    with output.open("wb") as file:
        process = await asyncio.create_subprocess_exec(
            *map(str, command),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            env=dict(environment),
            start_new_session=True,
        )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


async def told(
    command: Sequence[str | Path], environment: Mapping[str, str], output: Path, seconds: float
) -> dict[str, Any]:
    """What a program said, all its lines of JSON in one, and in `wall_s` how long it took; raises
    CheckFailed, and Lost where it does not end in time."""
    begun = time.monotonic()
    lines = await lines_of(command, environment, output, seconds)
    answers = [answer for answer in map(_answer, lines) if answer is not None]
    if not answers:
        raise CheckFailed(f"{_name(command)} ended without an answer: {_last(lines)}")
    seen = {key: value for answer in answers for key, value in answer.items()}
    return seen | {"wall_s": round(time.monotonic() - begun, 2)}


async def lines_of(
    command: Sequence[str | Path], environment: Mapping[str, str], output: Path, seconds: float
) -> list[str]:
    """What a program printed; raises CheckFailed, and Lost where it does not end in time."""
    async with started(command, environment, output) as process:
        try:
            status = await asyncio.wait_for(process.wait(), patient(seconds))
        except TimeoutError:
            raise Lost(f"{_name(command)} did not end within {seconds:.0f} s") from None
    lines = _lines(output)
    if status != 0:
        raise CheckFailed(f"{_name(command)}: {_ended(status)}: {_last(lines)}")
    return lines


def last_words(output: Path) -> str:
    return _last(_lines(output))


def _lines(output: Path) -> list[str]:
    return output.read_text(errors="replace").splitlines()


def _answer(line: str) -> dict[str, Any] | None:
    if not line.startswith("{"):
        return None
    try:
        answer = json.loads(line)
    except ValueError:
        return None
    return answer if isinstance(answer, dict) else None


def _name(command: Sequence[str | Path]) -> str:
    """The script's name, or the program's."""
    scripts = [Path(word).name for word in command if str(word).endswith(".py")]
    return scripts[0] if scripts else Path(command[0]).name


def _ended(status: int) -> str:
    if status < 0:
        return f"ended by {signal.Signals(-status).name}"
    return f"exit status {status}"


def _last(lines: Sequence[str]) -> str:
    said = [line.strip() for line in lines if line.strip()]
    return " | ".join(said[-LAST_WORDS:]) or "it said nothing"
