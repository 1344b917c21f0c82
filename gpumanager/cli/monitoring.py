"""The monitor in the node agent: where it looks, whom it tells, where it listens."""

import importlib.metadata
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from gpumanager.allocator.journal_file import FILE_NAME
from gpumanager.cluster.access import node_name
from gpumanager.deviceplugin.plugin import DevicePlugin
from gpumanager.gpu.health_watch import HealthWatch
from gpumanager.gpu.values import GpuUUID
from gpumanager.monitor.auditor import Auditor, Policy, Rules
from gpumanager.monitor.driver import NvmlDriver
from gpumanager.monitor.journal_meter import TimedJournalFile
from gpumanager.monitor.latency import Latencies, TimedAllocator
from gpumanager.monitor.ports import GpuFitness, Reports, Sources
from gpumanager.monitor.service import Monitor, Settings
from gpumanager.runtime.peers import PodCheck
from gpumanager.runtime.processes import Containers
from gpumanager.settings import AgentSettings
from gpumanager.virtual.manager import VirtualSockets


@dataclass(slots=True)
class Monitored:
    """The parts of an agent that the monitor looks at."""

    allocator: TimedAllocator
    plugin: DevicePlugin
    virtual: VirtualSockets
    peers: PodCheck
    residents: Containers
    health: HealthWatch | None = None
    """Once there is one."""


class Monitoring:
    """What has to be there before what it measures: latencies, and the journal's file."""

    def __init__(self, settings: AgentSettings) -> None:
        self._settings = settings
        self.latencies = Latencies()
        self.journal = TimedJournalFile(settings.checkpoint_path / FILE_NAME)

    def over(self, parts: Monitored, reports: Reports) -> Monitor:
        """The monitor of all these; it looks and listens once it runs."""
        return Monitor(
            _settings(self._settings),
            self._sources(parts),
            NvmlDriver(),
            latencies=self.latencies,
            writes=lambda: self.journal.measured,
            not_ready=lambda: not_ready(parts.allocator, parts.plugin),
            auditor=Auditor(Rules(Policy(self._settings.behind_the_shim)), reports),
        )

    def _sources(self, parts: Monitored) -> Sources:
        allocator, plugin = parts.allocator, parts.plugin
        return Sources(
            node=node_name(self._settings.hostname_override),
            topology=lambda: allocator.topology,
            journal=lambda: allocator.journal,
            journal_bytes=self.journal.size,
            books=parts.virtual,
            residents=parts.residents,
            registered=lambda: {one.resource: one.registered for one in plugin.standings},
            mismatched=lambda: parts.peers.strangers,
            fitness=lambda: fitness(parts.health),
            disagreements=lambda: Counter(one.kind for one in allocator.disagreements),
        )


def fitness(watch: HealthWatch | None) -> Mapping[GpuUUID, GpuFitness]:
    known = watch.health.gpus if watch else ()
    return {one.gpu: GpuFitness(one.healthy, one.xids) for one in known}


def not_ready(allocator: TimedAllocator, plugin: DevicePlugin) -> str:
    """Why the agent is not ready; empty when it is."""
    if not allocator.recovered:
        return "the journal is not loaded yet"
    missing = [one.resource for one in plugin.standings if not one.registered]
    return f"not registered with the kubelet: {', '.join(missing)}" if missing else ""


def _settings(settings: AgentSettings) -> Settings:
    return Settings(
        address=settings.query_addr,
        port=settings.query_port or None,
        period=settings.sample_period,
        version=importlib.metadata.version("gpu-manager"),
    )
