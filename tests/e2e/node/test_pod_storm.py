"""Many pods at once, by many clients at once: every container ends up with its own limits."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from gpumanager.grants.grant import State
from gpumanager.names import VCORE, VMEMORY
from gpumanager.units import GIB, MEMORY_BLOCK
from tests.e2e.node.kubelet_clock import waited
from tests.e2e.node.node_process import wait_for
from tests.e2e.node.real_agent import RealAgent
from tests.e2e.node.real_pods import RealPods, container, memory_seen, pod

pytest_plugins = ["tests.e2e.node_fixtures"]
pytestmark = pytest.mark.e2e

PODS = 50
CLIENTS = 16
REPORTS = """
cuda-play query
set -- $(ls -di /etc/vcuda)
echo "is $POD_UID $VCUDA_ALLOCATION $1"
sleep 600
"""


@pytest.mark.parametrize("placed", ["scheduler", "nodeName"])
def test_fifty_pods_of_equal_size_at_once_get_limits_of_their_own(
    agent: RealAgent,
    pods: RealPods,
    placed: str,
    record_property: Callable[[str, object], None],
) -> None:
    fields = {"nodeName": "node1"} if placed == "nodeName" else {}
    before = {one: waited(one, agent.token) for one in (VCORE, VMEMORY)}
    described = [
        pod(f"storm-{n}", container("main", REPORTS, 10, 4), **fields) for n in range(PODS)
    ]

    with ThreadPoolExecutor(CLIENTS) as clients:
        uids = list(clients.map(pods.create, described))

    for n, uid in enumerate(uids):
        printed = pods.printed(f"storm-{n}", "main", "is ")
        told, name, inode = printed.rpartition("is ")[2].split()
        (own,) = agent.promised_to(uid)
        assert told == uid
        assert (own.id, own.state) == (name, State.CONFIRMED)
        assert agent.directory_of(own).stat().st_ino == int(inode)
        assert memory_seen(printed) == GIB
    wait_for(lambda: len(agent.held()) == PODS * (10 + 4), "who was there before is forgotten")
    assert len(set(agent.held())) == PODS * (10 + 4)
    after = {one: waited(one, agent.token).since(earlier) for one, earlier in before.items()}
    record_property("measured", {one: str(stood) for one, stood in after.items()})
    assert [stood.calls for stood in after.values()] == [PODS, PODS]


def test_pods_that_differ_in_memory_alone_each_get_their_own(
    agent: RealAgent, pods: RealPods
) -> None:
    described = [pod(f"own-{n}", container("main", REPORTS, 10, 3 + n)) for n in range(12)]

    with ThreadPoolExecutor(CLIENTS) as clients:
        list(clients.map(pods.create, described))

    for n in range(12):
        printed = pods.printed(f"own-{n}", "main", "is ")
        assert memory_seen(printed) == (3 + n) * MEMORY_BLOCK
