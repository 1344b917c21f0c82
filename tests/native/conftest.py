"""A manager, containers over a stand-in driver (stand_in_cuda.c) with the shim before it, and
simulated GPUs: bare in a box, one behind a shim, one that is measured, or two of a node."""

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from virtual_clock import virtual_clock

from gpumanager.limits.manager import VirtualManager
from gpumanager.limits.turns import Turns
from gpumanager.sim.gpu import SimulatedGpus
from tests.native.gpu_node import GpuNode, machine_of
from tests.native.measured_node import MeasuredNode
from tests.native.shim_container import Container, allocation, build_stand_in
from tests.native.sim_box import Client, SimBox, sim_box
from tests.native.timed_gpu import TimedGpu


@pytest.fixture
def work() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="gm", dir="/tmp"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_stand_in(tmp_path_factory.mktemp("stand-in") / "symbolic", symbolic=True)


@pytest.fixture(scope="session")
def plain_driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One whose calls of its own exports come back through the shim."""
    return build_stand_in(tmp_path_factory.mktemp("stand-in") / "plain", symbolic=False)


@pytest.fixture
async def manager(work: Path) -> AsyncIterator[VirtualManager]:
    sockets = VirtualManager(work, turns=Turns(work / "turns"))
    yield sockets
    await sockets.stop()


@pytest.fixture
async def container(work: Path, driver: Path, manager: VirtualManager) -> Container:
    return Container(driver, await allocation(manager), work)


@pytest.fixture
async def plain_container(work: Path, plain_driver: Path, manager: VirtualManager) -> Container:
    return Container(plain_driver, await allocation(manager), work)


@pytest.fixture
def machine(work: Path) -> Iterator[SimulatedGpus]:
    simulated = SimulatedGpus.create(work, machine_of(2, capability=9))
    yield simulated
    simulated.close()


@pytest.fixture
def node(work: Path, machine: SimulatedGpus, manager: VirtualManager) -> GpuNode:
    return GpuNode(work, manager, machine)


@pytest.fixture
def box() -> Iterator[SimBox]:
    with sim_box() as made:
        yield made


@pytest.fixture
def client(box: SimBox) -> Client:
    made = box.client()
    assert made("init()") == 0
    return made


@pytest.fixture
def gpu(work: Path) -> Iterator[SimulatedGpus]:
    simulated = SimulatedGpus.create(work, machine_of())
    yield simulated
    simulated.close()


@pytest.fixture
def one_gpu(work: Path, gpu: SimulatedGpus, manager: VirtualManager) -> GpuNode:
    return GpuNode(work, manager, gpu)


@pytest.fixture
async def timed(work: Path) -> AsyncIterator[TimedGpu]:
    """One simulated GPU on a virtual clock."""
    with virtual_clock(work / "clock") as clock:
        made = TimedGpu(work, clock)
        yield made
        await made.close()


@pytest.fixture
async def measured(work: Path) -> AsyncIterator[MeasuredNode]:
    made = MeasuredNode(work)
    yield made
    await made.stop()
