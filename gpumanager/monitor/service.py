"""The monitor: a sampler, an auditor and an HTTP server. Nothing else waits for them.

Whoever reads gets a snapshot that is no older than a period; however many read, it is taken once.

If the port is in use, the monitor retries without end: an agent that is being replaced may still
have it, and the device plugin must not fail because of its metrics.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from gpumanager.gpu.health.reports import NodeEvent
from gpumanager.gpu.nvml_service import NvmlReader, NvmlService
from gpumanager.http_server import BoundedServer, ConnectionBounds
from gpumanager.monitor.events import Event
from gpumanager.monitor.metrics.journal_timing import JournalWrites
from gpumanager.monitor.metrics.latency import Latencies
from gpumanager.monitor.metrics.rows import Page
from gpumanager.monitor.pages import Pages, routed
from gpumanager.monitor.ports import Sources
from gpumanager.monitor.sampler import Sampler
from gpumanager.monitor.snapshot import Snapshot
from gpumanager.monitor.unlimited.auditor import Auditor
from gpumanager.supervisor import Supervisor

log = logging.getLogger(__name__)

T = TypeVar("T")

RETRY_SECONDS: Final = 5.0
PROBES: Final = ("/healthz", "/readyz")
BOUNDS: Final = ConnectionBounds(
    connections=64, head_seconds=5.0, answer_seconds=10.0, idle_seconds=5.0, grace_seconds=0.5
)
"""Any client may connect. When all connections are in use, the oldest that is idle or has sent no
request yet is closed."""


@dataclass(frozen=True, slots=True)
class Serving:
    """address, port: where to serve; port None: nowhere. period: seconds between two samples.

    probes: a unix socket for /healthz and /readyz alone, free of other clients; None: none.
    history: seconds of samples kept for pages that are opened.
    """

    address: str = "localhost"
    port: int | None = None
    period: float = 1.0
    version: str = ""
    bounds: ConnectionBounds = BOUNDS
    probes: Path | None = None
    history: float = 0.0


class Monitor:
    """Run it as one task; when cancelled, it closes everything. nvml_waits_for: why NVML is to be
    left alone; empty where it is not."""

    def __init__(
        self,
        settings: Serving,
        sources: Sources,
        nvml: NvmlService,
        *,
        latencies: Latencies,
        writes: Callable[[], JournalWrites],
        not_ready: Callable[[], str],
        auditor: Auditor,
        supervisor: Supervisor | None = None,
        nvml_waits_for: Callable[[], str] = str,
    ) -> None:
        self._settings = settings
        self._supervisor = supervisor or Supervisor()
        self._latencies = latencies
        self._writes = writes
        reader = NvmlReader(
            nvml,
            "NVML does not answer; metrics are served without its values",
            late=True,
            waiting_for=nvml_waits_for,
        )
        self.sampler = Sampler(
            sources, reader, period=settings.period, unsure=lambda: auditor.unsure
        )
        self.auditor = auditor
        self.events = latencies.events
        self.pages = Pages(
            self.fresh_page,
            self.events,
            not_ready,
            settings.version,
            lambda: self._supervisor.trouble,
            period=settings.period,
            history=settings.history,
        )
        handlers = self.pages.handlers()
        probes = {path: handlers[path] for path in PROBES}
        self._server = BoundedServer(routed(handlers), settings.bounds)
        self._probes = BoundedServer(routed(probes), settings.bounds)
        auditor.on_finding = self._found
        self.listening: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        """The port, once there is one."""

    def observe(self, sources: Sources) -> None:
        """Sample these sources from the next time on."""
        self.sampler.sources = sources

    async def fresh_page(self) -> Page | None:
        """Return a page with values of the driver that are no older than a period."""
        await self.sampler.refresh(self._saw)
        snapshot = self.sampler.snapshot
        return None if snapshot is None else self._page(snapshot)

    def _page(self, snapshot: Snapshot) -> Page:
        version, tasks = self._settings.version, self._supervisor
        tally = self.auditor.tally
        return Page(snapshot, self._latencies, self._writes(), tally, version, tasks)

    async def run(self) -> None:
        """Sample and serve for as long as the task lives."""
        try:
            async with asyncio.TaskGroup() as group:
                if self._settings.port is not None:
                    group.create_task(self._listen(self._settings.address, self._settings.port))
                period, read = self._settings.period, lambda: self.pages.is_read
                group.create_task(self.sampler.sample_every(period, self._saw, read))
                if self._settings.probes is not None:
                    group.create_task(self._listen_for_probes(self._settings.probes))
        finally:
            await self.close()

    async def close(self) -> None:
        await self._server.stop()
        await self._probes.stop()
        await self.auditor.stop()

    async def _saw(self, snapshot: Snapshot) -> None:
        self.pages.saw(self._page(snapshot))
        await self.auditor.audit(snapshot)

    def _found(self, finding: NodeEvent) -> None:
        self.events.add(Event("bypass", "", finding.message, finding.warning))

    async def _listen(self, address: str, port: int) -> None:
        where = f"{address} port {port}"
        bound = await _until_it_listens(where, lambda: self._server.start(address, port))
        log.info("metrics and probes on http://%s:%d/metrics", address, bound)
        self.listening.set_result(bound)

    async def _listen_for_probes(self, path: Path) -> None:
        await _until_it_listens(str(path), lambda: self._probes.start_at(path))
        log.info("probes on %s", path)


async def _until_it_listens(where: str, listen: Callable[[], Awaitable[T]]) -> T:
    complained = False
    while True:
        try:
            return await listen()
        except OSError as error:
            if not complained:
                log.warning(
                    "metrics and probes are not served yet: cannot listen on %s: %s; trying again",
                    where, error.strerror or error,
                )  # fmt: skip
            complained = True
            await asyncio.sleep(RETRY_SECONDS)
