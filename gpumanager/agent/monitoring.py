"""The monitor in the node agent: its sources, its listeners, its address.

It comes after the registration: the kubelet is not kept waiting for metrics.
A registration that does not come soon, because there is no GPU yet, no driver or no kubelet, is not
waited for: that is when probes and metrics are needed.
"""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gpumanager import __version__
from gpumanager.deviceplugin.plugin import SOCKETS
from gpumanager.deviceplugin.reconciler import KINDS
from gpumanager.errors import GpuManagerError
from gpumanager.gpu.health.watch import HealthWatch
from gpumanager.gpu.nvml_service import NvmlService
from gpumanager.gpu.values import GpuUUID, topology
from gpumanager.grants.grant import Grant
from gpumanager.grants.journal import Journal
from gpumanager.grants.journal_file import FILE_NAME
from gpumanager.grants.ledger import Ledger
from gpumanager.ids import PodUID
from gpumanager.isolation.table import Isolations
from gpumanager.kube.access import node_name
from gpumanager.limits.processes import Process
from gpumanager.limits.values import AllocationUsage
from gpumanager.monitor.metrics.journal_timing import TimedJournalFile
from gpumanager.monitor.metrics.latency import Latencies
from gpumanager.monitor.ports import GpuFitness, Reports, Sources
from gpumanager.monitor.service import Monitor, Serving
from gpumanager.monitor.unlimited.auditor import Auditor, AuditPolicy
from gpumanager.names import DEVICE_PLUGINS
from gpumanager.runtime.cgroup import Membership
from gpumanager.runtime.peers import PodCheck
from gpumanager.runtime.processes import Containers
from gpumanager.settings import AgentSettings
from gpumanager.supervisor import Supervisor

if TYPE_CHECKING:
    from gpumanager.agent.interfaces import Interfaces


log = logging.getLogger(__name__)

FIRST_SECONDS: Final = 1.0
"""How long all else waits for the registration: without a kubelet it is needed, too."""


@dataclass(slots=True)
class Monitored:
    """The parts of an agent that are looked at. health: once somebody watches it.

    named: namespace and name of a pod, as the cluster knows them. withdrawn: why no GPU is offered,
    because of another manager; empty where they are.
    """

    interfaces: "Interfaces"
    isolation: Isolations
    peers: PodCheck
    residents: Containers
    named: Callable[[PodUID], str | None]
    quiet: Callable[[], bool]
    health: "HealthWatch | None" = None
    withdrawn: Callable[[], str] = str


class Monitoring:
    """What has to be there before what it measures: latencies, and the journal's file.

    waiting_for: why there is nothing to measure yet. reports: receives the auditor's findings.
    """

    def __init__(
        self,
        settings: AgentSettings,
        supervisor: Supervisor,
        waiting_for: Callable[[], str] = str,
        reports: "Reports | None" = None,
        nvml: NvmlService | None = None,
    ) -> None:
        self._settings = settings
        self._supervisor = supervisor
        self._waiting_for = waiting_for
        self._reports = reports
        self._nvml = nvml or NvmlService()
        self._parts: asyncio.Future[Monitored] = asyncio.get_running_loop().create_future()
        self._standing_by: str | None = None
        self.latencies = Latencies()
        self.journal = TimedJournalFile(settings.checkpoint_path / FILE_NAME)

    def observe(self, parts: Monitored) -> None:
        """Monitor these parts from now on. To be called once."""
        self._parts.set_result(parts)

    def stand_by(self, reason: str) -> None:
        """Serve probes alone: another agent has the grants, and without them every process looks
        unlimited. reason: why this one is not ready; empty where it counts as ready."""
        self._standing_by = reason
        self._parts = asyncio.get_running_loop().create_future()

    def resume(self) -> None:
        """Count as the agent that serves again."""
        self._standing_by = None

    async def run(self) -> None:
        """Monitor for as long as the task lives; the parts may come later."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FIRST_SECONDS):
                parts = await asyncio.shield(self._parts)
            await registered_or_late(parts.interfaces)
        settings, node_named = self._settings, node_name(self._settings.hostname_override)
        monitor = Monitor(
            Serving(
                address=settings.query_addr,
                port=(settings.query_port or None) if self._standing_by is None else None,
                period=settings.sample_period,
                history=settings.page_history,
                version=__version__,
                probes=settings.probe_socket,
            ),
            nothing(node_named, self.journal.size),
            self._nvml,
            latencies=self.latencies,
            writes=lambda: self.journal.measured,
            not_ready=self.not_ready,
            supervisor=self._supervisor,
            auditor=Auditor(
                AuditPolicy(settings.on_bypass),
                self._reports,
                names=lambda pod: (
                    name_of(pod, self._parts.result()) if self._parts.done() else None
                ),
            ),
            # While NVML is open it lists the GPUs that there were, and the search finds no other.
            nvml_waits_for=self._without_parts,
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(monitor.run())
            parts = await asyncio.shield(self._parts)
            interfaces, node = parts.interfaces, parts.interfaces.node
            claims = interfaces.claims
            monitor.observe(
                Sources(
                    node=node_named,
                    topology=lambda: node.topology,
                    ledger=lambda: node.ledger(DEVICE_PLUGINS),
                    journal=lambda: node.journal,
                    journal_bytes=self.journal.size,
                    books=parts.isolation,
                    residents=parts.residents,
                    registered=lambda: {
                        one.resource: one.registered for one in interfaces.standings
                    },
                    mismatched=lambda: parts.peers.refusals,
                    users=interfaces.users,
                    slice_writes=lambda: claims.publisher.writes if claims else 0,
                    fitness=lambda: fitness(parts.health, interfaces.offers()),
                    released=lambda: claims.reconciler.released if claims else 0,
                    quiet=parts.quiet,
                    disagreements=lambda: (
                        dict.fromkeys(KINDS, 0)
                        | Counter(one.kind for one in interfaces.allocator.disagreements)
                    ),
                )
            )

    def not_ready(self) -> str:
        """Why the agent is not ready; empty when it is."""
        if self._standing_by is not None:
            return self._standing_by
        if reason := self._without_parts():
            return reason
        parts = self._parts.result()
        return parts.withdrawn() or not_ready(parts.interfaces)

    def _without_parts(self) -> str:
        """Return why there are no parts yet; empty when there are."""
        if self._parts.done():
            return ""
        reason = self._waiting_for()
        return f"waiting for a GPU: {reason}" if reason else "the agent is starting"


def fitness(
    watch: "HealthWatch | None", offers: "Mapping[GpuUUID, str]"
) -> "Mapping[GpuUUID, GpuFitness]":
    """offers: which interface has which GPU."""
    found = {gpu: GpuFitness(interface=one) for gpu, one in offers.items()}
    for one in watch.health.gpus if watch else ():
        found[one.gpu] = GpuFitness(one.healthy, one.xids, offers.get(one.gpu, ""))
    return found


def name_of(pod: PodUID, parts: Monitored) -> str | None:
    """Return namespace and name of a pod, by the journal; else by the cluster, if there is one."""
    for one in parts.interfaces.node.journal.live():
        owner = one.pod or one.candidate
        if owner is not None and owner.uid == pod:
            return f"{owner.namespace}/{owner.name}"
    return parts.named(pod)


def not_ready(interfaces: "Interfaces") -> str:
    """Why the agent is not ready; empty when it is."""
    if not interfaces.node.recovered:
        return "the journal is not loaded yet"
    missing = [
        f"{one.resource} ({one.failure})" if one.failure else one.resource
        for one in interfaces.standings
        if not one.registered
    ]
    return f"not registered with the kubelet: {', '.join(missing)}" if missing else ""


def nothing(node: str, journal_bytes: Callable[[], int]) -> Sources:
    """Return the sources of a node without GPUs, and without a kubelet."""
    none = topology((), ())
    ledger = Ledger(none)
    return Sources(
        node=node,
        topology=lambda: none,
        ledger=lambda: ledger,
        journal=Journal,
        journal_bytes=journal_bytes,
        books=_Nobody(),
        residents=_Nobody(),
        registered=lambda: dict.fromkeys(SOCKETS, False),
        disagreements=lambda: dict.fromkeys(KINDS, 0),
    )


class _Nobody:
    """Knows nothing of any allocation and any process."""

    def usage(self, grant: Grant) -> AllocationUsage:
        raise GpuManagerError(f"nothing is known of {grant.id} yet")

    def of(self, process: Process) -> Membership | None:
        del process
        return None


async def registered_or_late(interfaces: "Interfaces") -> None:
    """Wait until the kubelet has registered the plugin, for a second at most: it comes first."""
    try:
        await interfaces.registered(FIRST_SECONDS)
    except GpuManagerError as error:
        log.info("not registered with the kubelet yet; starting everything else: %s", error)
