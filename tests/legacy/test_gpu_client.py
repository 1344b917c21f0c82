"""gpu-client and vcuda-controller at `vcuda.sock`: answered by gRPC, believed in nothing."""

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import pytest

from gpumanager.grants.grant import Claimant
from gpumanager.ids import AllocationID, PodUID
from gpumanager.legacy.api import vcuda_pb2 as pb
from gpumanager.legacy.files import LegacyConfig, decode_config, decode_pids
from gpumanager.legacy.gpu_client import MOST_REGISTRATIONS
from gpumanager.limits.manager import VirtualManager
from gpumanager.limits.processes import Process
from gpumanager.limits.socket.protocol import PREFACE
from gpumanager.limits.values import Limit
from gpumanager.runtime.cgroup import CgroupFiles
from gpumanager.runtime.peers import PodCheck
from gpumanager.runtime.processes import Containers
from gpumanager.units import GIB, Bytes
from tests.legacy.gpu_client_calls import refused, register
from tests.legacy.gpu_client_play import FAILED, METHOD, call, dial
from tests.limits.container_process import SECONDS, StartProcess, eventually
from tests.limits.open_door import GPU, NAME, limit, open_descriptors, say, virtual_manager

pytest_plugins = ["tests.limits.virtual_fixtures"]

UID = "7d1c5d3e-9a44-4e0b-8f57-0c2f9b1a6e21"
ID = "c" * 64
CLIENT = (sys.executable, Path(__file__).parent / "gpu_client_play.py")


@dataclass
class Node:
    """A node as its manager sees it. together: the pids of a container, by one of them."""

    root: Path
    together: dict[int, tuple[int, ...]] = field(default_factory=dict)
    residents: Mapping[AllocationID, Claimant] = field(
        default_factory=lambda: {NAME: Claimant(PodUID(UID), "", "", "main")}
    )
    strangers: set[int] = field(default_factory=set)

    def beside(self, process: Process) -> tuple[int, ...]:
        return self.together.get(process.pid, ())

    def other_pod(self, allocation: AllocationID, process: Process) -> str | None:
        return "this socket is another pod's" if process.pid in self.strangers else None

    def manager(self, call_seconds: float = SECONDS) -> VirtualManager:
        return virtual_manager(
            self.root,
            peers=self,
            resident=self.residents.get,
            neighbours=self,
            driver="555.58.02",
            call_seconds=call_seconds,
            sweep_seconds=0.02,
        )

    @property
    def files(self) -> Path:
        return self.root / "alloc" / NAME

    def config(self, name: str = ID) -> LegacyConfig:
        return decode_config((self.files / name / "vcuda.config").read_bytes())

    def pids(self, name: str = ID) -> tuple[int, ...]:
        return decode_pids((self.files / name / "pids.config").read_bytes())


@pytest.fixture
def node(root: Path) -> Node:
    return Node(root, {os.getpid(): (os.getpid(),)})


@pytest.fixture
async def manager(node: Node) -> AsyncIterator[VirtualManager]:
    manager = node.manager()
    yield manager
    await manager.stop()


@pytest.fixture
async def door(manager: VirtualManager) -> Path:
    return await manager.open(NAME, [limit()]) / "vcuda.sock"


async def test_a_container_gets_its_files_under_its_id_or_where_the_oldest_shims_look(
    node: Node, door: Path
) -> None:
    await register(door, pod_uid=UID, container_id=ID)
    await register(door, pod_uid=UID, container_name="side")

    assert node.config() == LegacyConfig(UID, "main", Bytes(GIB), 30, 0, (555, 58))
    assert node.config("side").container == "side"
    assert node.config("") == node.config("side")
    assert node.pids() == node.pids("") == (os.getpid(),)
    await register(door, container_id="d" * 64)
    assert node.config("d" * 64).pod_uid == UID  # though it named no pod


async def test_files_are_readable_by_whatever_user_a_container_has(node: Node, door: Path) -> None:
    before = os.umask(0o077)
    try:
        await register(door, pod_uid=UID, container_id=ID)
    finally:
        os.umask(before)

    modes = [
        path.stat().st_mode & 0o777 for path in (node.files / ID, *(node.files / ID).iterdir())
    ]
    assert sorted(modes) == [0o644, 0o644, 0o755]


async def test_limits_that_change_reach_the_files(
    node: Node, door: Path, manager: VirtualManager
) -> None:
    await register(door, pod_uid=UID, container_id=ID)

    await manager.open(NAME, [Limit(GPU, Bytes(2 * GIB), 20, 50)])

    assert node.config() == LegacyConfig(UID, "main", Bytes(2 * GIB), 20, 50, (555, 58))


async def test_pids_follow_a_container_s_processes_and_its_end_takes_the_files_away(
    node: Node, door: Path, manager: VirtualManager, start_process: StartProcess
) -> None:
    ours, child = os.getpid(), await start_process(door)
    await child.answer()
    await register(door, pod_uid=UID, container_id=ID)

    node.together = {ours: (ours, child.pid), child.pid: (ours, child.pid)}
    assert await eventually(lambda: node.pids() == tuple(sorted((ours, child.pid))))

    node.together = {ours: (child.pid,), child.pid: (child.pid,)}
    assert await eventually(lambda: node.pids() == (child.pid,))

    await child.kill()
    assert await eventually(lambda: not (node.files / ID).exists())
    assert (node.files / "books").exists()


async def test_the_next_manager_keeps_the_files_current(
    node: Node, start_process: StartProcess
) -> None:
    first, second = node.manager(), node.manager()
    door = await first.open(NAME, [limit()]) / "vcuda.sock"
    child = await start_process(door)
    await child.answer()
    node.together[os.getpid()] = (child.pid,)
    await register(door, pod_uid=UID, container_id=ID)
    await register(door, pod_uid=UID, container_name="side")
    await first.stop()
    try:
        await second.open(NAME, [limit(2 * GIB)])
        assert (node.config().memory, node.config("").memory) == (2 * GIB, 2 * GIB)

        await child.kill()
        assert await eventually(lambda: not list(node.files.glob("**/pids.config")))
    finally:
        await second.stop()


async def test_without_cgroups_the_caller_and_who_started_it_count(node: Node, door: Path) -> None:
    node.together.clear()

    await register(door, pod_uid=UID, container_id=ID)

    assert node.pids() == tuple(sorted((os.getpid(), os.getppid())))


DENIED, INVALID = grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("fields", "code", "words"),
    [
        ({"container_id": ID, "pod_uid": "another"}, DENIED,
         f"this socket is pod {UID}'s, not another's"),
        ({"container_id": ""}, INVALID, ""),
        ({"container_id": "../other"}, INVALID, ""),
        ({"container_id": "books"}, INVALID, ""),
        ({"container_id": "/etc"}, INVALID, ""),
    ],
)  # fmt: skip
async def test_another_pod_and_a_name_that_is_no_directory_s_are_refused(
    node: Node, door: Path, fields: dict[str, str], code: grpc.StatusCode, words: str
) -> None:
    before = sorted(node.root.rglob("*"))

    error = await refused(door, **{"pod_uid": UID, **fields})

    assert error.code() is code
    assert not words or error.details() == words
    assert sorted(set(node.root.rglob("*")) - {node.root / ".register.sock"}) == before


async def test_a_caller_of_another_pod_gets_nothing(node: Node, door: Path) -> None:
    node.strangers.add(os.getpid())

    assert (await refused(door, pod_uid=UID, container_id=ID)).code() is DENIED
    assert not (node.files / ID).exists()


async def test_a_container_cannot_fill_the_disk_with_registrations(node: Node, door: Path) -> None:
    async with dial(door) as channel:
        for number in range(MOST_REGISTRATIONS):
            await call(channel, pb.VDeviceRequest(pod_uid=UID, container_id=f"id{number}"))
        again = await call(channel, pb.VDeviceRequest(pod_uid=UID, container_id="id0"))

    error = await refused(door, pod_uid=UID, container_id="one-more")

    assert again == pb.VDeviceResponse()
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert not (node.files / "one-more").exists()


async def test_other_calls_are_unknown(door: Path) -> None:
    async with dial(door) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.unary_unary(METHOD + "s")(b"", timeout=SECONDS)

    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_nobody_gets_past_the_door_to_the_server_behind_it(node: Node, door: Path) -> None:
    await register(door, pod_uid=UID, container_id=ID)

    error = await refused(node.root / ".register.sock", pod_uid=UID, container_id="d" * 64)

    assert error.code() is grpc.StatusCode.PERMISSION_DENIED


async def test_many_register_at_once_and_hello_is_answered_meanwhile(
    node: Node, door: Path
) -> None:
    await register(door, pod_uid=UID, container_id=ID)
    before = open_descriptors()

    calls = [register(door, pod_uid=UID, container_id=ID) for _ in range(100)]
    *_, answer = await asyncio.gather(*calls, say(door))

    assert answer is not None
    answer.close()
    assert await eventually(lambda: open_descriptors() <= before)


@pytest.mark.parametrize("rest", [b"", b"\xff" * 65536], ids=["nothing", "garbage"])
async def test_who_speaks_http2_and_nothing_more_is_left_alone_in_the_end(
    node: Node, rest: bytes
) -> None:
    manager = node.manager(call_seconds=0.2)
    door = await manager.open(NAME, [limit()]) / "vcuda.sock"
    try:
        await register(door, pod_uid=UID, container_id=ID)
        before = open_descriptors()

        await asyncio.wait_for(asyncio.to_thread(_until_hung_up, door, rest), SECONDS)

        await register(door, pod_uid=UID, container_id=ID)
        assert await eventually(lambda: open_descriptors() <= before)
    finally:
        await manager.stop()


def _until_hung_up(door: Path, rest: bytes) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(SECONDS)
        connection.connect(str(door))
        try:
            connection.sendall(PREFACE + rest)
            while connection.recv(4096):
                pass
        except (BrokenPipeError, ConnectionResetError):
            return


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("reader") / "original_reader"
    source = Path(__file__).parent / "original_reader.c"
    subprocess.run(["gcc", "-Wall", "-Wextra", "-Werror", "-o", program, source], check=True)
    return program


async def run(*words: object) -> tuple[int, str]:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *map(str, words), stdout=pipe, stderr=subprocess.STDOUT
    )
    output, _ = await asyncio.wait_for(process.communicate(), SECONDS)
    assert process.returncode is not None
    return process.returncode, output.decode()


async def test_a_program_of_the_original_registers_by_its_client_and_reads_its_limits(
    node: Node, door: Path, reader: Path
) -> None:
    node.together.clear()

    code, said = await run(reader, door.parent, UID, ID, *CLIENT)
    refusal, why = await run(reader, door.parent, "another-pod", ID, *CLIENT)

    assert (code, said) == (0, f"{UID} main [] {GIB} 30 1 0 555.58 1 listed\n")
    assert refusal == 1
    assert "rpc client exit with 255" in why


async def placed(place: Path, *words: object) -> asyncio.subprocess.Process:
    """A program in a cgroup of its own choice."""
    script = 'mkdir -p "$0" && echo $$ > "$0/cgroup.procs" && exec "$@"'
    return await asyncio.create_subprocess_exec("sh", "-c", script, place, *map(str, words))


@pytest.mark.cgroups
async def test_the_kernel_itself_tells_which_processes_a_container_has(
    cgroup: Path, root: Path
) -> None:
    pods, containers = cgroup / "kubepods/burstable", Containers(CgroupFiles.here())
    check = PodCheck(containers, {NAME: {PodUID(UID)}}.get)
    node = Node(root)
    manager = virtual_manager(root, peers=check, neighbours=containers, sweep_seconds=0.02)
    door = await manager.open(NAME, [limit()]) / "vcuda.sock"
    client = (*CLIENT, f"--addr={door}", f"--pod-uid={UID}")
    program = await placed(pods / f"pod{UID}" / ID, "sleep", "60")
    try:
        own = await placed(pods / f"pod{UID}" / ID, *client, f"--cont-id={ID}")
        other = await placed(pods / f"pod{UID[:-1]}0" / ID, *client, "--cont-id=other")

        assert await asyncio.wait_for(own.wait(), SECONDS) == 0
        assert await asyncio.wait_for(other.wait(), SECONDS) == FAILED
        assert await eventually(lambda: node.pids() == (program.pid,))
    finally:
        program.kill()
        await program.wait()
    assert await eventually(lambda: not (node.files / ID).exists())
    assert not (node.files / "other").exists()
    await manager.stop()
