"""A simulated machine in a directory, and programs that run against its driver.

`Client` is a Python process that has loaded the simulated libcuda by ctypes. It evaluates what it
is asked in the words of sim_client.py, so that a test can let several processes act in turn.
"""

import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import vcuda_shim
from gpumanager.gpu.values import Bond, Gpu, GpuUUID, Level, topology
from gpumanager.sim.gpu import DeviceAccount, SimulatedGpus, install_driver
from gpumanager.sim.machine import IDEAL, DriverBehaviour, GpuModel, Machine
from gpumanager.units import GIB, Bytes
from tests import ROOT

ANSWER_WITHIN = 120.0


PAGE = 2 << 20
PAGED = DriverBehaviour(page_bytes=PAGE, slab_most_bytes=PAGE // 2)
"""Memory comes in pages, as from real drivers."""


def machine(
    count: int = 2,
    *,
    nvlinks: int = 0,
    context_bytes: int = 0,
    reserved_bytes: int = 0,
    capability: int = 7,
    driver: DriverBehaviour = IDEAL,
    cuda_version: int = 12050,
) -> Machine:
    """GPUs of 16 GiB in pairs under one switch, each pair on its own NUMA node."""
    gpus = [
        Gpu(
            index=index,
            minor=count - 1 - index,
            uuid=GpuUUID(f"GPU-{uuid.UUID(int=0xA0 + index)}"),
            bus_id=f"00000000:{0x10 + index:02X}:00.0",
            model="T4",
            memory=Bytes(16 * GIB),
            numa_node=index // 2,
        )
        for index in range(count)
    ]
    bonds = [
        [None if a == b else Bond(level(a, b), nvlinks) for b in range(count)] for a in range(count)
    ]
    model = GpuModel("Tesla T4", 40, (capability, 5), 1024, context_bytes, reserved_bytes)
    return Machine("box", topology(gpus, bonds), {"T4": model}, cuda_version, driver)


def level(a: int, b: int) -> Level:
    return Level.PIX if a // 2 == b // 2 else Level.SYS


class Client:
    """One process using the simulated driver."""

    def __init__(self, environment: Mapping[str, str], prefix: Sequence[str] = ()) -> None:
        script = ROOT / "tests/native/programs/sim_client.py"
        self._process = subprocess.Popen(
            [*prefix, sys.executable, "-u", str(script)],
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def __call__(self, expression: str) -> Any:
        self.begin(expression)
        return self.answer()

    def begin(self, expression: str) -> None:
        """Let it work without waiting for the answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(expression + "\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], ANSWER_WITHIN)
        assert ready, "no answer in time"
        return json.loads(self._process.stdout.readline())

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        self.kill()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()


class SimBox:
    """The machine, and the programs started on it."""

    def __init__(self, directory: Path, described: Machine) -> None:
        self.machine = described
        self.directory = directory
        self.gpus = SimulatedGpus.create(directory, described)
        self.libraries = install_driver(directory, described.cuda_version)
        self._clients: list[Client] = []

    @property
    def uuid(self) -> GpuUUID:
        """Of the first GPU."""
        return self.machine.topology.gpus[0].uuid

    def account(self, gpu: int = 0) -> DeviceAccount:
        """Of the first container there."""
        return self.gpus.tenants()[0].devices[self.machine.topology.gpus[gpu].uuid]

    def pages(self, gpu: int = 0) -> int:
        """Used of a GPU, by the ledger, in pages of 2 MiB."""
        found = self.gpus.device_bytes(self.machine.topology.gpus[gpu].uuid)
        assert found % PAGE == 0
        return found // PAGE

    def environment(self, **more: str) -> dict[str, str]:
        here = {
            "GPUSIM_DEV": str(self.gpus.device_directory),
            "LD_LIBRARY_PATH": str(self.libraries),
            "PYTHONPATH": str(ROOT),  # for tests/native/programs
        }
        return os.environ | here | more

    def client(self, *, prefix: Sequence[str] = (), **environment: str) -> Client:
        client = Client(self.environment(**environment), prefix)
        self._clients.append(client)
        return client

    def python(self, script: str, **environment: str) -> str:
        """The output of a Python program; it must succeed."""
        return self.succeed([sys.executable, "-c", script], **environment)

    def program(self, path: Path, *words: str, **environment: str) -> str:
        """The same of a Python program in a file."""
        return self.succeed([sys.executable, str(path), *words], **environment)

    def succeed(self, command: Sequence[str], **environment: str) -> str:
        finished = self.run(command, **environment)
        assert finished.returncode == 0, finished.stderr
        return finished.stdout

    def run(self, command: Sequence[str], **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            env=self.environment(**environment),
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    def play(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return self.run([str(vcuda_shim.PROGRAMS / "cuda-play"), *words], **environment)

    def work(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return self.run([str(vcuda_shim.PROGRAMS / "cuda-work"), *words], **environment)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for client in self._clients:
            client.close()
        self.gpus.close()


@contextmanager
def sim_box(described: Machine | None = None) -> Iterator[SimBox]:
    """Without a description: two GPUs and an ideal driver, exact to the byte and nanosecond."""
    directory = Path(tempfile.mkdtemp(prefix="gm"))
    try:
        with SimBox(directory, described or replace(machine(), driver=IDEAL)) as box:
            yield box
    finally:
        shutil.rmtree(directory)
