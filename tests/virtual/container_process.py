"""Processes of a container for the tests' own event loop, and waiting with a bound."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


async def eventually(condition: Callable[[], bool], within: float = 1.0) -> bool:
    """Whether the condition comes true within so many seconds."""
    loop = asyncio.get_running_loop()
    end = loop.time() + within
    while not condition() and loop.time() < end:  # noqa: ASYNC110 - nobody to set an event
        await asyncio.sleep(0.005)
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
                sys.executable, HERE / "hello_client.py", socket, *options, stdin=pipe, stdout=pipe
            )
        )

    async def answer(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(await asyncio.wait_for(self.process.stdout.readline(), 20))

    async def ask(self, command: str) -> Any:
        assert self.process.stdin is not None
        self.process.stdin.write(command.encode() + b"\n")
        return await self.answer()

    async def kill(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await asyncio.wait_for(self.process.wait(), 20)


StartProcess = Callable[..., Awaitable[ContainerProcess]]
"""How tests start one: its socket, and options."""
