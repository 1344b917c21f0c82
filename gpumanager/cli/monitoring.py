"""The monitor in the node agent: where it looks, whom it tells, where it listens."""

import importlib.metadata

from gpumanager.allocator.journal_file import FILE_NAME
from gpumanager.deviceplugin.plugin import DevicePlugin
from gpumanager.gpu.values import Topology
from gpumanager.monitor.auditor import Auditor, Policy, Rules
from gpumanager.monitor.driver import NvmlDriver
from gpumanager.monitor.journal_meter import TimedJournalFile
from gpumanager.monitor.latency import Latencies, TimedAllocator
from gpumanager.monitor.ports import Reports, Sources
from gpumanager.monitor.service import Monitor, Settings
from gpumanager.runtime.peers import PodCheck
from gpumanager.runtime.processes import Containers
from gpumanager.settings import AgentSettings
from gpumanager.virtual.manager import VirtualSockets


class Monitoring:
    """What has to be there before what it measures: latencies, and the journal's file."""

    def __init__(self, settings: AgentSettings) -> None:
        self._settings = settings
        self.latencies = Latencies()
        self.journal = TimedJournalFile(settings.checkpoint_path / FILE_NAME)

    def over(
        self,
        topology: Topology,
        allocator: TimedAllocator,
        plugin: DevicePlugin,
        *,
        virtual: VirtualSockets,
        peers: PodCheck,
        residents: Containers,
        reports: Reports | None = None,
    ) -> Monitor:
        """The monitor of all these; it looks and listens once it runs."""
        sources = Sources(
            node=self._settings.hostname_override,
            topology=lambda: topology,
            journal=lambda: allocator.journal,
            journal_bytes=self.journal.size,
            books=virtual,
            residents=residents,
            registered=lambda: plugin.registered_resources,
            mismatched=lambda: peers.strangers,
        )
        return Monitor(
            _settings(self._settings),
            sources,
            NvmlDriver(),
            latencies=self.latencies,
            writes=lambda: self.journal.measured,
            not_ready=lambda: not_ready(allocator, plugin),
            auditor=Auditor(Rules(Policy(self._settings.behind_the_shim)), reports),
        )


def not_ready(allocator: TimedAllocator, plugin: DevicePlugin) -> str:
    """Why the agent is not ready; empty when it is."""
    if not allocator.recovered:
        return "the journal is not loaded yet"
    missing = [name for name, known in plugin.registered_resources.items() if not known]
    return f"not registered with the kubelet: {', '.join(missing)}" if missing else ""


def _settings(settings: AgentSettings) -> Settings:
    return Settings(
        address=settings.query_addr,
        port=settings.query_port or None,
        period=settings.sample_period,
        version=importlib.metadata.version("gpu-manager"),
    )
