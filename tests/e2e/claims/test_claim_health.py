"""A GPU that has an Xid: a taint in the slice and the health of pods that have it, and back.

Where the taint is to evict, its pods go, but for those whose claims tolerate it.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest
from gpu_faults import SimulatedFaults

from gpumanager.sim.gpu import SimulatedGpus
from tests.e2e.claims.real_claims import (
    CLASS,
    Device,
    RealClaims,
    allocated,
    claiming,
    exactly,
    holder,
)
from tests.e2e.node.node_process import wait_for
from tests.e2e.node.real_agent import RealAgent
from tests.e2e.node.real_pods import RealPods

pytest_plugins = ["tests.e2e.node_fixtures", "tests.e2e.claims.claims_fixtures"]
pytestmark = pytest.mark.e2e

WAITS: Final = "cuda-play query; echo ready; sleep 600"
TRANSIENT: Final = 142
"""The code of an Xid after which a GPU may be used again."""
RECOVERS_SOON: Final = ("--health-check-period=1s", "--health-recovery=3s")
TAINT: Final = f"{CLASS}/unhealthy"
TOLERATES: Final = {"key": TAINT, "operator": "Exists", "effect": "NoExecute"}


@contextmanager
def begun_anew(agent: RealAgent, *flags: str) -> Iterator[None]:
    """The agent has these flags when it starts next, and not afterwards."""
    agent.stop()
    agent.flags = flags
    yield
    agent.flags = ()
    agent.stop()


@pytest.fixture
def recovers_soon(agent_of_claims: RealAgent) -> Iterator[None]:
    with begun_anew(agent_of_claims, *RECOVERS_SOON):
        yield


@pytest.fixture
def evicts(agent_of_claims: RealAgent) -> Iterator[None]:
    with begun_anew(agent_of_claims, *RECOVERS_SOON, "--unhealthy-taint=NoExecute"):
        yield


def test_an_xid_becomes_a_taint_and_the_health_of_pods_and_recovery_takes_both_back(
    recovers_soon: None,
    claims: RealClaims,
    pods: RealPods,
    claims_gpus: SimulatedGpus,
    record_property: Callable[[str, object], None],
) -> None:
    source = claims.template("share", exactly("gpu", CLASS, cores=30, memory="2Gi"))
    uid = pods.create(claiming("ill", source, holder("main", WAITS)))
    pods.printed("ill", "main", "ready")
    (given,) = allocated(claims.of_pod(uid))
    wait_for(lambda: health(pods, "ill") == "Healthy", "it is said to be well")

    began = time.monotonic()
    SimulatedFaults(claims_gpus).xid(claims.uuid(given.device), TRANSIENT)
    wait_for(lambda: taints(claims, given.device), "the GPU is tainted")
    tainted = time.monotonic() - began
    wait_for(lambda: health(pods, "ill") == "Unhealthy", "the pod's status says so")
    told = time.monotonic() - began
    record_property("measured", f"tainted after {tainted:.2f} s, told after {told:.2f} s")

    assert [one["effect"] for one in taints(claims, given.device)] == ["NoSchedule"]
    other = pods.create(claiming("other", source, holder("main", WAITS)))
    pods.printed("other", "main", "ready")
    (elsewhere,) = allocated(claims.of_pod(other))
    assert elsewhere.device != given.device
    wait_for(lambda: not taints(claims, given.device), "the taint is taken back")
    wait_for(lambda: health(pods, "ill") == "Healthy", "it is said to be well again")
    assert pods.running("ill")["containerStatuses"][0]["restartCount"] == 0


def test_an_xid_evicts_pods_that_do_not_tolerate_it_and_recovery_takes_the_taint_back(
    evicts: None,
    claims: RealClaims,
    pods: RealPods,
    claims_gpus: SimulatedGpus,
    record_property: Callable[[str, object], None],
) -> None:
    of_one = {"cel": {"expression": f"device.attributes['{CLASS}'].uuid == '{first(claims_gpus)}'"}}
    share = dict(exactly("gpu", CLASS, cores=30, memory="2Gi")["exactly"], selectors=[of_one])
    plain = claims.template("plain", {"name": "gpu", "exactly": share})
    tolerant = {"name": "gpu", "exactly": share | {"tolerations": [TOLERATES]}}
    tolerates = claims.template("tolerates", tolerant)
    pods.create(claiming("goes", plain, holder("main", WAITS)))
    uid = pods.create(claiming("stays", tolerates, holder("main", WAITS)))
    for name in ("goes", "stays"):
        pods.printed(name, "main", "ready")
    (given,) = allocated(claims.of_pod(uid))

    began = time.monotonic()
    SimulatedFaults(claims_gpus).xid(claims.uuid(given.device), TRANSIENT)

    wait_for(lambda: not pods.exists("goes"), "it is evicted")
    record_property("measured", f"evicted and gone after {time.monotonic() - began:.2f} s")
    wait_for(lambda: not taints(claims, given.device), "the taint is taken back")
    assert pods.running("stays")["containerStatuses"][0]["restartCount"] == 0
    pods.create(claiming("comes", plain, holder("main", WAITS)))
    pods.printed("comes", "main", "ready")


def first(gpus: SimulatedGpus) -> str:
    return gpus.machine.topology.gpus[0].uuid


def taints(claims: RealClaims, device: Device) -> list[dict[str, Any]]:
    """Of a device in its slice."""
    return [
        taint
        for each in claims.slices()
        for one in each["spec"]["devices"]
        if one["name"] == device[1]
        for taint in one.get("taints", ())
        if taint["key"] == TAINT
    ]


def health(pods: RealPods, name: str) -> str:
    """Of the one device that a pod has, by its status; empty where nothing is said."""
    (container,) = pods.status(name)["containerStatuses"]
    found = [
        one["health"]
        for row in container.get("allocatedResourcesStatus", ())
        for one in row["resources"]
    ]
    return str(found[0]) if found else ""
