"""The node agent as a process on a real node, with simulated GPUs.

A runtime gives device nodes to containers and nothing else, so what Allocate answers with are
nodes, of the numbers that NVIDIA's driver has and with nothing behind them; the GPUs' state comes
with the node's runtime (`real_node`). The simulated driver looks for the names alone.
"""

import json
import os
import re
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Final

from gpumanager.grants.grant import Grant
from gpumanager.grants.journal_file import FILE_NAME, JournalFile
from gpumanager.names import (
    CDI_PATH,
    PLUGINS_PATH,
    PLUGINS_REGISTRY_PATH,
    POD_RESOURCES_SOCKET,
    PODS_API_SOCKET,
    VCORE,
    VMEMORY,
)
from gpumanager.sim.agent import AgentProcess
from gpumanager.sim.host import NodeDisk
from gpumanager.sim.machine import Machine
from gpumanager.units import MEMORY_BLOCK
from tests.e2e.node.node_process import SECONDS, NodeProcess, wait_for
from tests.e2e.node.real_node import DEVICE_PLUGINS, KUBELET_PORT, NODE, RealNode

NVIDIA: Final = 195
"""The major number of NVIDIA's device nodes."""
CONTROL: Final = {"nvidiactl": 255, "nvidia-uvm": 250}

LEAST_RULES: Final = (
    {
        "apiGroups": [""],
        "resources": ["nodes/proxy", "nodes/pods", "nodes/metrics"],
        "verbs": ["get"],
    },
)
"""What the agent may do: read the kubelet's `/pods` (`nodes/proxy` until Kubernetes 1.33), and the
doctor its version among the metrics."""

API_RULES: Final = (
    {
        "apiGroups": [""],
        "resources": ["pods"],
        "verbs": ["get", "list", "watch", "patch", "delete"],
    },
    {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch", "patch"]},
    {"apiGroups": [""], "resources": ["nodes/status"], "verbs": ["patch"]},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["get", "create", "patch"]},
    {
        "apiGroups": ["resource.k8s.io"],
        "resources": ["resourceclaims"],
        "verbs": ["get", "list", "watch"],
    },
    {
        "apiGroups": ["resource.k8s.io"],
        "resources": ["resourceslices"],
        "verbs": ["list", "watch", "create", "patch"],
    },
    {"apiGroups": ["resource.k8s.io"], "resources": ["deviceclasses"], "verbs": ["get"]},
)
"""What it may do at the API server."""

REGISTERED: Final = ": registered with the kubelet"
ACCUSES: Final = re.compile(r"process \d+( \(.*\))? of .* (holds|uses) ")
METRICS_PORT: Final = 5678


class RealAgent:
    """The agent of `node`, which keeps its files on `disk` and its log there.

    interface: as `--interface` has it, flags: more of them, python: whose `gpumanager` it is, each
    from the next start on.
    """

    def __init__(self, node: RealNode, disk: NodeDisk, machine: Machine) -> None:
        self._node = node
        self.interface = "device-plugin"
        self.flags: tuple[str, ...] = ()
        self.python = sys.executable
        self.disk = disk
        self.machine = machine
        self._log = disk.agent_log
        nodes = disk.base / "nodes"
        nodes.mkdir()
        make_device_nodes(nodes, machine)
        self.token = self._token()
        flags = {
            "kubeconfig": node.write_kubeconfig("agent", self.token.read_text()),
            "hostname-override": NODE,
            "device-plugin-path": DEVICE_PLUGINS,
            "pod-resources-socket": POD_RESOURCES_SOCKET,
            "pods-api-socket": PODS_API_SOCKET,
            "container-runtime-endpoint": node.containerd_socket,
            "device-directory": nodes,
            "kubelet-token": self.token,
            "query-port": METRICS_PORT,
            "plugins-path": PLUGINS_PATH,
            "plugins-registry-path": PLUGINS_REGISTRY_PATH,
            "cdi-path": CDI_PATH,
        }
        words = AgentProcess(disk, flags)
        self._command = words.command(f"https://127.0.0.1:{KUBELET_PORT}")
        self._environment = words.environment()
        self.process = NodeProcess("agent", self._log, self._environment)

    def start(self, said: str = REGISTERED) -> None:
        """With the interface that it is to have, until it has said so much more."""
        before = self.log().count(said)
        self.launch()
        self.process.wait_for(lambda: self.log().count(said) > before, said)

    def launch(self) -> None:
        """As `start`, without waiting for anything."""
        words = [self.python if word == sys.executable else word for word in self._command]
        self.process.start(*words, f"--interface={self.interface}", *self.flags)

    def stop(self) -> None:
        self.process.stop()

    def doctor(self) -> tuple[int, dict[str, dict[str, str]]]:
        """Its exit status and its findings by part, asked with the agent's flags."""
        words = ["doctor" if word == "agent" else word for word in self._command]
        asked = subprocess.run(
            [*words, "--json"],
            check=False,
            capture_output=True,
            env=os.environ | self._environment,
            timeout=SECONDS,
        )
        findings = json.loads(asked.stdout)["findings"]
        return asked.returncode, {one["part"]: one for one in findings}

    def kill(self) -> None:
        """SIGKILL, as a crash."""
        self.process.stop(signal.SIGKILL)

    def log(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def accusations(self) -> list[str]:
        """What its auditor has said since the node began, over all restarts."""
        return [line for line in self.log().splitlines() if ACCUSES.search(line)]

    def promises(self) -> tuple[Grant, ...]:
        """What the journal on disk has."""
        return JournalFile(self.disk.checkpoint / FILE_NAME).load().live()

    def held(self) -> list[str]:
        """IDs of all devices that are promised, as often as they are."""
        return [name for one in self.promises() for name in one.ids.all]

    def wait_until_nothing_is_promised_twice(self) -> None:
        """Who has ended is not forgotten at once."""

        def asked() -> bool:
            held = self.held()
            return len(held) == len(set(held))

        wait_for(asked, "no device is promised twice")

    def promised_to(self, uid: str) -> tuple[Grant, ...]:
        return tuple(one for one in self.promises() if one.owner == uid)

    def named_for(self, uid: str) -> tuple[Grant, ...]:
        """What a pod that has started was promised, once the agent knows its name and its wishes:
        later, if the kubelet was slow to tell."""

        def asked() -> tuple[Grant, ...]:
            found = self.promised_to(uid)
            return found if all(one.pod and one.pod.name for one in found) else ()

        return wait_for(asked, f"the promises of {uid} have names")

    def saw_admission_of(self, uid: str) -> bool:
        """Whether the kubelet told in time who was being admitted; else nobody knew its wishes."""
        return all(one.candidate for one in self.promised_to(uid))

    def directory_of(self, allocation: Grant) -> Path:
        """Where its limits and books lie."""
        return next(self.disk.virtual.rglob(allocation.id))

    @property
    def devices(self) -> dict[str, int]:
        """How many of each resource this machine has."""
        gpus = self.machine.topology.gpus
        return {VCORE: 100 * len(gpus), VMEMORY: sum(gpu.memory // MEMORY_BLOCK for gpu in gpus)}

    def wait_until_advertised(self) -> None:
        """Until the API server tells everybody."""
        wait_for(
            lambda: all(self._node.allocatable(name) == n for name, n in self.devices.items()),
            f"the node has {self.devices}",
        )

    def _token(self) -> Path:
        path = self.disk.base / "token"
        path.write_text(self._node.token_of_account("gpumanager", (*LEAST_RULES, *API_RULES)))
        return path


def make_device_nodes(directory: Path, machine: Machine) -> None:
    numbers = {f"nvidia{gpu.minor}": gpu.minor for gpu in machine.topology.gpus} | CONTROL
    for name, minor in numbers.items():
        os.mknod(directory / name, stat.S_IFCHR | 0o666, os.makedev(NVIDIA, minor))
