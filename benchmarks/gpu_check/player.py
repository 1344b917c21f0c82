"""A program that launches what it is told, one command at a time, with the shim or without it."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gpu_check.bench import WORKLOADS, patient
from gpu_check.outcome import CheckFailed, Lost
from gpu_check.place import Place, Room
from gpu_check.process import last_words, started

START_SECONDS: Final = 45.0
ANSWER_SECONDS: Final = 30.0
"""For a command beyond the time that it asks for itself."""


@dataclass(frozen=True, slots=True)
class Player:
    """room: where it runs; None without the shim. output: what it printed."""

    room: Room | None
    output: Path
    reading: asyncio.StreamReader
    writing: asyncio.StreamWriter

    async def tell(self, do: str, **words: object) -> Mapping[str, Any]:
        """Its answer to one command; raises CheckFailed, and Lost where none comes."""
        asked = sum(float(word) for word in words.values() if isinstance(word, float))
        try:
            self.writing.write(json.dumps({"do": do, **words}).encode() + b"\n")
            line = await asyncio.wait_for(
                self.reading.readline(), patient(ANSWER_SECONDS + 2 * asked)
            )
        except TimeoutError:
            raise Lost(f"player: no answer to {do!r}") from None
        except ConnectionError:
            line = b""
        if not line:
            raise CheckFailed(f"player: ended at {do!r}: {last_words(self.output)}")
        answer: Mapping[str, Any] = json.loads(line)
        return answer

    async def load(self, size: int, kernels: int) -> None:
        """Raises CheckFailed, also where the shim is in a program that is to be without, or not in
        one that is limited."""
        seen = await self.tell("load", size=size, kernels=kernels)
        if seen["shim"] != (self.room is not None):
            raise CheckFailed(f"player: the shim is {'' if seen['shim'] else 'not '}in the program")


@asynccontextmanager
async def player(place: Place, engine: str, room: Room | None = None) -> AsyncIterator[Player]:
    """Started, connected, with its context made; ends with this context.
    Raises CheckFailed and Lost."""
    output = place.output(f"player-{engine}")
    path, server, coming = output.with_suffix(".sock"), None, asyncio.Queue[_Streams](1)
    command: list[str | Path] = [place.machine.python, WORKLOADS / "player.py", str(path), engine]
    environment = place.outside() if room is None else place.inside(room)

    def connected(reading: asyncio.StreamReader, writing: asyncio.StreamWriter) -> None:
        coming.put_nowait((reading, writing))

    server = await asyncio.start_unix_server(connected, path)
    try:
        async with started(command, environment, output) as process:
            reading, writing = await _connected(process, coming, output)
            try:
                yield Player(room, output, reading, writing)
            finally:
                writing.close()
                with suppress(ConnectionError):
                    await writing.wait_closed()
    finally:
        server.close()


_Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def _connected(
    process: asyncio.subprocess.Process, coming: "asyncio.Queue[_Streams]", output: Path
) -> _Streams:
    """Its connection; or it ends before, or is too slow."""
    connection, end = asyncio.create_task(coming.get()), asyncio.create_task(process.wait())
    try:
        await asyncio.wait(
            (connection, end), timeout=patient(START_SECONDS), return_when=asyncio.FIRST_COMPLETED
        )
        if connection.done():
            return connection.result()
        if not end.done():
            raise Lost(f"player: not started within {START_SECONDS:.0f} s")
        raise CheckFailed(f"player: ended before its first command: {last_words(output)}")
    finally:
        connection.cancel()
        end.cancel()
