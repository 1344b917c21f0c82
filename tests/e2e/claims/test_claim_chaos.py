"""Agent, kubelet, containerd and API server killed at random while pods with claims come and go.

In each round some pods are made, some of the four are killed while they start, some pods and claims
are deleted in ways that people delete them, and the killed come back in any order. Afterwards no
GPU has been promised twice to containers that run, and in the end nothing is left of anything.
GPUMANAGER_E2E_ROUNDS says how many rounds, GPUMANAGER_E2E_SEED which.
"""

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

import pytest

from tests.e2e.claims.claims_history import ClaimsHistory, running_pods
from tests.e2e.claims.claims_leftovers import (
    allocation_directories,
    nothing_is_left,
    offered,
)
from tests.e2e.claims.real_claims import (
    CLAIMS,
    CLASS,
    RealClaims,
    claiming,
    device_accounts,
    exactly,
    holder,
)
from tests.e2e.cluster.api_client import ApiError, silent
from tests.e2e.node.node_process import wait_for
from tests.e2e.node.real_agent import RealAgent
from tests.e2e.node.real_node import NODE, RealNode
from tests.e2e.node.real_pods import PODS, RealPods, gpus_seen

pytest_plugins = ["tests.e2e.node_fixtures", "tests.e2e.claims.claims_fixtures"]
pytestmark = pytest.mark.e2e

ROUNDS: Final = int(os.environ.get("GPUMANAGER_E2E_ROUNDS", "5"))
SEED: Final = int(os.environ.get("GPUMANAGER_E2E_SEED", "20"))
LONGEST_SECONDS: Final = 30 * 60
MOST_PODS: Final = 10
HOLDS: Final = "cuda-play query; echo ready; cuda-play hold --memory 512MiB --seconds 3600"
SERVICES: Final = ("kubelet", "containerd", "api")
MERGE: Final = "merge-patch+json"
NODE_LEASE: Final = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{NODE}"


class Chaos:
    """One node, and what is done to it."""

    def __init__(
        self, node: RealNode, agent: RealAgent, claims: RealClaims, pods: RealPods, seed: int
    ) -> None:
        self._node = node
        self.agent = agent
        self._claims = claims
        self._pods = pods
        self._random = random.Random(seed)
        self._count = 0
        self.alive: dict[str, str] = {}
        """UIDs by name of the pods that are to run."""
        self.sources = [
            claims.template("share", exactly("gpu", CLASS, cores=30, memory="8Gi")),
            claims.template("large", exactly("gpu", CLASS, cores=70, memory="24Gi")),
            claims.template("whole", exactly("gpu", CLASS, 2)),
            claims.template(
                "apart",
                exactly("a", CLASS, cores=20, memory="4Gi"),
                exactly("b", CLASS, cores=40, memory="4Gi"),
                constraints=[{"distinctAttribute": f"{CLASS}/uuid"}],
            ),
            claims.claim("common", exactly("gpu", CLASS, cores=50, memory="16Gi")),
        ]
        self._parts = {"agent": agent.process} | {name: node.part(name) for name in SERVICES}
        self._ways: dict[str, tuple[Callable[[], None], Callable[[], None]]] = {
            "agent": (agent.kill, agent.launch),
            "kubelet": (partial(node.stop_kubelet, signal.SIGKILL), node.start_kubelet),
            "containerd": (node.kill_containerd, node.start_containerd),
            "api": (node.stop_api, node.start_api),
        }
        self.killed = dict.fromkeys(self._ways, 0)

    def round(self) -> None:
        """Pods come; some of the four are killed; pods go; the killed are back."""
        for _ in range(self._random.randint(1, 4)):
            self._create()
        victims = self._random.sample([*self._ways], self._random.randint(1, 3))
        time.sleep(self._random.uniform(0, 1.5))
        for one in victims:
            self._ways[one][0]()
            self.killed[one] += 1
        self._delete_some()
        self._random.shuffle(victims)
        for one in victims:
            self._ways[one][1]()
        self._delete_some()
        self.revive()

    def revive(self) -> None:
        """As systemd does, what has ended by itself too: a kubelet that finds no containerd."""
        for name, (_, start) in self._ways.items():
            if not self._parts[name].runs:
                start()

    def _create(self) -> None:
        if len(self.alive) < MOST_PODS:
            self._count += 1
            name = f"chaos-{self._count}"
            source = self._random.choice(self.sources)
            described = claiming(name, source, holder("main", HOLDS))
            self.alive[name] = self._pods.create(described)

    def _delete_some(self) -> None:
        ways = (self._gently, self._by_force, self._claim_first)
        for name in self._random.sample([*self.alive], min(len(self.alive), 2)):
            try:
                self._random.choice(ways)(name)
            except ApiError as error:
                if error.status:
                    raise
                continue  # the API server is away: another time
            del self.alive[name]

    def _gently(self, name: str) -> None:
        self._node.api.delete(f"{PODS}/{name}", 1)

    def _by_force(self, name: str) -> None:
        self._node.api.delete(f"{PODS}/{name}", 0)

    def _claim_first(self, name: str) -> None:
        """Its own claim is gone while it runs, whoever wants to keep it."""
        for claim in self._claims.all():
            if self.alive[name] in {
                one["uid"] for one in claim["metadata"].get("ownerReferences", ())
            }:
                path = f"{CLAIMS}/{claim['metadata']['name']}"
                self._node.api.delete(path, 0)
                nothing = {"metadata": {"finalizers": None}}
                silent(partial(self._node.api.ask, "PATCH", path, nothing, MERGE))
        self._gently(name)


@pytest.fixture
def chaos(
    claims_node: RealNode, claims_agent: RealAgent, claims: RealClaims, pods: RealPods
) -> Iterator[Chaos]:
    """The node is ready again after it, whatever happened."""
    made = Chaos(claims_node, claims_agent, claims, pods, SEED)
    yield made
    runs_again(claims_node, made, claims)


def test_nothing_is_promised_twice_or_left_after_everything_was_killed(
    chaos: Chaos,
    claims_node: RealNode,
    claims: RealClaims,
    pods: RealPods,
    record_property: Callable[[str, object], None],
) -> None:
    directories, slices = allocation_directories(chaos.agent), claims.slices()
    until, rounds = time.monotonic() + LONGEST_SECONDS, 0
    with ClaimsHistory(claims_node.api) as history:
        while rounds < ROUNDS and time.monotonic() < until:
            chaos.round()
            rounds += 1
            assert beyond(history) == {}, f"round {rounds}"
            assert device_accounts(slices, claims.all()).overbooked == [], f"round {rounds}"
        record_property("measured", f"{rounds} rounds, killed {chaos.killed}")
        runs_again(claims_node, chaos, claims)
        for name in chaos.alive:
            pods.printed(name, "main", "holding")
        assert beyond(history) == {}
        assert history.unknown() == set()

    pods.delete()

    wait_for(lambda: not running_pods(), "all containers have ended")
    nothing_is_left(chaos.agent, claims)
    assert allocation_directories(chaos.agent) == directories
    claims_node.api.delete(f"{CLAIMS}/common", 0)
    wait_for(lambda: not claims.all(), "a claim of its own goes when it is deleted")
    everything = claims.template("everything", exactly("g", CLASS, 8))
    pods.create(claiming("last", everything, holder("main", HOLDS)))
    assert len(gpus_seen(pods.printed("last", "main", "ready"))) == 8


def beyond(history: ClaimsHistory) -> dict[Any, Any]:
    """GPUs of which running containers have more than there is."""
    return {
        device: held
        for device, held in history.held().items()
        if held["cores"] > 100 or held["memory"] > 40 << 30
    }


def runs_again(node: RealNode, chaos: Chaos, claims: RealClaims) -> None:
    """All that was killed is back, and the GPUs are offered."""

    def ready() -> bool:
        chaos.revive()
        lease = silent(lambda: node.api.get(NODE_LEASE))
        return (
            lease is not None
            and lease["spec"]["renewTime"] > since  # the node's status is told at changes only
            and len(offered(claims)) == 8
        )

    since = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    wait_for(ready, "the kubelet renews its lease, and all GPUs are offered")
