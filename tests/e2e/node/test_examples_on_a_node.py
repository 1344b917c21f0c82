"""Every pod of `examples/` as real containers on a real node; what each comment promises, holds.

What containers held and how much of a GPU's time they got is the simulated GPUs' own account, which
knows nothing of limits. It is by mount namespace, of which only the living tell: a container that
ended too soon to be seen has none, unless nobody else was there.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from gpumanager.names import ANNOTATION_CORE_LIMIT, VCORE, VMEMORY
from gpumanager.sim.gpu import SimulatedGpus, TenantAccount
from gpumanager.sim.results import MeasuredUse, measure
from gpumanager.units import CORES_PER_GPU, GIB, MEMORY_BLOCK
from tests import ROOT
from tests.e2e.cluster.api_client import silent
from tests.e2e.node.node_image import THIRD_PARTY
from tests.e2e.node.node_process import wait_for
from tests.e2e.node.real_agent import RealAgent
from tests.e2e.node.real_pods import RealPods, example, exit_codes, mount_namespaces, states

pytest_plugins = ["tests.e2e.node_fixtures"]
pytestmark = pytest.mark.e2e

EXAMPLES: Final = ROOT / "examples"
IMPOSSIBLE: Final = "impossible"
LACKS: Final = "Insufficient tencent.com/vcuda-core"
NO_MEMORY: Final = re.compile(r"a share of a GPU (needs memory|without tencent\.com/vcuda-memory)")
FITTING: Final = sorted(one.stem for one in EXAMPLES.glob("*.yaml") if one.stem != IMPOSSIBLE)
SHARE_POINTS: Final = 5.0
Record = Callable[[str, object], None]


@dataclass(frozen=True, slots=True)
class Ran:
    """A container that ran. ceiling: percent it may burst to. measured: None where it was not seen
    running."""

    cores: int
    ceiling: int
    blocks: int
    exit_code: int
    log: str
    denied: int
    measured: MeasuredUse | None


class Stage:
    """Runs examples one after another."""

    def __init__(self, agent: RealAgent, pods: RealPods, gpus: SimulatedGpus) -> None:
        self._agent = agent
        self._pods = pods
        self._gpus = gpus
        self._namespaces: dict[str, int] = {}

    def run(self, name: str, **fields: Any) -> dict[str, Ran]:
        """The containers of an example by `pod/container`, once all have ended."""
        known = {account.serial for account in self._gpus.tenants()}
        described = example(EXAMPLES / f"{name}.yaml", **fields)
        for one in described:
            self._pods.create(one)
        ran: dict[str, Ran] = {}

        def all_ran() -> bool:
            self._namespaces |= mount_namespaces()
            for pod in described:
                if f"{pod['metadata']['name']}/{containers(pod)[0]['name']}" not in ran:
                    ran.update(self._ran_by(pod, known))
            return len(ran) == sum(len(containers(pod)) for pod in described)

        wait_for(all_ran, f"all pods of {name} have ended")
        return ran

    def _ran_by(self, pod: Mapping[str, Any], known: set[int]) -> dict[str, Ran]:
        """Its containers, once it has ended: soon after nobody has its books any more."""
        name = pod["metadata"]["name"]
        status = silent(lambda: self._pods.status(name))
        if not status or status["phase"] not in {"Succeeded", "Failed"}:
            return {}
        fresh = [one for one in self._gpus.tenants() if one.serial not in known]
        return {
            f"{name}/{one['name']}": self._ran(pod, one, status, fresh) for one in containers(pod)
        }

    def _ran(
        self,
        pod: Mapping[str, Any],
        container: Mapping[str, Any],
        status: Mapping[str, Any],
        fresh: list[TenantAccount],
    ) -> Ran:
        name = container["name"]
        limits = container["resources"]["limits"]
        account = self._account(status, name, fresh)
        allocation = self._directory(self._pods.uid(pod["metadata"]["name"]), name)
        used = measure(account, allocation)
        return Ran(
            cores=limits[VCORE],
            ceiling=max(limits[VCORE], burst_limit(pod)),
            blocks=limits.get(VMEMORY, 0),
            exit_code=exit_codes(status)[name],
            log=self._pods.log(pod["metadata"]["name"], name),
            denied=used.memory_denied,
            measured=None if account is None else used,
        )

    def _account(
        self, status: Mapping[str, Any], name: str, fresh: list[TenantAccount]
    ) -> TenantAccount | None:
        statuses = (*status.get("initContainerStatuses", ()), *status["containerStatuses"])
        if len(fresh) == len(statuses) == 1:
            return fresh[0]
        (found,) = (one for one in statuses if one["name"] == name)
        namespace = self._namespaces.get(found["containerID"].rpartition("/")[2])
        return next((one for one in fresh if one.mount_namespace == namespace), None)

    def _directory(self, uid: str, container: str) -> Path | None:
        """Where its books are; None for whole GPUs."""
        found = [one for one in self._agent.promised_to(uid) if one.pod and not one.exclusive]
        own = [one for one in found if one.pod and one.pod.container == container]
        return self._agent.directory_of(own[0]) if own else None


def containers(pod: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]]


def burst_limit(pod: Mapping[str, Any]) -> int:
    """Percent its annotation lets it burst to; 0 without one."""
    return int(pod["metadata"].get("annotations", {}).get(ANNOTATION_CORE_LIMIT, 0))


@pytest.fixture
def stage_of(agent: RealAgent, pods: RealPods, gpus: SimulatedGpus) -> Stage:
    return Stage(agent, pods, gpus)


@pytest.mark.parametrize("name", FITTING)
def test_an_example_runs_within_its_limits(
    name: str, stage_of: Stage, record_property: Record
) -> None:
    if name == "third-party":
        for package in THIRD_PARTY:
            pytest.importorskip(package)

    ran = stage_of.run(name)

    record_property("measured", figures(ran))
    assert any(one.measured for one in ran.values())
    for container, one in ran.items():
        assert one.exit_code == 0, (container, one.log)
        if one.measured and one.cores < CORES_PER_GPU:
            assert one.measured.memory_peak <= one.blocks * MEMORY_BLOCK, container
            assert (one.measured.share or 0) <= one.ceiling + SHARE_POINTS, container


def test_greed_is_refused_at_the_limit_in_a_real_container(stage_of: Stage) -> None:
    ran = stage_of.run("greedy-memory")["greedy-memory/main"]

    assert ran.measured is not None
    assert ran.measured.memory_peak == GIB
    assert ran.denied > 0


@pytest.mark.parametrize("name", ["half-a-gpu", "greedy-memory"])
def test_limits_hold_in_pods_that_see_the_node_s_processes(
    name: str, stage_of: Stage, record_property: Record
) -> None:
    ran = stage_of.run(name, hostPID=True)

    record_property("measured", figures(ran))
    (one,) = ran.values()
    assert one.measured is not None
    assert one.measured.memory_peak <= one.blocks * MEMORY_BLOCK
    assert (one.measured.share or 0) <= one.cores + SHARE_POINTS


def test_each_impossible_request_says_why_in_the_pod(agent: RealAgent, pods: RealPods) -> None:
    """When it is admitted; one without memory when it starts, if the kubelet is slow to list it."""
    for one in example(EXAMPLES / f"{IMPOSSIBLE}.yaml"):
        pods.create(one)

    reasons = {
        name: pods.ended(name)["message"] for name in ("one-and-a-half-gpus", "more-than-a-card")
    }

    assert "multiples of 100" in reasons["one-and-a-half-gpus"]
    assert "larger than any GPU here" in reasons["more-than-a-card"]
    wait_for(lambda: NO_MEMORY.search(why(pods, "no-memory")), NO_MEMORY.pattern)
    refused = pods.status("no-memory")["phase"] == "Failed"
    assert refused or not agent.saw_admission_of(pods.uid("no-memory"))
    wait_for(lambda: LACKS in unschedulable(pods, "too-many-gpus"), LACKS)


def figures(ran: Mapping[str, Ran]) -> dict[str, dict[str, float | int | None]]:
    """For the report: what containers held and how much of a GPU's time they got."""
    return {
        name: {"memory_peak": one.measured.memory_peak, "share": one.measured.share}
        for name, one in ran.items()
        if one.measured
    }


def why(pods: RealPods, name: str) -> str:
    """Why a pod does not run: its own message, and those of containers that wait."""
    status = pods.status(name)
    waiting = (one.get("waiting", {}).get("message", "") for one in states(status))
    return " ".join((status.get("message", ""), *waiting))


def unschedulable(pods: RealPods, name: str) -> str:
    """Why the scheduler leaves a pod where it is."""
    conditions = pods.status(name).get("conditions", [])
    said = (one.get("message", "") for one in conditions if one["type"] == "PodScheduled")
    return str(next(said, ""))
