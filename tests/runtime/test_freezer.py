"""The cgroup freezer: on this kernel's own where cgroups can be made, and on files like them."""

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from gpumanager.ids import AllocationID, PodUID
from gpumanager.limits.pausing import Cgroup, Freezer
from gpumanager.limits.processes import Process, find
from gpumanager.runtime.cgroup import CgroupFiles, CgroupMount
from gpumanager.runtime.freezer import CgroupFreezer
from gpumanager.sim.in_memory import SimulatedFreezer
from tests.runtime.cgroup_node import CgroupNode
from tests.runtime.cgroup_texts import ID, PATHS, UID, v1, v2

A = AllocationID("a")
PATIENCE_SECONDS = 120
COUNT = "import os, time\nwhile True:\n print(1, flush=True)\n time.sleep(.001)"
"""A program that says that it runs."""


class Container:
    """A cgroup of this kernel, named as a kubelet names it, and a program in it."""

    def __init__(self, mount: CgroupMount) -> None:
        self.uid = PodUID(f"{secrets.token_hex(4)}-9a44-4e0b-8f57-0c2f9b1a6e21")
        self.pod = Path(mount.point, f"pod{self.uid}")
        self.path = self.pod / ID
        self.path.mkdir(parents=True)
        self._started: list[subprocess.Popen[str]] = []

    def start(self, *command: str) -> "subprocess.Popen[str]":
        enter = f'echo $$ > {self.path}/cgroup.procs && exec "$@"'
        words = ["sh", "-c", enter, "sh", *command]
        self._started.append(subprocess.Popen(words, stdout=subprocess.PIPE, text=True))
        return self._started[-1]

    def remove(self) -> None:
        for name, word in (("freezer.state", "THAWED"), ("cgroup.freeze", "0")):
            if (self.path / name).exists():
                (self.path / name).write_text(word)
        for one in self._started:
            with contextlib.suppress(ProcessLookupError):
                os.kill(one.pid, signal.SIGKILL)
            one.communicate()
        for path in (self.path, self.pod):
            wait_for(partial(is_empty, path))
            path.rmdir()


def is_empty(cgroup: Path) -> bool:
    return not (cgroup / "cgroup.procs").read_text()


def wait_for(true: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE_SECONDS
    while not true():
        assert time.monotonic() < until
        time.sleep(0.001)


def found(pid: int) -> Process:
    process = find(pid)
    assert process is not None
    return process


@pytest.fixture(params=["v1", "v2"])
def container(request: pytest.FixtureRequest) -> Iterator[Container]:
    files = CgroupFiles.here()
    for mount in files.mounts if not files.around else ():
        if mount.unified if request.param == "v2" else "freezer" in mount.options:
            try:
                made = Container(mount)
            except OSError:
                continue
            yield made
            made.remove()
            return
    pytest.skip(f"no cgroup of {request.param} can be made here")


def drain(program: "subprocess.Popen[str]") -> bytes:
    """What it has said and nobody has read."""
    assert program.stdout is not None
    os.set_blocking(program.stdout.fileno(), False)
    said = b""
    with contextlib.suppress(BlockingIOError):
        while part := os.read(program.stdout.fileno(), 1 << 16):
            said += part
    os.set_blocking(program.stdout.fileno(), True)
    return said


def wait_until_it_runs(program: "subprocess.Popen[str]") -> None:
    drain(program)
    wait_for(lambda: bool(drain(program)))


def rests(program: "subprocess.Popen[str]") -> bool:
    """Whether it says nothing while another program says fifty lines."""
    drain(program)
    command = [sys.executable, "-c", COUNT]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        for _ in range(50):
            assert other.stdout.readline()
        other.kill()
    return not drain(program)


def test_a_frozen_container_does_nothing_until_it_is_thawed(container: Container) -> None:
    program = container.start(sys.executable, "-c", COUNT)
    freezer = CgroupFreezer(CgroupFiles.here(), lambda _: [container.uid])
    wait_until_it_runs(program)
    cgroup = freezer.container(A, found(program.pid))
    assert cgroup is not None
    assert freezer.writable
    assert not freezer.is_frozen(cgroup)

    freezer.freeze(cgroup)
    wait_for(lambda: freezer.is_frozen(cgroup))
    assert rests(program)
    freezer.thaw(cgroup)
    assert not freezer.is_frozen(cgroup)
    wait_until_it_runs(program)


SHIELDED = """
import ctypes, os, sys, time
libc = ctypes.CDLL(None, use_errno=True)
child = os.fork()
if not child:
    exec(sys.argv[1])
libc.ptrace(0x4206, child, None, None)  # PTRACE_SEIZE
while True:
    pid, status = os.waitpid(child, 0)
    libc.ptrace(7, child, None, None)  # PTRACE_CONT: its signals are swallowed
"""
"""A program that swallows the signals of another: SIGSTOP did not hold it."""


@pytest.mark.parametrize("others", [0, 1100], ids=["traced", "beside 1,100 sleepers"])
def test_no_process_of_a_container_escapes(container: Container, others: int) -> None:
    crowd = f"import os, time\nfor _ in range({others}):\n os.fork() or time.sleep(1000)\n"
    command = ("-c", SHIELDED, COUNT) if not others else ("-c", crowd + COUNT)
    program = container.start(sys.executable, *command)
    freezer = CgroupFreezer(CgroupFiles.here(), lambda _: [container.uid])
    wait_until_it_runs(program)
    cgroup = freezer.container(A, found(program.pid))
    assert cgroup is not None

    freezer.freeze(cgroup)
    wait_for(lambda: freezer.is_frozen(cgroup))
    assert rests(program)
    freezer.thaw(cgroup)
    wait_until_it_runs(program)
    for pid in (container.path / "cgroup.procs").read_text().split():
        os.kill(int(pid), signal.SIGKILL)


def test_a_process_of_the_host_or_of_another_pod_has_no_container(container: Container) -> None:
    """A process that has the pid of a caller by now."""
    program = container.start("sleep", "1000")
    wait_for(lambda: str(program.pid) in (container.path / "cgroup.procs").read_text())
    files = CgroupFiles.here()

    assert CgroupFreezer(files, lambda _: [container.uid]).container(A, found(os.getpid())) is None
    assert CgroupFreezer(files, lambda _: [PodUID(UID)]).container(A, found(program.pid)) is None
    assert CgroupFreezer(files, lambda _: ()).container(A, found(program.pid)) is None
    reused = Process(program.pid, 1)
    assert CgroupFreezer(files, lambda _: [container.uid]).container(A, reused) is None


@pytest.mark.parametrize("unified", [True, False], ids=["v2", "v1"])
@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)
def test_a_container_is_found_by_every_kind_of_cgroup(
    tmp_path: Path, path: str, *, unified: bool
) -> None:
    node, me = CgroupNode(tmp_path, unified), found(os.getpid())
    node.process(me.pid, (v2 if unified else v1)(path))
    freezer = CgroupFreezer(node.mounted(), lambda _: [PodUID(UID)], proc=node.proc)

    cgroup = freezer.container(A, me)

    assert cgroup is not None
    kind, _, of = cgroup.partition(":")
    assert kind == ("" if unified else "freezer")
    assert path.startswith(of)
    assert of.partition(ID)[1]


class Written:
    """Files like a cgroup's, of which the test says what the kernel answers."""

    def __init__(self, base: Path, *, unified: bool) -> None:
        node, me = CgroupNode(base, unified), found(os.getpid())
        path = PATHS["systemd, burstable"]
        node.cgroup(path)
        node.process(me.pid, (v2 if unified else v1)(path))
        at = node.mount(0 if unified else 2) / path.lstrip("/")
        self.order, self.answer = (
            (at / "cgroup.freeze", at / "cgroup.events")
            if unified
            else (at / "freezer.state", at / "freezer.state")
        )
        self.order.touch()
        self.freezer = CgroupFreezer(
            node.mounted(), lambda _: [PodUID(UID)], lambda pod: pod == UID, node.proc
        )
        cgroup = self.freezer.container(A, me)
        assert cgroup is not None
        self.cgroup = cgroup


@pytest.mark.parametrize(
    ("unified", "orders", "answers"),
    [
        (True, ("1", "0"), ("populated 1\nfrozen 0\n", "populated 1\nfrozen 1\n")),
        (False, ("FROZEN", "THAWED"), ("FREEZING\n", "FROZEN\n")),
    ],
    ids=["v2", "v1"],
)
def test_what_is_written_and_read(
    tmp_path: Path, *, unified: bool, orders: tuple[str, str], answers: tuple[str, str]
) -> None:
    written = Written(tmp_path, unified=unified)

    written.freezer.freeze(written.cgroup)
    assert written.order.read_text() == orders[0]
    written.answer.write_text(answers[0])
    assert not written.freezer.is_frozen(written.cgroup)
    written.answer.write_text(answers[1])
    assert written.freezer.is_frozen(written.cgroup)
    written.order.write_text("")
    written.freezer.thaw(written.cgroup)
    assert written.order.read_text() == orders[1]
    assert written.freezer.terminates(written.cgroup)


def _real(base: Path) -> tuple[Freezer, Cgroup, Callable[[], None]]:
    written = Written(base, unified=False)
    return written.freezer, written.cgroup, written.order.unlink


def _simulated(_: Path) -> tuple[Freezer, Cgroup, Callable[[], None]]:
    cgroup = Cgroup("freezer:/x")
    freezer = SimulatedFreezer({os.getpid(): (A, cgroup)})
    return freezer, cgroup, lambda: freezer.end(cgroup)


@pytest.mark.parametrize("make", [_real, _simulated], ids=["files", "simulated"])
def test_the_simulated_freezer_answers_as_the_real_one(
    tmp_path: Path, make: Callable[[Path], tuple[Freezer, Cgroup, Callable[[], None]]]
) -> None:
    freezer, cgroup, end = make(tmp_path)

    assert freezer.container(A, found(os.getpid())) == cgroup
    assert freezer.container(A, found(os.getppid())) is None
    for _ in range(2):
        freezer.freeze(cgroup)
        assert freezer.is_frozen(cgroup)
    for _ in range(2):
        freezer.thaw(cgroup)
        assert not freezer.is_frozen(cgroup)
    end()
    assert not freezer.is_frozen(cgroup)
    with pytest.raises(FileNotFoundError):
        freezer.freeze(cgroup)
    with pytest.raises(FileNotFoundError):
        freezer.thaw(cgroup)
