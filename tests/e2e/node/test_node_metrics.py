"""What a real node's agent tells of real pods: probes, metrics, who goes round the shim."""

import json
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse

from gpumanager.names import VCORE, VMEMORY
from tests.e2e.node.node_process import SECONDS, wait_for
from tests.e2e.node.real_agent import METRICS_PORT, RealAgent
from tests.e2e.node.real_pods import CHEAT, RealPods, container, pod

pytest_plugins = ["tests.e2e.node_fixtures"]
pytestmark = pytest.mark.e2e

HOLD = "cuda-play hold --memory 300MiB --seconds 600"
ROUND_THE_SHIM = f"LD_PRELOAD=/usr/local/nvidia/lib64/libvcuda-real.so.1 {HOLD}"
"""The driver's own file has the name that programs ask for: whoever loads it first has it."""


def get(path: str) -> str:
    with urllib.request.urlopen(f"http://localhost:{METRICS_PORT}{path}", timeout=SECONDS) as page:
        return str(page.read().decode())


def metric(name: str, **labels: str) -> list[float]:
    return [
        one.value
        for family in parse(get("/metrics" if name.startswith("gpumanager_") else "/metric"))
        for one in family.samples
        if one.name == name and labels.items() <= one.labels.items()
    ]


def tells() -> bool:
    """False before it listens, and before its first look."""
    try:
        return metric("gpumanager_driver_up") == [1]
    except OSError:
        return False


@pytest.fixture(autouse=True)
def serving(agent: RealAgent) -> None:
    """It does so soon after the registration."""
    wait_for(tells, "the agent serves its metrics")


def test_the_agent_is_ready_and_known_for_both_resources(agent: RealAgent) -> None:
    wait_for(lambda: metric("gpumanager_kubelet_registered") == [1, 1], "both resources are told")
    assert get("/healthz") == get("/readyz") == "ok\n"
    assert metric("gpumanager_kubelet_registered", resource=VCORE) == [1]
    assert metric("gpumanager_kubelet_registered", resource=VMEMORY) == [1]


def test_a_pod_is_told_by_its_names_and_no_more_when_it_is_deleted(
    agent: RealAgent, pods: RealPods
) -> None:
    uid = pods.create(pod("told", container("main", HOLD, 30, 4)))
    pods.printed("told", "main", "holding")
    names = {"pod_name": "told", "namespace": "default", "container_name": "main"}

    def memory() -> bool:
        return metric("container_gpu_memory_total", gpu_memory="total", **names) >= [300]

    wait_for(memory, "its memory is told")
    assert metric("container_request_gpu_utilization", **names) == [0.3]
    assert metric("container_request_gpu_memory", **names) == [1024]
    assert metric("gpumanager_container_memory_limit_bytes", pod="told") == [1024 << 20]
    assert "main" in json.loads(get("/usage"))["usage"][uid]["stat"]

    pods.delete("told")
    wait_for(lambda: not agent.promised_to(uid), "the journal has forgotten the pod")

    wait_for(lambda: not metric("container_request_gpu_memory", **names), "nothing is told of it")


def test_a_program_that_goes_round_the_shim_is_told_by_its_pod(
    agent: RealAgent, pods: RealPods
) -> None:
    pods.create(
        pod(
            "cheat",
            container("main", ROUND_THE_SHIM, 30, 4),
            container("honest", HOLD, 30, 4),
        )
    )
    pods.printed("cheat", "main", "holding")
    pods.printed("cheat", "honest", "holding")

    wait_for(lambda: metric("gpumanager_audit_processes", kind="unbooked") == [1], "it is told")

    assert metric("gpumanager_audit_findings_total", kind="unbooked") == [1]
    assert sum(metric("gpumanager_audit_findings_total")) == 1
    (told,) = agent.accusations()
    assert CHEAT in told
    assert "that it did not ask the shim for" in told
    assert metric("gpumanager_audit_killed_total") == [0]
    assert metric("gpumanager_identity_mismatches_total") == [0]
