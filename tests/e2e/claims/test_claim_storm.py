"""Many pods at once, each with a claim of its own: what a claim says is what its container has.

Held against each other are the claim's status and slice, the CDI file that is named after the
claim's UID, what the container's programs see, and the account that the simulated GPUs keep
themselves of what these programs got: memory until they were refused, and GPU time.
"""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from gpumanager.gpu.values import GpuUUID
from gpumanager.names import CDI_PATH
from gpumanager.sim.gpu import SimulatedGpus
from gpumanager.units import MIB
from tests.e2e.claims.real_claims import CLASS, RealClaims, allocated, claiming, exactly, holder
from tests.e2e.node.real_pods import RealPods, gpus_seen, mount_namespaces

pytest_plugins = ["tests.e2e.node_fixtures", "tests.e2e.claims.claims_fixtures"]
pytestmark = pytest.mark.e2e

PODS: Final = 50
CLIENTS: Final = 16
CORES: Final = 10
BLOCK: Final = 64 * MIB
SHARE_POINTS: Final = 5.0
LIMITS: Final = "/etc/vcuda"
TAKES_ALL: Final = f"""
cuda-play query
set -- $(ls -di {LIMITS})
echo "directory $1"
cuda-play allocate --block 64MiB --until-refused
cuda-play launch --kernel 5ms --seconds 8
echo ready
sleep 600
"""


@dataclass(frozen=True)
class Held:
    """What one claim says, or one container has, of one GPU. directory: an inode."""

    gpu: GpuUUID
    memory: int
    directory: int


def test_fifty_equal_claims_at_once_are_what_their_containers_are_held_to(
    claims: RealClaims,
    pods: RealPods,
    claims_gpus: SimulatedGpus,
    record_property: Callable[[str, object], None],
) -> None:
    source = claims.template("equal", exactly("gpu", CLASS, cores=CORES, memory="1Gi"))
    names = [f"equal-{n}" for n in range(PODS)]
    described = [claiming(name, source, holder("main", TAKES_ALL)) for name in names]

    with ThreadPoolExecutor(CLIENTS) as clients:
        uids = list(clients.map(pods.create, described))

    said = [pods.printed(name, "main", "ready") for name in names]
    wanted = [of_claim(claims, uid) for uid in uids]
    mismatches = [
        one for one in zip(wanted, map(of_container, said), strict=True) if len({*one}) > 1
    ]
    assert mismatches == []
    assert len({one.directory for one in wanted}) == PODS
    assert claims.accounts().overbooked == []
    shares = [share_of(claims_gpus, pods, *one) for one in zip(names, wanted, strict=True)]
    record_property(
        "measured", f"{PODS} pods of {CORES} cores got {min(shares)} to {max(shares)} %"
    )
    assert max(shares) <= CORES + SHARE_POINTS


def of_claim(claims: RealClaims, uid: str) -> Held:
    """By the claim of a pod, and by the CDI file that is its."""
    claim = claims.of_pod(uid)
    (given,) = allocated(claim)
    (spec,) = Path(CDI_PATH).glob(f"*{claim['metadata']['uid']}*")
    (device,) = json.loads(spec.read_text())["devices"]
    (directory,) = (
        one["hostPath"]
        for one in device["containerEdits"]["mounts"]
        if one["containerPath"] == LIMITS
    )
    memory = int(given.consumed["memory"])
    return Held(claims.uuid(given.device), memory, Path(directory).stat().st_ino)


def of_container(said: str) -> Held:
    """By what its programs printed."""
    ((gpu, memory),) = gpus_seen(said).items()
    return Held(gpu, memory, int(said.partition("directory ")[2].split()[0]))


def share_of(gpus: SimulatedGpus, pods: RealPods, name: str, wanted: Held) -> float:
    """Percent of its GPU's time that the container got while it worked; its memory is checked."""
    (own,) = pods.container_ids(name).values()
    namespace = mount_namespaces()[own]
    (account,) = (one for one in gpus.tenants() if one.mount_namespace == namespace)
    (taken,) = (one for one in account.devices.items() if one[1].bytes_peak)
    assert taken[0] == wanted.gpu
    assert wanted.memory - BLOCK < taken[1].bytes_peak <= wanted.memory
    return round(100 * taken[1].busy_ns / (taken[1].last_end_ns - taken[1].first_work_ns), 1)
