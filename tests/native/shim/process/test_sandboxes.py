"""Programs under seccomp, Landlock and limits of their own: a system call of the shim that fails is
named at once, and after the start it asks the manager over the connection that it has."""

import errno
import re

import pytest

from gpumanager.limits.processes import Watcher
from gpumanager.units import MIB
from tests.native.measured_node import CONTEXT, LIMIT, MeasuredNode
from tests.native.programs import sandbox
from tests.native.shim_container import Container

pytestmark = pytest.mark.namespaces

BEGIN = """
import os
from tests.native.programs.sandbox import *
driver = cuda()
"""
CUINIT = """
before = waits()
tell(init=driver.cuInit(0), waits=waits() - before)
"""
SHARED, ANONYMOUS = (3, 1), (3, 0x20)
"""The argument of mmap, and the flag of pages that are shared, or of no file."""


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        ("socket", errno.EPERM, r"socket\(\) .* not permitted .*seccomp"),
        ("socket", errno.ENOSYS, r"socket\(\) .* not implemented .*seccomp"),
        ("socket", errno.EAFNOSUPPORT, r"socket\(\) .* address family .* AF_UNIX"),
        ("socket", errno.ENFILE, r"socket\(\) .* too many open files in system .* fs\.file-max"),
        ("socket", errno.ENOBUFS, r"socket\(\) .* no buffer space .* memory limit"),
        ("socket", errno.EXDEV, r"socket\(\) .* unexpected .* sandbox or a limit"),
        ("connect", errno.EACCES, r"connect\(\) to /etc/vcuda/vcuda\.sock .* denied .* /etc/vcuda"),
        ("sendto", errno.ENOMEM, r"send\(\) on /etc/vcuda/vcuda\.sock .* out of memory"),
        ("recvmsg", errno.EPERM, r"recvmsg\(\) on /etc/vcuda/vcuda\.sock .* not permitted"),
    ],
)
async def test_a_system_call_that_a_sandbox_forbids_is_named_at_once(
    container: Container, call: str, error: int, words: str
) -> None:
    told = await container.run(f"{BEGIN}forbid({call!r}, {error}){CUINIT}")

    assert told["init"] == 802
    assert told["waits"] < 10  # a manager that does not answer is asked more often than that
    (complaint,) = told["complaints"]
    assert re.search(words, complaint)
    assert "failed in this process: " in complaint
    assert f"(error {error})" in complaint
    assert "manager" not in complaint


@pytest.mark.parametrize(
    ("error", "words"), [(errno.ENOMEM, "RLIMIT_AS"), (errno.EAGAIN, "RLIMIT_MEMLOCK")]
)
async def test_pages_that_cannot_be_mapped_are_no_other_version(
    container: Container, error: int, words: str
) -> None:
    told = await container.run(f"{BEGIN}forbid('mmap', {error}, {SHARED}){CUINIT}")

    (complaint,) = told["complaints"]
    assert told["init"] == 802
    assert told["waits"] < 10
    assert "mapping the container's pages failed in this process: " in complaint
    assert re.search(rf"error {error}\).* {words}", complaint)


@pytest.mark.skipif(not sandbox.landlock(), reason="this kernel has no Landlock")
async def test_a_configuration_that_landlock_hides_is_no_other_version(
    container: Container,
) -> None:
    told = await container.run(
        f"""
{BEGIN}
places = ("/usr", "/lib", "/lib64", "/proc", "/dev")
read_only_below(*(place for place in places if os.path.exists(place)))
{CUINIT}
"""
    )

    (complaint,) = told["complaints"]
    assert told["init"] == 802
    assert re.search(r"open\(\) of /etc/vcuda/config .* denied .*Landlock", complaint)
    assert "version" not in complaint


@pytest.mark.parametrize(
    ("free", "words"),
    [(0, r"socket\(\)"), (1, r"receiving a descriptor from /etc/vcuda/vcuda\.sock")],
)
async def test_a_program_with_all_descriptors_in_use_reads_that_and_goes_on_when_it_has_some(
    container: Container, free: int, words: str
) -> None:
    told = await container.run(
        f"""
{BEGIN}
taken = take_all_descriptors(but={free})
{CUINIT}
for descriptor in taken: os.close(descriptor)
tell(then=driver.cuInit(0))
"""
    )

    (complaint,) = told["complaints"]
    assert (told["init"], told["then"]) == (802, 0)
    assert told["waits"] < 10
    assert re.search(rf"{words} failed .* too many open files .* RLIMIT_NOFILE", complaint)


async def test_a_process_without_memory_for_the_shim_reads_that(container: Container) -> None:
    told = await container.run(f"{BEGIN}forbid('mmap', {errno.ENOMEM}, {ANONYMOUS}){CUINIT}")

    (complaint,) = told["complaints"]
    assert told["init"] == 802
    assert "mmap() of pages of the shim's own failed in this process: out of memory" in complaint


async def test_nvml_refuses_at_once_and_prints_nothing(container: Container) -> None:
    told = await container.run(
        f"""
{BEGIN}
management = nvml()
forbid("socket", {errno.EPERM})
tell(results=[management.nvmlDeviceGetMemoryInfo(ctypes.c_void_p(1), None) for _ in range(3)])
"""
    )

    assert told == {"results": [9] * 3}


CONNECTED = """
import os, threading
from tests.native.programs.shim_client import reach, tell, wait_for, waits
from tests.native.programs.sandbox import *
def sockets():
    return [int(fd) for fd in os.listdir("/proc/self/fd")
            if os.path.realpath(f"/proc/self/fd/{fd}").rpartition("/")[2].startswith("socket:")]
def load_at_once(count):
    modules = []
    context = ctypes.c_void_p()
    driver.cuCtxGetCurrent(ctypes.byref(context))
    def one():
        driver.cuCtxSetCurrent(context)
        modules.append(load(4 << 20))
    threads = [threading.Thread(target=one) for _ in range(count)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    return len(modules)
"""
LOADED = 6 * MIB
"""Of a module with 4 MiB of variables, a page for its code with it."""


@pytest.mark.parametrize("call", ["socket", "connect"])
async def test_a_program_that_forbids_connections_after_cuinit_is_measured_as_any(
    measured: MeasuredNode, call: str
) -> None:
    told = await measured.run(
        f"""
{CONNECTED}
driver.cuInit(0)
forbid({call!r}, None)
make()
for _ in range(3): load({4 * MIB})
alone = memory(driver)[0]
tell(alone=alone, more=load_at_once(8), left=memory(driver)[0], sockets=len(sockets()))
"""
    )

    assert told == {
        "alone": LIMIT - CONTEXT - 3 * LOADED,
        "more": 8,
        "left": LIMIT - CONTEXT - 11 * LOADED,
        "sockets": 1,
    }
    assert measured.meter.passes > 4


async def test_the_connection_is_made_again_when_the_manager_comes_back(
    measured: MeasuredNode,
) -> None:
    program = await measured.begin(
        f"""
{CONNECTED}
make()
before = sockets()
pause()
load({4 * MIB})
tell(left=memory(driver)[0], before=len(before), after=len(sockets()))
"""
    )
    await program.pauses()
    await measured.manager.stop()
    measured.manager = measured.new_manager()
    await measured.container()

    assert await program.ends() == {"left": LIMIT - CONTEXT - LOADED, "before": 1, "after": 1}


async def test_where_no_connection_can_be_made_again_an_estimate_is_charged_at_once(
    measured: MeasuredNode,
) -> None:
    program = await measured.begin(
        f"""
{CONNECTED}
make()
forbid("socket", {errno.EPERM})
pause()
before = waits()
module = load({4 * MIB})
tell(charged=memory(driver)[0] <= {LIMIT - CONTEXT} - {4 * MIB}, waits=waits() - before)
"""
    )
    await program.pauses()
    await measured.manager.stop()
    measured.manager = measured.new_manager()
    await measured.container()
    told = await program.ends()

    assert told["charged"]
    assert told["waits"] < 20  # a manager that is away is asked again 200 times


async def test_a_manager_that_hangs_up_after_each_answer_is_connected_to_each_time(
    measured: MeasuredNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one of before does."""
    monkeypatch.setattr(Watcher, "keep", lambda *_: None)

    told = await measured.run(
        f"""
{CONNECTED}
make()
more = load_at_once(4)
tell(more=more, left=memory(driver)[0], sockets=len(sockets()))
"""
    )

    assert told == {"more": 4, "left": LIMIT - CONTEXT - 4 * LOADED, "sockets": 1}


async def test_a_forked_child_has_no_connection_of_its_parent_and_makes_its_own(
    measured: MeasuredNode,
) -> None:
    told = await measured.run(
        f"""
{CONNECTED}
make()
reader, writer = os.pipe()
(parent,) = sockets()
if os.fork() == 0:
    before = sockets()
    make()
    os.write(writer, json.dumps([len(before), len(sockets())]).encode())
    os._exit(0)
child = json.loads(os.read(reader, 100))
os.wait()
soon(lambda: memory(driver)[0] == {LIMIT - CONTEXT}, 5)
load({4 * MIB})
tell(parent=parent >= 64, child=child, left=memory(driver)[0])
"""
    )

    assert told == {"parent": True, "child": [0, 1], "left": LIMIT - CONTEXT - LOADED}


async def test_nothing_is_written_to_what_the_program_has_under_that_number_by_now(
    measured: MeasuredNode,
) -> None:
    told = await measured.run(
        f"""
{CONNECTED}
make()
import socket
(number,) = sockets()
mine, other = socket.socketpair()
other.setblocking(False)
os.dup2(mine.fileno(), number)
load({4 * MIB})
try:
    received = len(other.recv(1))
except BlockingIOError:
    received = 0
mine.close()
still = os.fstat(number).st_ino != 0
tell(received=received, still=still, left=memory(driver)[0])
"""
    )

    assert told == {"received": 0, "still": True, "left": LIMIT - CONTEXT - LOADED}
