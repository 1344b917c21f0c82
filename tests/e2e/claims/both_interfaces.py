"""Pods of both interfaces on one node: which GPUs each has, and whether containers run on."""

from typing import Any, Final

from gpumanager.gpu.values import GpuUUID
from gpumanager.names import ANNOTATION_CLAIMS_GPUS
from gpumanager.units import GIB
from tests.e2e.claims.claims_leftovers import offered
from tests.e2e.claims.real_claims import RealClaims
from tests.e2e.node.real_node import NODE_PATH, RealNode
from tests.e2e.node.real_pods import RealPods, gpus_seen

WAITS: Final = "cuda-play query; echo ready; sleep 600"


def annotate(node: RealNode, said: str | None) -> None:
    """How many GPUs claims are to have."""
    change = {"metadata": {"annotations": {ANNOTATION_CLAIMS_GPUS: said}}}
    node.api.ask("PATCH", NODE_PATH, change, "merge-patch+json")


def gpus_of(claims: RealClaims) -> set[str]:
    """That are offered to claims."""
    return {one["attributes"]["uuid"]["string"] for one in offered(claims)}


def runs(pods: RealPods, described: dict[str, Any]) -> GpuUUID:
    """The GPU of a new pod, which is held to its share of it."""
    name = described["metadata"]["name"]
    pods.create(described)
    ((gpu, memory),) = gpus_seen(pods.printed(name, "main", "ready")).items()
    assert memory == 2 * GIB
    return gpu


def goes_on(pods: RealPods, *names: str) -> None:
    for name in names:
        assert pods.running(name)["containerStatuses"][0]["restartCount"] == 0
