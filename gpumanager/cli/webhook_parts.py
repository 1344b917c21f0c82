"""The parts of `gpumanager webhook`, and how they run together."""

import asyncio
import logging
import signal
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from gpumanager import __version__
from gpumanager.errors import GpuManagerError, InputError
from gpumanager.kube.access import NoAccess, find_access
from gpumanager.kube.client import KubeClient
from gpumanager.scheduler.certificates.keeper import Keeper
from gpumanager.scheduler.certificates.sources import (
    CertificateSource,
    Files,
    Named,
    OwnCertificate,
    RequestedCertificate,
)
from gpumanager.scheduler.claims.keeper import TemplateKeeper, TemplateUser
from gpumanager.scheduler.claims.quota import ClaimQuotas
from gpumanager.scheduler.http.server import HttpServer
from gpumanager.scheduler.metrics import WebhookMetrics
from gpumanager.scheduler.quota.keeper import QuotaKeeper
from gpumanager.scheduler.quota.limits import Quotas
from gpumanager.scheduler.webhook.nodes import KnownNodes, NodeKind
from gpumanager.scheduler.webhook.policy import AdmissionPolicy
from gpumanager.scheduler.webhook.service import BOUNDS, Webhook
from gpumanager.supervisor import Supervisor

log = logging.getLogger(__name__)

STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


@dataclass(frozen=True, slots=True)
class WebhookSettings:
    """The flags. certificate, key: files, or None. signer: of a request, or empty.

    quota: namespace and name of the ConfigMap with GPU quotas, or None.
    claims: pods sent to /mutate/claims get a claim in the place of the two lines.
    drain: seconds between being told to stop and letting nobody in any more.
    """

    address: str
    port: int
    plain: bool
    certificate: Path | None
    key: Path | None
    signer: str
    service: Named
    secret: Named
    configurations: tuple[str, ...]
    kubeconfig: Path | None
    quota: tuple[str, str] | None
    claims: bool
    drain: float
    policy: AdmissionPolicy

    @property
    def names(self) -> tuple[str, ...]:
        """Return what the API server calls us, and others may."""
        host = f"{self.service.name}.{self.service.namespace}.svc"
        return host, f"{host}.cluster.local", host.removesuffix(".svc"), self.service.name


class Parts:
    """What runs. api: None where there is none and none is needed."""

    def __init__(self, settings: WebhookSettings, api: KubeClient | None) -> None:
        self.nodes = KnownNodes(api) if api else None
        self.quota = QuotaKeeper(api, *settings.quota) if api and settings.quota else None
        self.templates = self.claim_quotas = None
        if api and settings.claims:
            self.templates = TemplateKeeper(api, admitted=self._admitted)
            self.claim_quotas = ClaimQuotas(api, self.templates.users)
        source: CertificateSource | None
        if settings.plain:
            source = None
        elif settings.certificate and settings.key:
            source = Files(settings.certificate, settings.key)
        elif api is None:
            raise InputError(
                "--kubeconfig", "the webhook needs the API server to create its certificate"
            )
        elif settings.signer:
            source = RequestedCertificate(api, settings.signer, settings.names)
        else:
            source = OwnCertificate(api, settings.secret, settings.names, settings.configurations)
        self.keeper = Keeper(source) if source else None
        self.supervisor = Supervisor()
        metrics = WebhookMetrics(self.gauges, self.supervisor)
        self.hook = Webhook(
            settings.policy,
            self.kinds,
            self.quotas,
            metrics,
            __version__,
            trouble=lambda: self.supervisor.trouble,
            quota=self.claim_quotas,
            claims=settings.claims,
        )
        self.server = HttpServer(self.hook.routes(), BOUNDS)

    def kinds(self) -> frozenset[NodeKind]:
        return self.nodes.kinds if self.nodes else frozenset()

    def quotas(self) -> Quotas:
        """Return those that are known; a webhook judges by nothing else."""
        return (self.quota.known().quotas if self.quota else None) or {}

    def gauges(self) -> dict[str, float]:
        """Return the gauges of what there is, for metrics."""
        found: dict[str, float] = {"node_kinds": len(self.kinds())}
        if self.quota:
            known = self.quota.known()
            found["quota_understood"] = float(known.read and not known.trouble)
        if self.keeper and (ends := self.keeper.ends):
            found["certificate_expiry_timestamp_seconds"] = ends.timestamp()
        return found

    def _admitted(self, user: TemplateUser) -> None:
        if self.claim_quotas:
            self.claim_quotas.seen(user)

    def run(self) -> None:
        """Start what runs beside the server."""
        tasks = {
            "nodes": self.nodes,
            "quota": self.quota,
            "certificate": self.keeper,
            "claim templates": self.templates,
            "claim quotas": self.claim_quotas,
        }
        for name, part in tasks.items():
            if part is not None:
                self.supervisor.keep(name, part.run)


async def serve(settings: WebhookSettings, started: Callable[[int], None] | None = None) -> None:
    """Run until SIGTERM or SIGINT. started: told the port. Raises GpuManagerError."""
    stopping = asyncio.Event()
    for number in STOP_SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    api = None
    try:
        api = KubeClient(find_access(settings.kubeconfig), agent="gpu-manager-webhook")
    except NoAccess as error:
        if not settings.certificate and not settings.plain:
            raise
        log.info("not reading nodes: %s", error)
    parts = Parts(settings, api)
    try:
        parts.run()
        if parts.keeper:
            events = (parts.keeper.first, stopping)
            waits = [asyncio.create_task(event.wait()) for event in events]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()
        if not stopping.is_set():
            tls = parts.keeper.context if parts.keeper else None
            try:
                port = await parts.server.start(settings.address, settings.port, tls)
            except OSError as error:
                why = f"{settings.address or '*'} port {settings.port}: {error.strerror or error}"
                raise GpuManagerError(f"cannot listen on {why}") from error
            (started or partial(log.info, "listening on port %d"))(port)
            await stopping.wait()
            parts.hook.leaving = True
            await asyncio.sleep(settings.drain)
    finally:
        await parts.server.stop()
        await parts.supervisor.stop()
        if api is not None:
            await api.close()
