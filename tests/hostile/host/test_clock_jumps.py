"""The time of day is set, by hours, while agent and programs run.

What the agent decides by time is decided by CLOCK_MONOTONIC, and so for the shim. Before, pods that
can never start were deleted at once when the clock was set forward. When it was set back no pod was
made anew, no event written, the node not read again, and no signer asked, until the time had come
again. A suspended machine is the same: CLOCK_MONOTONIC stands still, and the time of day goes on.
"""

import ast
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

import gpumanager
from gpumanager.kube.errors import ApiRefused
from gpumanager.node_status.pod_reconciler import HOPELESS, HOPELESS_SECONDS
from tests.hostile.host.faulty_host import FaultyHost, faulty
from tests.hostile.hostile_node import HostileNode, pod
from tests.kube.api_world import ApiWorld, until
from tests.node_status.test_agent_in_a_cluster import kubeconfig
from tests.node_status.test_node_cluster import OWNER, REFUSAL

pytest_plugins = ["tests.kube.api_fixtures"]

WALL: Final = {("time", "time"), ("time", "time_ns"), ("datetime", "now"), ("time", "localtime")}
PACKAGE: Final = Path(gpumanager.__file__ or "").parent
MAY_READ: Final = {
    "grants/journal_file.py": "the name of a damaged journal",
    "deviceplugin/dependencies.py": "when a grant was made, for people",
    "dra/driver.py": "when a grant was made, for people",
    "dra/health.py": "when a GPU's health changed, in the kubelet's answer",
    "cli/support/bundle.py": "a bundle's name",
    "node_status/service.py": "since when a condition holds, for people",
    "kube/events.py": "an event's stamps",
    "gpu/usage/nvml_pass.py": "NVML's stamps are of this clock: rows that do not fit are dropped",
    "monitor/events.py": "when something happened, for people",
    "monitor/pages.py": "a page's time",
    "scheduler/extender/bind.py": "the annotation predicate-time, which nobody of us reads",
    "scheduler/certificates/keeper.py": "certificates are good by the time of day",
    "kube/lease.py": "the lease's stamps; whether it has ended is told by CLOCK_MONOTONIC",
    "scheduler/cluster_pages.py": "a page's time",
    "scheduler/extender/requeue.py": "an annotation for people",
    "scheduler/extender/service.py": "when something was decided, for people",
}


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FaultyHost:
    return faulty(monkeypatch, tmp_path)


def readers(source: str) -> Iterator[tuple[str, str]]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            yield node.value.id, node.attr


def test_the_time_of_day_is_read_for_people_and_certificates_alone() -> None:
    paths = (path for path in PACKAGE.rglob("*.py") if "sim" not in path.parts)
    found = {
        str(path.relative_to(PACKAGE)) for path in paths if WALL & {*readers(path.read_text())}
    }
    assert found == MAY_READ.keys()


@pytest.mark.namespaces
async def test_programs_and_admissions_go_on_when_the_time_is_set(host: FaultyHost) -> None:
    launch = ("cuda-play", "launch", "--kernel", "2ms", "--seconds", "6")
    hold = ("cuda-play", "hold", "--memory", "64MiB", "--seconds", "0.1")
    async with (
        HostileNode() as node,
        node.beside(pod("one", launch, cores=30)) as one,
        node.beside(pod("other", launch, cores=60)) as other,
    ):
        for number, hours in enumerate((5, -5, 0, 24 * 365, 0)):
            host.set_time(hours)
            await node.agent_lives(0.5)
            (late,) = await node.run(pod(f"late-{number}", hold, cores=10))
            assert late.exit_code == 0
        results = (*(await one), *(await other))
        log = node.node.disk.agent_log.read_text()

    assert [result.exit_code for result in results] == [0, 0]
    assert "Traceback" not in log
    assert "has stopped" not in log


async def gone(world: ApiWorld, name: str) -> bool:
    try:
        await world.api.get(world.pod_path(name))
    except ApiRefused as error:
        return error.status == 404
    return False


async def make_hopeless(world: ApiWorld, name: str) -> None:
    await world.pod(name, ownerReferences=[OWNER])
    waiting = {"reason": "PreStartHookError", "message": f"rpc error: {HOPELESS} it"}
    told: dict[str, Any] = {"name": "main", "state": {"waiting": waiting}}
    body = {"status": {"phase": "Pending", "containerStatuses": [told]}}
    await world.api.patch(world.pod_path(name) + "/status", body)


async def recycled(world: ApiWorld, name: str) -> None:
    """A pod that was not admitted is deleted; so a round of the agent is over."""
    await world.pod(name, ownerReferences=[OWNER])
    await world.fail(name, REFUSAL)
    await until(lambda: gone(world, name))


@pytest.mark.namespaces
async def test_pods_are_deleted_neither_too_early_nor_hours_too_late(
    host: FaultyHost, simulated: ApiWorld, tmp_path: Path
) -> None:
    """Five deletions use up what may be done at once; then each takes ten seconds."""
    flags: dict[str, Any] = {
        "kubeconfig": kubeconfig(tmp_path, simulated),
        "hostname-override": simulated.node,
    }
    began = time.monotonic()
    async with HostileNode(**flags):
        await make_hopeless(simulated, "waiting")
        await recycled(simulated, "first")

        host.set_time(5)
        await recycled(simulated, "ahead")
        await recycled(simulated, "a-round-later")
        waiting = not await gone(simulated, "waiting")
        assert waiting or time.monotonic() - began >= HOPELESS_SECONDS  # on a busy machine

        host.set_time(-5)
        await recycled(simulated, "behind")
