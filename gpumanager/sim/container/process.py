"""The parent side of a container: start it, read its output, wait for it, end all of it.

A container is its mount namespace: the namespace is held open as long as its figures are of
interest (the kernel gives the inode of an ended one to the next), and ending a container ends every
process in it, however it was started.
"""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import gpumanager
from gpumanager.errors import GpuManagerError
from gpumanager.sim.container import kernel
from gpumanager.sim.container.values import ContainerSpec

START_SECONDS: Final = 60.0
"""Bound for building the namespace; it takes some 50 ms."""

LAST_WORDS_SECONDS: Final = 1.0
LONGEST_LINE: Final = 1 << 16

_MODULE: Final = "gpumanager.sim.container.enter"

OUR_PYTHON: Final = (sys.executable, "-P")
"""For `-m`, which else takes a package from the current directory first: a checkout without built
libraries, for example, in which an installed `gpumanager simulate` is typed.
"""


def own_environment() -> dict[str, str]:
    """Return the environment in which a Python of ours finds this same package, wherever it
    lies."""
    home = str(Path(gpumanager.__file__ or "").resolve().parent.parent)
    others = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (home, others)))}


class ContainerNotStarted(GpuManagerError):
    """A runtime error: the container's view of the file system could not be built."""


def namespaces_available() -> str | None:
    """Return None where containers can be started, else what this kernel refuses and what to do.

    Raises ContainerNotStarted where the probe takes too long.
    """
    try:
        finished = subprocess.run(
            [*OUR_PYTHON, "-m", _MODULE],
            check=False,
            capture_output=True,
            text=True,
            timeout=START_SECONDS,
            input=ContainerSpec(()).text(),
            env=own_environment(),
        )
    except subprocess.TimeoutExpired:
        raise ContainerNotStarted(
            f"whether containers can be made here was not known after {START_SECONDS:.0f} s: "
            "the machine is too busy"
        ) from None
    if finished.returncode == 0:
        return None
    lines = finished.stderr.strip().splitlines()
    return (
        "cannot make a mount namespace for containers "
        f"({lines[-1] if lines else 'no reason given'}): "
        "run as root (in a container: with CAP_SYS_ADMIN), or allow unprivileged user namespaces "
        "(sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone, "
        "kernel.apparmor_restrict_unprivileged_userns=0)"
    )


@dataclass(slots=True)
class ContainerProcess:
    """One running container. Made by `start_container`; closed by `close`. held: descriptor that
    keeps its namespace. output: what reads its output."""

    process: asyncio.subprocess.Process
    mount_namespace: int
    held: int
    output: asyncio.Task[None]

    @property
    def pid(self) -> int:
        return self.process.pid

    async def wait(self) -> int:
        """Return the command's exit status, 128 + N for signal N, once nothing of it runs."""
        status = await self.process.wait()
        self.kill()
        await asyncio.wait((self.output,), timeout=LAST_WORDS_SECONDS)
        return status if status >= 0 else 128 - status

    def terminate(self) -> None:
        """Ask the command to end."""
        with contextlib.suppress(ProcessLookupError):
            self.process.terminate()

    def kill(self) -> None:
        """Send SIGKILL to every process of the container."""
        kill_namespace(self.mount_namespace)

    async def close(self) -> None:
        """End it and let its namespace go; the inode may be used anew afterwards."""
        self.kill()
        await self.wait()
        self.output.cancel()
        await asyncio.wait((self.output,))
        if self.held >= 0:
            os.close(self.held)
            self.held = -1


async def start_container(spec: ContainerSpec, on_line: Callable[[str], None]) -> ContainerProcess:
    """Start it; its output goes to `on_line`, line by line. Raises ContainerNotStarted."""
    ours, theirs = socket.socketpair()
    # The pipe is ours and not asyncio's, which would wait for a background process that has it
    # open.
    reading, writing = os.pipe()
    output = asyncio.create_task(_read_lines(reading, on_line))
    with ours, theirs, os.fdopen(writing, "wb") as written, tempfile.TemporaryFile("w+") as file:
        file.write(spec.text())
        file.seek(0)
        process = await asyncio.create_subprocess_exec(
            *(*OUR_PYTHON, "-m", _MODULE, str(theirs.fileno())),
            stdin=file,
            stdout=written,
            stderr=written,
            pass_fds=(theirs.fileno(),),
            env=own_environment(),
            start_new_session=True,  # no terminal in it; Ctrl-C there is for the simulation alone
        )
        theirs.close()
        written.close()
        try:
            namespace, held = await _hold_namespace(process.pid, ours)
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            await output
            raise
        ours.send(b"!")
    return ContainerProcess(process, namespace, held, output)


async def _hold_namespace(pid: int, child: socket.socket) -> tuple[int, int]:
    """Return the namespace the child reports, and a descriptor that keeps it."""
    child.setblocking(False)
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(START_SECONDS):
            told = await loop.sock_recv(child, LONGEST_LINE)
    except TimeoutError:
        raise ContainerNotStarted(f"no answer from the child in {START_SECONDS:.0f} s") from None
    report = json.loads(told or b'{"error": "the child ended before it could say why"}')
    if "error" in report:
        raise ContainerNotStarted(
            f"the container's file system could not be built: {report['error']}"
        )
    return report["mount_namespace"], os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)


async def _read_lines(descriptor: int, on_line: Callable[[str], None]) -> None:
    """Hand on the output by lines; a line too long for anybody to read comes in pieces."""
    stream = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(stream), os.fdopen(descriptor, "rb", buffering=0)
    )
    rest = b""
    try:
        while chunk := await stream.read(LONGEST_LINE):
            *lines, rest = (rest + chunk).split(b"\n")
            if len(rest) >= LONGEST_LINE:
                lines, rest = [*lines, rest], b""
            for line in lines:
                on_line(_text(line))
    finally:
        transport.close()
    if rest:
        on_line(_text(rest))


def _text(line: bytes) -> str:
    return line.decode(errors="replace").removesuffix("\r")


def kill_namespace(namespace: int) -> None:
    """Send SIGKILL to every process in a mount namespace, until none is found alive.

    Bounded: a process that forks faster is met again in the next round.
    """
    if namespace == kernel.mount_namespace():
        raise ValueError("that is our own mount namespace")
    for _ in range(100):
        found = False
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and kernel.mount_namespace(entry.name) == namespace:
                    found = True
                    os.kill(int(entry.name), signal.SIGKILL)
        if not found:
            return
