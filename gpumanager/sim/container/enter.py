"""The child side of a container's start: `python -m gpumanager.sim.container.enter SPEC FD`.

Makes the namespace, applies the spec, says on the socket FD which namespace it is in, waits for one
byte there (so that the parent holds the namespace before anything runs in it), and becomes the
command. `--probe` instead tries only whether this kernel allows it.
"""

import json
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Final, Never

from gpumanager.sim.container import kernel
from gpumanager.sim.container.filesystem import ContainerFiles
from gpumanager.sim.container.values import ContainerSpec, read_spec

NOT_STARTED: Final = 126
NOT_FOUND: Final = 127
"""Exit statuses of shells: the command cannot be run, the command does not exist."""


def apply(spec: ContainerSpec) -> None:
    """Move this process into a namespace that looks as the spec says."""
    kernel.own_mount_namespace()
    kernel.die_with_parent()
    files = ContainerFiles()
    files.own_dev(spec.devices)
    for mount in spec.mounts:
        files.show(mount)


def start(spec: ContainerSpec) -> Never:
    """Become the command; report what keeps it from starting as a runtime does."""
    program = spec.command[0]
    try:
        os.chdir(spec.directory or "/")
        for changed in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores
            signal.signal(changed, signal.SIG_DFL)
        os.execvpe(program, spec.command, dict(spec.environment))  # noqa: S606 - this is its purpose
    except FileNotFoundError as error:
        if error.filename == spec.directory:
            refuse(f'working directory "{spec.directory}" does not exist', NOT_STARTED)
        where = "no such file" if "/" in program else "executable file not found in $PATH"
        refuse(f'exec: "{program}": {where}', NOT_FOUND)
    except OSError as error:
        refuse(f'exec: "{program}": {error.strerror}', NOT_STARTED)


def refuse(why: str, status: int) -> Never:
    print(why, file=sys.stderr, flush=True)  # noqa: T201 - it is the container's own output
    sys.exit(status)


def enter(spec_path: Path, parent: socket.socket) -> Never:
    spec = read_spec(spec_path)
    try:
        apply(spec)
    except OSError as error:
        parent.sendall(json.dumps({"error": error.strerror or str(error)}).encode())
        sys.exit(NOT_STARTED)
    namespace = kernel.mount_namespace()
    parent.sendall(json.dumps({"mount_namespace": namespace, "pid": os.getpid()}).encode())
    if not parent.recv(1):
        sys.exit(NOT_STARTED)
    parent.close()
    start(spec)


def probe() -> None:
    """Try what a container needs; write why it failed to stderr, with status 1."""
    try:
        apply(ContainerSpec(command=()))
    except OSError as error:
        refuse(error.strerror or str(error), 1)


if __name__ == "__main__":
    if sys.argv[1] == "--probe":
        probe()
    else:
        enter(Path(sys.argv[1]), socket.socket(fileno=int(sys.argv[2])))
