"""What commands are tried on: a pod, a machine, a server that answers, a node."""

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

from gpumanager.sim.node import SimulatedNode
from tests.view.view_world import BUSY, document, snapshot

TOPOLOGIES = Path(__file__).parents[1] / "gpu/topologies"
UNREACHABLE = "http://127.0.0.1:1"
AGENT_PAGE = json.dumps(document(snapshot(BUSY, gpus=3)))
"""What the agent of a node with three GPUs answers for `/api/node`."""

POD_TEXT = """\
apiVersion: v1
kind: Pod
metadata: {name: one}
spec:
  containers:
    - name: main
      command: ["true"]
"""

SIX = """\
GPU0 GPU1 GPU2 GPU3 GPU4 GPU5
GPU0 X PIX PHB PHB SOC SOC
GPU1 PIX X PHB PHB SOC SOC
GPU2 PHB PHB X PIX SOC SOC
GPU3 PHB PHB PIX X SOC SOC
GPU4 SOC SOC SOC SOC X PIX
GPU5 SOC SOC SOC SOC PIX X
"""


@contextlib.contextmanager
def answering(body: str | Mapping[str, str], status: int = 200) -> Iterator[str]:
    """The URL of a server that answers everything alike, or these paths and 404 for others."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = body if isinstance(body, str) else body.get(self.path.partition("?")[0])
            content = (found or "{}").encode()
            self.send_response(404 if found is None else status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def kubeconfig(folder: Path, server: str) -> str:
    """The path of one that names this API server."""
    path = folder / "kubeconfig"
    context = {"name": "c", "context": {"cluster": "k"}}
    cluster = {"name": "k", "cluster": {"server": server}}
    path.write_text(
        json.dumps({"current-context": "c", "contexts": [context], "clusters": [cluster]})
    )
    return str(path)


def flags_of(directory: Path) -> list[str]:
    """Flags of an agent that has everything below a directory."""
    return [
        *("--driver-root", str(directory / "root")),
        *("--device-directory", str(directory / "dev")),
        *("--device-plugin-path", str(directory / "kubelet")),
        *("--pod-resources-socket", str(directory / "pod-resources.sock")),
        *("--container-runtime-endpoint", str(directory / "cri.sock")),
        *("--kubelet-endpoint", UNREACHABLE),
        *("--virtual-manager-path", str(directory / "vm")),
        *("--checkpoint-path", str(directory / "checkpoint")),
        *("--volume-base", str(directory / "volumes")),
    ]


async def gpumanager(*words: str, environment: Mapping[str, str] | None = None) -> tuple[int, str]:
    """The exit status of a command, and what it prints."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gpumanager", *words),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
    )
    out, _ = await asyncio.wait_for(process.communicate(), 300)
    assert process.returncode is not None
    return process.returncode, out.decode()


async def doctor_of(node: SimulatedNode, *more: str) -> tuple[int, Any]:
    """The doctor's answer on this node, with the flags of its agent; as JSON, or of a bundle."""
    command = node.agent.command(node.kubelet.http.endpoint)
    flags = command[list(command).index("agent") + 1 :]
    words = more or ("--json",)
    status, out = await gpumanager("doctor", *flags, *words, environment=node.agent.environment())
    return status, json.loads(out) if not more else out
