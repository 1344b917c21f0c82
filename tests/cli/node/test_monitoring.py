"""What makes the agent ready, and what it says until then."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from gpumanager.agent.monitoring import Monitoring, name_of, not_ready
from gpumanager.gpu.values import GpuUUID
from gpumanager.grants.grant import Claimant, DevicePluginSource, Grant, Share
from gpumanager.grants.journal import Journal
from gpumanager.grpc_wire import PluginStanding
from gpumanager.ids import AllocationID, PodUID
from gpumanager.settings import AgentSettings
from gpumanager.supervisor import Supervisor


class Agent:
    """A plugin and an allocator, as far as they are asked."""

    def __init__(self, *, recovered: bool, **registered: bool) -> None:
        self.node = SimpleNamespace(recovered=recovered)
        self.standings = [
            PluginStanding(name, served=True, registered=known, failure=None)
            for name, known in registered.items()
        ]


@pytest.mark.parametrize(
    ("agent", "why"),
    [
        (Agent(recovered=False, a=False, b=False), "the journal is not loaded yet"),
        (Agent(recovered=True, a=True, b=False), "not registered with the kubelet: b"),
        (Agent(recovered=True, a=False, b=False), "not registered with the kubelet: a, b"),
        (Agent(recovered=True, a=True, b=True), ""),
    ],
)
def test_an_agent_is_ready_with_its_journal_and_both_resources(agent: Agent, why: str) -> None:
    assert not_ready(agent) == why  # type: ignore[arg-type]


async def test_without_a_gpu_it_is_said_what_is_waited_for() -> None:
    reasons = ["", "the driver lists no GPU"]
    monitoring = Monitoring(AgentSettings(), Supervisor(), lambda: reasons[-1])

    assert monitoring.not_ready() == "waiting for a GPU: the driver lists no GPU"
    reasons.pop()
    assert monitoring.not_ready() == "the agent is starting"


async def test_the_journal_that_is_timed_is_the_agent_s(tmp_path: Path) -> None:
    monitoring = Monitoring(AgentSettings(checkpoint_path=tmp_path), Supervisor())

    assert monitoring.journal.path == tmp_path / "allocations.json"


class Parts:
    """A journal with one promise, and a cluster that knows one pod more."""

    def __init__(self, promise: Grant) -> None:
        self.interfaces = self.node = self
        self.journal = Journal({promise.id: promise})
        self.named = {PodUID("elsewhere"): "team/other"}.get


@pytest.mark.parametrize("field", ["pod", "candidate"])
def test_a_pod_is_named_by_the_journal_or_by_the_cluster(field: str) -> None:
    holder = Claimant(PodUID("held"), "team", "holder", "main")
    promise = Grant(
        AllocationID("a"),
        DevicePluginSource("admission", ("c-0",)),
        {GpuUUID("GPU-0"): Share(1, 0)},
        **{field: holder},  # type: ignore[arg-type]
    )

    parts = Parts(promise)

    assert name_of(PodUID("held"), parts) == "team/holder"  # type: ignore[arg-type]
    assert name_of(PodUID("elsewhere"), parts) == "team/other"  # type: ignore[arg-type]
    assert name_of(PodUID("unheard of"), parts) is None  # type: ignore[arg-type]
