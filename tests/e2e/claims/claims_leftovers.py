"""What is left of claims on a node and in its cluster, once no pod has one."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from gpumanager.names import CDI_PATH, PLUGINS_PATH, PLUGINS_REGISTRY_PATH
from tests.e2e.claims.real_claims import CLASS, RealClaims
from tests.e2e.cluster.api_client import Object, silent
from tests.e2e.node.node_process import wait_for
from tests.e2e.node.real_agent import RealAgent

CHECKPOINT: Final = Path("/var/lib/kubelet/dra_manager_state")
ALL_FREE: Final = {"freeCores": {"int": 100}, "freeMemory": {"int": 40960}}


def offered(claims: RealClaims) -> Sequence[Object]:
    found: list[dict[str, Any]] = silent(claims.slices) or []
    return [one for each in found for one in each["spec"].get("devices", ())]


def wait_until_offered(claims: RealClaims) -> None:
    """All GPUs of the node. Where device plugins had them, there may be a slice without any."""
    wait_for(lambda: len(offered(claims)) == 8, "the GPUs are offered")


def nothing_is_left(agent: RealAgent, claims: RealClaims) -> None:
    try:
        wait_for(lambda: left_by_claims(agent, claims) == [], "nothing is left")
    except AssertionError as error:
        raise AssertionError(f"{error}: {left_by_claims(agent, claims)}") from None


def left_by_claims(agent: RealAgent, claims: RealClaims) -> list[str]:
    """What should not be there once no pod has a claim; one that pods shared may be."""
    sockets = [*Path(PLUGINS_REGISTRY_PATH).glob(f"{CLASS}*.sock")]
    services = [*Path(PLUGINS_PATH, CLASS).glob("*.sock")]
    found = {
        "claims": [one["metadata"]["name"] for one in claims.all() if "ownerReferences" in one],
        "allocations": [*claims.in_use()],
        "CDI files": [*Path(CDI_PATH).glob("*")],
        "grants": [*agent.promises()],
        "GPUs in use": [
            one["name"]
            for one in offered(claims)
            if "taints" in one or not ALL_FREE.items() <= one["attributes"].items()
        ],
        "GPUs that are missing": [] if len(offered(claims)) == 8 else ["some"],
        "sockets": sockets[1:] + services[1:],
        "the kubelet's checkpoint": [CLASS] if CLASS in CHECKPOINT.read_text() else [],
    }
    return [f"{name}: {one}" for name, rows in found.items() for one in rows]


def allocation_directories(agent: RealAgent) -> set[str]:
    """Of limits and sockets, whoever they are for; all are in one, which is made with the first."""
    return {str(one.relative_to(agent.disk.virtual)) for one in agent.disk.virtual.glob("*/*")}
