"""Physical memory that several processes hold: a container's limit holds whoever lets go first."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from gpumanager.units import MIB
from tests.native.measured_node import CONTEXT, LIMIT, Start, measured_each
from tests.native.sim_box import PAGED

pytestmark = pytest.mark.namespaces

SHARED = 512 * MIB
PIECE = 32 * MIB


@pytest.fixture
async def start(work: Path) -> AsyncIterator[Start]:
    """A node whose manager measures as often as it may."""
    async with measured_each(work, 0.05) as begin:
        yield begin


PROCESSES = """
import subprocess, sys

EXPORTER = '''
import sys
from tests.native.programs import virtual_client as vm
from tests.native.programs.overhead_client import *
make()
code, handle = vm.create({shared}, shared=True)
assert code == SUCCESS
vm.send({socket!r}, vm.export(handle))
sys.stdin.readline()
assert vm.release(handle) == SUCCESS
print("released", flush=True)
sys.stdin.readline()
'''
IMPORTER = '''
import sys
from tests.native.programs import virtual_client as vm
from tests.native.programs.overhead_client import *
make()
listener = vm.listen({socket!r})
print("listens", flush=True)
print(vm.take(vm.receive(listener))[0], flush=True)
sys.stdin.readline()
'''

def process(words):
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", words], stdin=pipe, stdout=pipe, text=True)

def fill():
    "What can be had at once, and within a second."
    held = 0
    for turn in range(20):
        while allocate(driver, {piece})[0] == SUCCESS:
            held += {piece}
        time.sleep(0.05)
    return held

make()
importer = process(IMPORTER)
importer.stdout.readline()
exporter = process(EXPORTER)
imported = int(importer.stdout.readline())
"""
LET_GO = {
    "never": "",
    "released": 'exporter.stdin.write("\\n"); exporter.stdin.flush(); exporter.stdout.readline()',
    "killed": "exporter.kill(); exporter.wait()",
}


@pytest.mark.parametrize("counts", [True, False])
@pytest.mark.parametrize("let_go", LET_GO)
async def test_memory_that_an_importer_keeps_stays_charged(
    start: Start, let_go: str, *, counts: bool
) -> None:
    """counts: whether the driver counts it for both processes."""
    measured = start(replace(PAGED, counts_imports=counts))
    words = PROCESSES.format(shared=SHARED, piece=PIECE, socket=str(measured.work / "s"))

    told = await measured.run(
        f"{words}\n{LET_GO[let_go]}\n"
        "tell(imported=imported, mine=fill())\n"
        "importer.kill()\nexporter.kill()\n"
    )

    assert told["imported"] == 0
    assert measured.account().bytes_peak <= LIMIT
    twice = SHARED if counts and let_go == "never" else 0  # see decision 0087
    contexts = 2 if let_go == "killed" else 3
    assert told["mine"] > LIMIT - contexts * CONTEXT - SHARED - twice - PIECE
