"""Pods for kube-scheduler with our extender, and what became of them, as the API server has it."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from gpumanager.names import ANNOTATION_GPU_ASSIGNED
from tests.e2e.cluster.api_client import ApiClient, Object, silent
from tests.e2e.cluster.gpu_accounts import Accounts, accounts
from tests.e2e.node.node_process import wait_for
from tests.e2e.node.real_node import NODE
from tests.e2e.node.real_pods import PODS, RealPods, container, pod

NODES: Final = "/api/v1/nodes"
SIZES: Final = ((50, 16), (30, 8), (100, 8), (20, 8), (60, 24))
"""Cores and blocks."""
CLIENTS: Final = 16
"""How many ask for pods at once."""


class ClusterView:
    """scheduler: whom the pods name."""

    def __init__(self, api: ApiClient, scheduler: str, pods: RealPods) -> None:
        self.pods = pods
        self._api = api
        self._scheduler = scheduler

    def pod(self, name: str, *containers: object, **fields: Any) -> dict[str, Any]:
        return pod(name, *containers, schedulerName=self._scheduler, **fields)

    def burst(self, name: str, count: int) -> list[dict[str, Any]]:
        """Of several sizes."""
        return [
            self.pod(f"{name}-{n}", container("main", "sleep 600", *SIZES[n % len(SIZES)]))
            for n in range(count)
        ]

    def create(self, described: list[dict[str, Any]]) -> None:
        """All at once."""
        with ThreadPoolExecutor(CLIENTS) as clients:
            list(clients.map(self.pods.create, described))

    def accounts(self) -> Accounts:
        """Now; of all pods of the test."""
        return accounts(self._api.get(NODES)["items"], self._api.get(PODS)["items"])

    def node_of(self, name: str) -> str:
        """Empty while it waits."""
        return str(self._api.get(f"{PODS}/{name}")["spec"].get("nodeName", ""))

    def some_are_bound(self, least: int) -> None:
        wait_for(lambda: len(self.accounts().bound) >= least, f"{least} pods are bound")

    def settled(self) -> Accounts:
        """Once nobody waits for whom there is room, and the node has said what it gave."""

        def asked() -> Accounts | None:
            pods = self._api.get(PODS)["items"]
            now = accounts(self._api.get(NODES)["items"], pods)
            return now if all_given(pods) and not now.overlooked else None

        found: Accounts = wait_for(
            lambda: silent(asked), "everybody for whom there is room is bound, and runs"
        )
        return found

    def told(self, name: str, words: str) -> bool:
        """Whether a pod that waits comes to be told so: what was tried while the extender was away
        says something else, until it is tried again."""
        return wait_for(lambda: words in self.why_it_waits(name), f"{name} is told: {words}")

    def why_it_waits(self, name: str) -> str:
        """The scheduler's own words in the pod's status."""

        def asked() -> str:
            conditions = self.pods.status(name).get("conditions", [])
            found = (one.get("message", "") for one in conditions if one["type"] == "PodScheduled")
            return next(found, "")

        return wait_for(asked, f"it is said why {name} waits")


def all_given(pods: Sequence[Object]) -> bool:
    """Whether the node has said of all of its pods what it gave them."""
    on_node = [one for one in pods if one["spec"].get("nodeName") == NODE]
    return all(one["metadata"]["annotations"][ANNOTATION_GPU_ASSIGNED] == "true" for one in on_node)
