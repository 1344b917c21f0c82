"""What the pictures of the dashboards show: a small cluster that is read by a real Prometheus.

Real: the agents, the extender, the webhook, the shim in each container, Prometheus and our rules.
Simulated: GPUs, kubelets, the API server, the pods' work.
"""

import asyncio
import contextlib
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml
from dashboard_scheduling import asked, started

from gpumanager.errors import GpuManagerError
from gpumanager.names import VCORE, VMEMORY
from gpumanager.sim.machines import load_machine
from gpumanager.sim.manifest.pods import read_pods
from gpumanager.sim.node import SimulatedNode

RULES: Final = Path(__file__).resolve().parents[2] / "charts/gpu-manager/rules"
NODES: Final = {"gpu-node-1": "t4x4", "gpu-node-2": "v100x4-nvlink"}
EVERY: Final = "5s"
"""A scrape, and a look at the rules: a picture is of minutes only."""


HARM_AFTER: Final = 480.0


@dataclass(frozen=True, slots=True)
class Tenant:
    """A pod of one container. after: seconds from the beginning on. burst: 0: none."""

    node: str
    namespace: str
    name: str
    cores: int
    blocks: int
    command: Sequence[str]
    after: float = 0
    burst: int = 0


def work(text: str) -> tuple[str, ...]:
    return "cuda-work", "; ".join([text] * 8)


def train(kernel: str, memory: str) -> tuple[str, ...]:
    return ("cuda-play", "launch", "--kernel", kernel, "--seconds", "7200", "--memory", memory)


GREEDY: Final = "while true; do cuda-play allocate --block 64MiB --until-refused --hold 20; done"

TENANTS: Final = (
    Tenant("gpu-node-1", "research", "train-bert", 60, 24, train("2ms", "4GiB")),
    Tenant("gpu-node-1", "serving", "answers", 30, 12,
           work("kernel=2ms pattern=burst count=5 every=50ms for=100s; "
                "kernel=2ms pattern=burst count=2 every=60ms for=80s")),
    Tenant("gpu-node-1", "vision", "augment", 25, 16, train("3ms", "2.5GiB"), burst=100),
    Tenant("gpu-node-1", "vision", "labels", 45, 16, work("kernel=4ms for=170s; rest=40s"),
           after=60),
    Tenant("gpu-node-1", "research", "notebook", 40, 20,
           ("cuda-play", "hold", "--memory", "3GiB", "--seconds", "7200")),
    Tenant("gpu-node-1", "teaching", "greedy", 25, 8, ("sh", "-c", GREEDY), after=60),
    Tenant("gpu-node-1", "research", "finetune", 100, 0, train("5ms", "9GiB"), after=30),
    Tenant("gpu-node-2", "research", "pretrain", 200, 0, train("8ms", "12GiB")),
    Tenant("gpu-node-2", "serving", "embed", 50, 20,
           work("kernel=1ms pattern=burst count=8 every=30ms for=7200s")),
    Tenant("gpu-node-2", "teaching", "lab", 30, 10,
           ("cuda-play", "hold", "--memory", "1GiB", "--seconds", "7200"), after=120),
)  # fmt: skip


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def pod_text(tenant: Tenant) -> str:
    limits = {VCORE: tenant.cores} | ({VMEMORY: tenant.blocks} if tenant.blocks else {})
    burst = {"tencent.com/vcuda-core-limit": str(tenant.burst)} if tenant.burst else {}
    container = {
        "name": "main",
        "image": "local",
        "command": list(tenant.command),
        "resources": {"limits": limits},
    }
    named = {"name": tenant.name, "namespace": tenant.namespace, "annotations": burst}
    spec = {"restartPolicy": "Never", "containers": [container]}
    return yaml.safe_dump({"apiVersion": "v1", "kind": "Pod", "metadata": named, "spec": spec})


async def live(node: SimulatedNode, tenant: Tenant, folder: Path) -> None:
    """Admit the pod when it is time, and run it; none of them is to end by itself."""
    await asyncio.sleep(tenant.after)
    path = folder / f"{tenant.name}.yaml"
    path.write_text(pod_text(tenant))
    (pod,) = read_pods([path])
    if (rejection := await node.admit(pod)) is not None:
        raise GpuManagerError(f"{pod}: {rejection}")
    (result,) = await node.run_admitted(pod)
    raise GpuManagerError(f"{pod} ended, with status {result.exit_code}")


async def harm(node: SimulatedNode) -> None:
    """Its last GPU falls off the bus, again and again."""
    await asyncio.sleep(HARM_AFTER)
    while True:
        node.gpus.faults.xid(node.machine.topology.gpus[-1].uuid, 79)
        await asyncio.sleep(15)


def configuration(folder: Path, targets: Mapping[str, Mapping[str, int]]) -> Path:
    """Prometheus', with the chart's rules. targets: by job, the port of each node, or replica."""
    rules = folder / "rules"
    rules.mkdir(parents=True, exist_ok=True)
    for path in RULES.glob("*.yaml"):
        (rules / path.name).write_text(
            path.read_text().replace("interval: 30s", f"interval: {EVERY}")
        )
    jobs = [
        {
            "job_name": job,
            "honor_labels": True,
            "scheme": "https" if job.endswith("webhook") else "http",
            "tls_config": {"insecure_skip_verify": True},
            "static_configs": [
                {"targets": [f"127.0.0.1:{port}"], "labels": _target(job, name)}
                for name, port in ports.items()
            ],
        }
        for job, ports in targets.items()
    ]
    spoken = {
        "global": {"scrape_interval": EVERY, "evaluation_interval": EVERY},
        "rule_files": [str(rules / "*.yaml")],
        "scrape_configs": jobs,
    }
    path = folder / "prometheus.yaml"
    path.write_text(yaml.safe_dump(spoken))
    return path


def _target(job: str, name: str) -> Mapping[str, str]:
    own = {"namespace": "kube-system", "pod": f"{job}-{name}"}
    return own | ({"node": name} if job.endswith("agent") else {})


def prometheus(program: Path, config: Path, data: Path, port: int) -> tuple[object, ...]:
    address = f"--web.listen-address=127.0.0.1:{port}"
    return (program, f"--config.file={config}", f"--storage.tsdb.path={data}", address,
            "--log.level=error")  # fmt: skip


async def record(program: Path, folder: Path, seconds: float) -> None:
    """So many seconds of it are in folder/data, and folder/end has the time at which it ended."""
    ports = {name: free_port() for name in NODES}
    extender, webhook = free_port(), free_port()
    targets = {
        "gpu-manager-agent": ports,
        "gpu-manager-extender": {"1": extender},
        "gpu-manager-webhook": {"1": webhook},
    }
    config = configuration(folder, targets)
    async with contextlib.AsyncExitStack() as stack:
        nodes = {
            name: await stack.enter_async_context(_node(name, machine, ports[name]))
            for name, machine in NODES.items()
        }
        await stack.enter_async_context(asked(NODES, folder, extender, webhook))
        read = prometheus(program, config, folder / "data", free_port())
        await stack.enter_async_context(started(*read))
        living = [asyncio.create_task(live(nodes[one.node], one, folder)) for one in TENANTS]
        living.append(asyncio.create_task(harm(nodes["gpu-node-2"])))
        done, _ = await asyncio.wait(living, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
        (folder / "end").write_text(str(time.time()))
        for task in living:
            task.cancel()
        for task in done:
            task.result()
        await asyncio.wait(living)


def _node(name: str, machine: str, port: int) -> SimulatedNode:
    flags = {"query-port": port, "hostname-override": name}
    return SimulatedNode(load_machine(machine), agent_flags=flags)
