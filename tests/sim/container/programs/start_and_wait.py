"""Start a container, print its pid at its first line: `python start_and_wait.py SPEC`."""

import asyncio
import sys
from pathlib import Path

from gpumanager.sim.container.process import start_container
from gpumanager.sim.container.values import ContainerSpec


async def main(spec: ContainerSpec) -> None:
    def told(_line: str) -> None:
        sys.stdout.write(f"{one.pid}\n")
        sys.stdout.flush()

    one = await start_container(spec, told)
    await one.wait()


asyncio.run(main(ContainerSpec.read(Path(sys.argv[1]).read_text())))
