"""Processes of a container for the tests' own event loop, and waiting with a bound."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

PROGRAMS = Path(__file__).parent / "programs"

LOOK = 0.005
SECONDS = 120.0
"""After which a test is stuck; a busy machine may need many."""


async def eventually(condition: Callable[[], bool]) -> bool:
    """Whether the condition comes true within SECONDS.

    They are counted in looks: on a busy machine, where we come to look less often, they last
    longer.
    """
    for _ in range(round(SECONDS / LOOK)):
        if condition():
            return True
        await asyncio.sleep(LOOK)
    return condition()


class ContainerProcess:
    """A real process that has said HELLO (hello_client.py)."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.pid = process.pid

    @classmethod
    async def start(cls, socket: Path, *options: str) -> "ContainerProcess":
        pipe = asyncio.subprocess.PIPE
        return cls(
            await asyncio.create_subprocess_exec(
                sys.executable,
                PROGRAMS / "hello_client.py",
                socket,
                *options,
                stdin=pipe,
                stdout=pipe,
            )
        )

    async def answer(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(await asyncio.wait_for(self.process.stdout.readline(), SECONDS))

    async def ask(self, command: str) -> Any:
        assert self.process.stdin is not None
        self.process.stdin.write(command.encode() + b"\n")
        return await self.answer()

    async def kill(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await asyncio.wait_for(self.process.wait(), SECONDS)


StartProcess = Callable[..., Awaitable[ContainerProcess]]
"""How tests start one: its socket, and options."""
