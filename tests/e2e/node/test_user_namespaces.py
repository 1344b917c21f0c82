"""Pods with a user namespace (`hostUsers: false`), in which root is nobody on the host.

In one, runc cannot make device nodes: it shows the host's node of the same path. So the agent finds
the nodes in `/dev` here, and as those of simulated GPUs have nothing behind them, the GPUs' state
and links to the nodes are shown to the pod as a volume.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from gpumanager.gpu.values import GpuUUID
from gpumanager.grants.grant import State
from gpumanager.sim.gpu import SimulatedGpus
from gpumanager.units import GIB
from tests.e2e.claims.claims_leftovers import wait_until_offered
from tests.e2e.claims.real_claims import (
    CLASS,
    COLLECTOR,
    EVERY_GPU,
    allocated,
    claiming,
    claims_of,
    exactly,
    holder,
)
from tests.e2e.node.enclosure import DEVICES
from tests.e2e.node.node_runtime import DRIVERLESS, said_by
from tests.e2e.node.real_agent import RealAgent, make_device_nodes
from tests.e2e.node.real_node import RealNode
from tests.e2e.node.real_pods import RealPods, container, gpus_seen, pod

pytest_plugins = ["tests.e2e.node_fixtures"]
pytestmark = pytest.mark.e2e

RUNTIME_CLASSES: Final = "/apis/node.k8s.io/v1/runtimeclasses"
FIRST_RUNC: Final = (1, 2)
FIRST_KUBERNETES: Final = 33
FIRST_KERNEL: Final = (6, 3)
"""That shows a tmpfs, as a pod's token lies on, with other owners."""
SHOWN: Final = "/simulated"
WORDS: Final = (
    "cat /proc/self/uid_map; cuda-play query; cuda-play allocate --block 256MiB --until-refused; "
    "echo ready; sleep 600"
)


@pytest.fixture
def remapping_node(node: RealNode) -> Iterator[RealNode]:
    """The node, where pods can have user namespaces."""
    runc = said_by("runc", "--version").split()[2]
    if numbers(runc) < FIRST_RUNC:
        pytest.skip(f"runc {runc} has no user namespaces for pods: since 1.2 (CONTAINERD=2)")
    if node.minor < FIRST_KUBERNETES:
        pytest.skip(f"Kubernetes {node.version} has no user namespaces by default")
    if numbers(os.uname().release) < FIRST_KERNEL:
        pytest.skip(f"Linux {os.uname().release} cannot map the owners of a tmpfs: since 6.3")
    node.api.create(RUNTIME_CLASSES, {"metadata": {"name": DRIVERLESS}, "handler": DRIVERLESS})
    yield node
    node.api.delete(f"{RUNTIME_CLASSES}/{DRIVERLESS}", 0)


@pytest.fixture
def in_dev(agent: RealAgent) -> Iterator[RealAgent]:
    """The node's agent, which will find the GPUs' nodes where other nodes have them. Stopped."""
    make_device_nodes(DEVICES, agent.machine)
    agent.stop()
    before = agent.interface, agent.flags
    agent.flags = (*agent.flags, f"--device-directory={DEVICES}")
    yield agent
    agent.stop()
    agent.interface, agent.flags = before
    agent.start()
    agent.wait_until_advertised()
    for one in DEVICES.glob("nvidia*"):
        one.unlink()


@pytest.fixture
def shown(gpus: SimulatedGpus) -> Iterator[Path]:
    """What a pod is shown instead of nodes with a driver behind them."""
    folder = gpus.device_directory / "shown"
    folder.mkdir()
    (folder / "nvidiactl").hardlink_to(gpus.device_directory / "nvidiactl")
    for gpu in gpus.machine.topology.gpus:
        (folder / f"nvidia{gpu.minor}").symlink_to(DEVICES / f"nvidia{gpu.minor}")
    yield folder
    for one in folder.iterdir():
        one.unlink()
    folder.rmdir()


def test_a_pod_with_a_user_namespace_has_its_gpu_and_its_limits(
    remapping_node: RealNode, in_dev: RealAgent, pods: RealPods, shown: Path
) -> None:
    in_dev.start()
    uid = pods.create(remapped(pod("remapped", container("main", WORDS, 30, 8)), shown))

    log = pods.printed("remapped", "main", "ready")

    (grant,) = in_dev.named_for(uid)
    assert grant.state is State.CONFIRMED
    assert_held(log, list(grant.gpus))


def test_a_pod_with_a_user_namespace_has_the_gpu_of_its_claim(
    remapping_node: RealNode, in_dev: RealAgent, pods: RealPods, shown: Path
) -> None:
    if why := remapping_node.obstacle_to_claims:
        pytest.skip(why)
    in_dev.interface = "claims"
    in_dev.start()
    remapping_node.start_controllers(COLLECTOR)
    with claims_of(remapping_node.api, pods) as claims:
        claims.device_class(CLASS, EVERY_GPU)
        wait_until_offered(claims)
        source = claims.template("third", exactly("gpu", CLASS, cores=30, memory="2Gi"))
        uid = pods.create(remapped(claiming("remapped", source, holder("main", WORDS)), shown))

        log = pods.printed("remapped", "main", "ready")

        assert_held(log, [claims.uuid(one.device) for one in allocated(claims.of_pod(uid))])
    remapping_node.stop_controllers()


def remapped(described: dict[str, Any], shown: Path) -> dict[str, Any]:
    """The pod with a user namespace."""
    spec = described["spec"]
    spec |= {"hostUsers": False, "runtimeClassName": DRIVERLESS}
    spec["volumes"] = [{"name": "gpus", "hostPath": {"path": str(shown), "type": "Directory"}}]
    for one in spec["containers"]:
        one["volumeMounts"] = [{"name": "gpus", "mountPath": SHOWN}]
        one["env"] = [*one["env"], {"name": "GPUSIM_DEV", "value": SHOWN}]
    return described


def assert_held(log: str, gpus: list[GpuUUID]) -> None:
    """Root in the pod is not the host's, and sees and gets 2 GiB of this GPU."""
    first, host, _ = log.split()[:3]
    assert (first, int(host) > 0) == ("0", True)
    assert gpus_seen(log) == dict.fromkeys(gpus, 2 * GIB)
    assert "refused" in log


def numbers(version: str) -> tuple[int, ...]:
    """The first two, as of `6.18.44-fc`."""
    return tuple(int(one) for one in version.split(".")[:2])
