"""Made the files beside it: run by the code of journal version 2, on its own tests' simulated node.

    PYTHONPATH=<checkout of then>:<its tests/allocator> python make.py <directory>

Containers of every kind run; then the agent stops. `node.json` is what it leaves, and what the
kubelet, the container runtime and the API server know: the journal's and the kubelet's files, the
`config` of each allocation's directory (packed, in base64), pods, containers, limits.
"""

import asyncio
import base64
import dataclasses
import json
import sys
import tempfile
import zlib
from pathlib import Path
from typing import Any

from gpumanager.kube.pod import ContainerKind, PodView
from gpumanager.limits.manager import VirtualManager
from gpumanager.names import VCORE, VMEMORY
from gpumanager.runtime.status import LiveContainer
from gpumanager.units import MEMORY_BLOCK
from tests.deviceplugin.admission.admission_node import JOURNAL, Node, container, gpus, pod

KUBELET = "kubelet_internal_checkpoint"
ORIGINAL = "gpumanager_internal_checkpoint"


def hold(node: Node, name: str, gpu: int, size: tuple[int, int], first: int) -> dict[str, Any]:
    """A pod of gpu-manager's."""
    cores, blocks = size
    one = pod(name, container(cores, blocks))
    node.listing.listed[one.uid] = one
    node.held[one.uid, "main", VCORE] = {
        f"tencent.com/vcuda-core-{first + n}" for n in range(cores)
    }
    node.held[one.uid, "main", VMEMORY] = {
        f"tencent.com/vcuda-memory-268435456-{first + n}" for n in range(blocks)
    }
    device = {"Devices": [f"/dev/nvidia{gpu}"], "Cores": cores, "Memory": blocks * MEMORY_BLOCK}
    return {f"uid-{name}": {"main": device}}


async def play(directory: Path) -> str:
    node = Node(directory, gpus(6))
    node.virtual = sockets = VirtualManager(directory / "vm")
    node.allocator = node.new_allocator()
    mapping = hold(node, "legacy-share", 0, (30, 4), 7)
    mapping |= hold(node, "legacy-whole", 1, (100, 2), 100)
    (directory / ORIGINAL).write_text(json.dumps({"PodGPUMapping": mapping}))
    node.write_checkpoint()
    await node.allocator.recover()
    await node.allocator.kubelet_started()
    running: list[LiveContainer] = []

    async def run(one: PodView) -> None:
        await node.run(one)
        apps = (part for part in one.containers if part.kind is ContainerKind.APP)
        running.extend(node.live_container(one, app.name) for app in apps)
        node.runtime.containers[:] = running

    await run(pod("found", container(20, 3)))
    # The journal and the kubelet's checkpoint are lost: what runs is held by its amounts alone.
    (directory / JOURNAL).unlink()
    (directory / KUBELET).unlink()
    node.held = {key: ids for key, ids in node.held.items() if key[0].startswith("uid-legacy")}
    await sockets.stop()
    node.virtual = sockets = VirtualManager(directory / "vm")
    node.allocator = node.new_allocator()
    await node.allocator.take_up()
    await node.allocator.kubelet_started()
    await node.allocator.serve_again()
    node.write_checkpoint()
    await run(pod("share", container(30, 4), vcuda_core_limit="60"))
    init = container(30, 4, "init", ContainerKind.INIT)
    await run(pod("reuse", init, container(50, 6, "main")))
    await run(pod("whole", container(200, 0)))
    await node.admit(pod("waiting", container(10, 2)))  # answered, and not started
    config = {name: sockets.directory(name) / "config" for name in sockets.allocations()}
    document = {
        "journal": (directory / JOURNAL).read_text().rstrip("\n") + "\n",
        "kubelet": (directory / KUBELET).read_text(),
        "configs": {
            name: base64.b64encode(zlib.compress(path.read_bytes(), 9)).decode()
            for name, path in config.items()
        },
        "limits": {
            name: [list(dataclasses.astuple(one)) for one in sockets.limits(name)]
            for name in config
        },
        "pods": [dataclasses.asdict(one) for one in node.listing.listed.values()],
        "containers": [dataclasses.asdict(one) for one in running],
        "held": [[*key, sorted(ids)] for key, ids in sorted(node.held.items())],
    }
    await sockets.stop()
    text = json.dumps(document, indent=1, default=lambda kind: kind.value)
    return text.replace(str(directory), "DIRECTORY")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="u") as work:
        Path(sys.argv[1]).joinpath("node.json").write_text(asyncio.run(play(Path(work))) + "\n")
