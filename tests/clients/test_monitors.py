"""nvitop, gpustat and nvtop in a container: its limit, its own processes, and nobody else's."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gpumanager.units import GIB, MIB
from tests.clients import sources
from tests.clients.client_box import ClientBox

pytest_plugins = ["tests.clients.client_fixtures"]
pytestmark = [pytest.mark.clients, pytest.mark.namespaces]

LIMIT, HELD, NEIGHBOURS = 4 * GIB, 300 * MIB, 700 * MIB


def holding(size: int, *command: str) -> str:
    """A program that holds so much, runs a command if there is one, and tells its own pid."""
    return f"""
import os, subprocess, sys
from tests.native.programs.shim_client import allocate, begin, cuda
driver = cuda()
begin(driver)
assert allocate(driver, {size})[0] == 0
command = {command!r}
output = subprocess.run(command, text=True, capture_output=True).stdout if command else ""
tell(pid=os.getpid(), output=output)
"""


@pytest.fixture
async def neighbour(clients: ClientBox, tmp_path: Path) -> AsyncIterator[int]:
    """The pid of a process of another container that holds memory on the same GPU."""
    ready = tmp_path / "ready"
    wait = f"open({str(ready)!r}, 'w').close()\nimport time\ntime.sleep(600)\n"
    script = "def tell(**_): pass\n" + holding(NEIGHBOURS) + wait
    process = await clients.start(sys.executable, "-c", script, limit=8 * GIB)
    try:
        async with asyncio.timeout(300):
            while not ready.exists():  # noqa: ASYNC110 - another process makes it
                await asyncio.sleep(0.01)
        yield process.pid
    finally:
        await process.close()


async def look(clients: ClientBox, *command: str) -> tuple[int, str]:
    """The pid of the process that held memory, and what the monitor beside it printed."""
    finished = await clients.python(holding(HELD, sys.executable, "-m", *command), limit=LIMIT)
    return finished.told["pid"], finished.told["output"]


async def test_gpustat_shows_the_limit_and_the_containers_own_process(
    clients: ClientBox, neighbour: int
) -> None:
    pid, output = await look(clients, "gpustat", "--json")
    without_shim = await clients.run(sys.executable, "-m", "gpustat", "--json")

    (gpu,) = json.loads(output)["gpus"]
    assert (gpu["memory.total"], gpu["memory.used"]) == (LIMIT // MIB, HELD // MIB)
    shown = [(process["pid"], process["gpu_memory_usage"]) for process in gpu["processes"]]
    assert shown == [(pid, HELD // MIB)]
    assert f'"pid": {neighbour}' in without_shim.text


async def test_nvitop_shows_the_limit_and_the_containers_own_process(
    clients: ClientBox, neighbour: int
) -> None:
    pid, output = await look(clients, "nvitop", "--once", "--no-unicode")

    assert f"{HELD // MIB}.0MiB / {LIMIT // MIB}MiB" in output
    processes = output.partition("Processes:")[2]
    assert f" {pid} " in processes
    assert str(neighbour) not in processes


NVTOP = """
import subprocess, select, time, pyte
terminal = dict(os.environ, TERM="linux", LINES="40", COLUMNS="120")
process = subprocess.Popen(
    [{program!r}, "--no-color", "--no-plot"],
    env=terminal, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
)
screen = pyte.Screen(120, 40)
stream = pyte.ByteStream(screen)
end = time.monotonic() + 120
while time.monotonic() < end and not any(" Compute " in line for line in screen.display):
    if select.select([process.stdout], [], [], 1)[0]:
        stream.feed(os.read(process.stdout.fileno(), 1 << 16))
process.kill()
print("\\n".join(screen.display))
"""


async def test_nvtop_shows_the_limit_and_the_containers_own_process(
    clients: ClientBox, neighbour: int
) -> None:
    try:
        folder = sources.built("nvtop-3.0.1", sources.nvtop)
    except sources.Unavailable as why:
        pytest.skip(f"nvtop: {why}")
    program = str(folder / "unpacked" / "usr" / "bin" / "nvtop")
    script = holding(HELD, sys.executable, "-c", "import os\n" + NVTOP.format(program=program))
    finished = await clients.python(script, limit=LIMIT)
    without_shim = await clients.python(script)

    output = finished.told["output"]
    assert f"{HELD / GIB:.3f}Gi/{LIMIT / GIB:.3f}Gi" in output
    shown = [line for line in output.splitlines() if " Compute " in line]
    assert len(shown) == 1
    assert shown[0].split()[0] == str(finished.told["pid"])
    assert f"{HELD // MIB}MiB" in shown[0]
    assert f" {neighbour} " in without_shim.told["output"]
