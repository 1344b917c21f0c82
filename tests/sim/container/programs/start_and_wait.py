"""Start a container, print its pid at its first line: `python start_and_wait.py SPEC COPY`."""

import asyncio
import sys
from pathlib import Path

from gpumanager.sim.container.process import start_container
from gpumanager.sim.container.values import read_spec


async def main() -> None:
    def told(_line: str) -> None:
        sys.stdout.write(f"{one.pid}\n")
        sys.stdout.flush()

    one = await start_container(read_spec(Path(sys.argv[1])), Path(sys.argv[2]), told)
    await one.wait()


asyncio.run(main())
