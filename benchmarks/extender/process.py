"""The processes beside the caller: the stub of the API server, and the extender. What they cost."""

import contextlib
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

SECONDS: Final = 300.0
KUBECONFIG: Final = """
current-context: here
contexts: [{name: here, context: {cluster: here}}]
clusters: [{name: here, cluster: {server: "http://127.0.0.1:%d"}}]
"""
_HERE: Final = Path(__file__).parent.parent
_TICKS: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Process:
    """started: seconds until it was ready."""

    pid: int
    port: int
    started: float

    @property
    def resident(self) -> float:
        """MiB."""
        rows = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return next(int(row.split()[1]) / 1024 for row in rows if row.startswith("VmRSS"))

    @property
    def worked(self) -> float:
        """Seconds of a processor."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS


@contextlib.contextmanager
def api_server(nodes: int, pods: int) -> Iterator[Process]:
    began = time.perf_counter()
    paths = os.pathsep.join([str(_HERE), str(_HERE.parent), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "extender.api", str(nodes), str(pods)]
    environment = {**os.environ, "PYTHONPATH": paths}
    with _running(command, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout
        port = int(process.stdout.readline())
        yield Process(process.pid, port, time.perf_counter() - began)


@contextlib.contextmanager
def extender(api: int | Path, *flags: str) -> Iterator[Process]:
    """Follows the API server on port `api`, or of this kubeconfig; is ready."""
    began = time.perf_counter()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with TemporaryDirectory() as folder:
        config = api if isinstance(api, Path) else Path(folder) / "kubeconfig"
        if isinstance(api, int):
            config.write_text(KUBECONFIG % api)
        where = ["--kubeconfig", str(config), "--address", f"127.0.0.1:{port}"]
        command = [sys.executable, "-m", "gpumanager", "extender", "--leader-elect=false"]
        with _running([*command, *where, *flags], stderr=subprocess.DEVNULL) as process:
            _until_ready(port, process)
            yield Process(process.pid, port, time.perf_counter() - began)


@contextlib.contextmanager
def _running(command: list[str], **more: object) -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen(command, **more)  # type: ignore[call-overload]
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


def _until_ready(port: int, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError, urllib.error.URLError):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=20).close()
            return
        time.sleep(0.05)
    raise SystemExit("the extender does not become ready")
