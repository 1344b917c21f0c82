"""A node that moves from gpu-manager without draining: its pods' sockets are answered by us."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import grpc
import pytest

from gpumanager.errors import GpuManagerError
from gpumanager.grants.grant import Claimant
from gpumanager.ids import AllocationID, PodUID
from gpumanager.legacy.files import (
    LegacyConfig,
    decode_config,
    decode_pids,
    encode_config,
    encode_pids,
)
from gpumanager.legacy.sockets import LegacyContainer, LegacySockets
from gpumanager.limits.manager import VirtualManager
from gpumanager.limits.processes import Process
from gpumanager.units import GIB, Bytes
from tests.legacy import gpu_client_calls
from tests.limits.container_process import StartProcess
from tests.limits.open_door import limit, virtual_manager
from tests.limits.programs.hello_client import exchange, hello

pytest_plugins = ["tests.limits.virtual_fixtures"]

UID = "7d1c5d3e-9a44-4e0b-8f57-0c2f9b1a6e21"
ID = "c" * 64
SHARE = LegacyContainer(
    AllocationID("s"), Claimant(PodUID(UID), "", "", "share"), (limit(2 * GIB),)
)
WHOLE = LegacyContainer(AllocationID("w"), replace(SHARE.pod, container="whole"), ())


@dataclass
class Node:
    """A node with one pod of gpu-manager. names: of containers, by their IDs."""

    root: Path
    names: dict[str, str] = field(default_factory=dict)
    strangers: set[int] = field(default_factory=set)
    runs: bool = True

    def __post_init__(self) -> None:
        self.legacy = LegacySockets(self.root, peers=self, neighbours=self, names=self.name_of)

    @property
    def pod(self) -> Path:
        return self.root / UID

    def beside(self, process: Process) -> tuple[int, ...]:
        return (process.pid,)

    def other_pod(self, allocation: AllocationID, process: Process) -> str | None:
        return "another pod's" if process.pid in self.strangers else None

    async def name_of(self, container_id: str) -> str | None:
        if not self.runs:
            raise GpuManagerError("no container runtime answers")
        return self.names.get(container_id)

    def config(self, name: str = ID) -> LegacyConfig:
        return decode_config((self.pod / name / "vcuda.config").read_bytes())

    def left_by_gpu_manager(self, name: str, container: str, *pids: int) -> None:
        """Its files of a container, with limits that are not ours."""
        directory = self.pod / name
        directory.mkdir(parents=True, exist_ok=True)
        old = LegacyConfig(UID, container, Bytes(GIB), 10, 0)
        (directory / "vcuda.config").write_bytes(encode_config(old))
        (directory / "pids.config").write_bytes(encode_pids(pids))


@pytest.fixture
def node(root: Path) -> Node:
    node = Node(root)
    node.pod.mkdir(mode=0o777)
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(node.pod / "vcuda.sock"))
    return node


@pytest.fixture
async def manager(node: Node) -> AsyncIterator[VirtualManager]:
    manager = virtual_manager(node.root, peers=node, legacy=node.legacy)
    yield manager
    await manager.stop()


async def register(node: Node, **fields: str) -> None:
    await gpu_client_calls.register(node.pod / "vcuda.sock", pod_uid=UID, **fields)


async def refused(node: Node, **fields: str) -> grpc.aio.AioRpcError:
    return await gpu_client_calls.refused(node.pod / "vcuda.sock", pod_uid=UID, **fields)


async def test_a_program_that_starts_in_such_a_pod_gets_its_limits(
    node: Node, manager: VirtualManager
) -> None:
    node.legacy.serve({UID: (SHARE,), "elsewhere": (WHOLE,)})

    await register(node, container_id=ID)

    assert node.config() == LegacyConfig(UID, "share", Bytes(2 * GIB), 30, 0)
    assert decode_pids((node.pod / ID / "pids.config").read_bytes()) == (os.getpid(),)
    assert not (node.root / "elsewhere").exists()


async def test_containers_of_one_pod_are_told_apart_by_the_runtime(
    node: Node, manager: VirtualManager
) -> None:
    node.legacy.serve({UID: (SHARE, WHOLE)})
    node.names |= {ID: "whole", "d" * 64: "share", "e" * 64: "sidecar"}

    await register(node, container_id=ID)
    await register(node, container_id="d" * 64)
    other = await refused(node, container_id="e" * 64)

    assert (node.config().container, node.config().cores) == ("whole", 100)
    assert (node.config("d" * 64).container, node.config("d" * 64).cores) == ("share", 30)
    assert other.details() == "no GPU was given to 'sidecar'"


@pytest.mark.parametrize(
    ("served", "state", "code"),
    [
        pytest.param((SHARE, WHOLE), {}, grpc.StatusCode.UNAVAILABLE,
                     id="a container that nobody knows may try again"),
        pytest.param((SHARE, WHOLE), {"runs": False}, grpc.StatusCode.UNAVAILABLE,
                     id="so may one while no runtime answers"),
        pytest.param((SHARE,), {"strangers": {os.getpid()}}, grpc.StatusCode.PERMISSION_DENIED,
                     id="another pod is refused"),
    ],
)  # fmt: skip
async def test_a_container_is_refused(
    node: Node,
    manager: VirtualManager,
    served: tuple[LegacyContainer, ...],
    state: dict[str, object],
    code: grpc.StatusCode,
) -> None:
    vars(node).update(state)
    node.legacy.serve({UID: served})

    error = await refused(node, container_id=ID)

    assert error.code() is code
    assert not (node.pod / ID).exists()


async def test_our_own_shim_has_nothing_to_say_there(node: Node, manager: VirtualManager) -> None:
    node.legacy.serve({UID: (SHARE,)})

    answer = await asyncio.to_thread(exchange, node.pod / "vcuda.sock", hello())

    assert answer is not None
    assert answer.reason == "this socket is for gpu-client alone"


async def test_files_that_gpu_manager_left_are_kept_current(
    node: Node, manager: VirtualManager, start_process: StartProcess, tmp_path: Path
) -> None:
    door = await manager.open(AllocationID("a1"), [limit()]) / "vcuda.sock"
    child = await start_process(door)
    await child.answer()
    node.left_by_gpu_manager(ID, "share", child.pid, 2**22 + 1)
    node.left_by_gpu_manager("d" * 64, "of-nobody", child.pid)

    node.legacy.serve({UID: (SHARE,)})

    assert node.config().memory == 2 * GIB
    assert decode_pids((node.pod / ID / "pids.config").read_bytes()) == (child.pid,)
    assert node.config("d" * 64).cores == 10

    changed = replace(SHARE, limits=(limit(3 * GIB),))
    node.legacy.serve({UID: (changed,)})
    assert node.config().memory == 3 * GIB

    await child.kill()
    node.legacy.serve({UID: (changed,)})
    assert not (node.pod / ID).exists()
    assert (node.pod / "vcuda.sock").exists()


async def test_a_pod_s_directory_goes_with_the_pod_and_no_other(
    node: Node, manager: VirtualManager
) -> None:
    (node.root / "somebody").mkdir()
    node.legacy.serve({UID: (SHARE,)})
    await manager.open(AllocationID("a1"), [limit()])

    node.legacy.serve({})

    assert not node.pod.exists()
    assert (node.root / "somebody").exists()
    assert (node.root / "alloc" / "a1" / "vcuda.sock").exists()


async def test_a_pod_that_cannot_be_served_does_not_keep_others_from_it(
    node: Node, manager: VirtualManager, caplog: pytest.LogCaptureFixture
) -> None:
    long = "u" * 100
    (node.root / long).mkdir()

    node.legacy.serve({long: (WHOLE,), UID: (SHARE,)})

    await register(node, container_id=ID)
    assert f"cannot serve gpu-manager's pod {long}" in caplog.text
    assert (node.root / long).exists()
    await manager.stop()
    assert node.config().cores == 30  # the end of the manager takes nothing away
