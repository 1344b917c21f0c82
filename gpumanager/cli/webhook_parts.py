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
from gpumanager.scheduler.certificates.keeper import Files, Keeper
from gpumanager.scheduler.certificates.own_ca import OwnCertificate
from gpumanager.scheduler.claims.keeper import TemplateKeeper
from gpumanager.scheduler.claims.quota import ClaimQuotas
from gpumanager.scheduler.http.server import HttpServer
from gpumanager.scheduler.metrics import WebhookMetrics
from gpumanager.scheduler.quota.keeper import QuotaKeeper
from gpumanager.scheduler.webhook.nodes import KnownNodes, NodeKind
from gpumanager.scheduler.webhook.policy import AdmissionPolicy
from gpumanager.scheduler.webhook.service import BOUNDS, Webhook
from gpumanager.supervisor import Supervisor

log = logging.getLogger(__name__)

STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


@dataclass(frozen=True, slots=True)
class WebhookSettings:
    """The flags. certificate, key: files, or None.

    quota: namespace and name of the ConfigMap with GPU quotas, or None.
    claims: pods sent to /mutate/claims get a claim in the place of the two lines.
    drain: seconds between being told to stop and letting nobody in any more.
    """

    address: str
    port: int
    plain: bool
    certificate: Path | None
    key: Path | None
    service: tuple[str, str]
    secret: tuple[str, str]
    configurations: tuple[str, ...]
    kubeconfig: Path | None
    quota: tuple[str, str] | None
    claims: bool
    drain: float
    policy: AdmissionPolicy

    @property
    def names(self) -> tuple[str, ...]:
        """Return what the API server calls us, and others may."""
        namespace, name = self.service
        host = f"{name}.{namespace}.svc"
        return host, f"{host}.cluster.local", f"{name}.{namespace}", name


def certificate_keeper(settings: WebhookSettings, api: KubeClient | None) -> Keeper | None:
    """Return what keeps the certificate; None for plain HTTP. Raises InputError."""
    if settings.plain:
        return None
    if settings.certificate and settings.key:
        return Keeper(Files(settings.certificate, settings.key))
    if api is None:
        needs = "the webhook needs the API server to create its certificate"
        raise InputError("--kubeconfig", needs)
    return Keeper(OwnCertificate(api, settings.secret, settings.names, settings.configurations))


def webhook(
    settings: WebhookSettings, api: KubeClient | None, keeper: Keeper | None, supervisor: Supervisor
) -> Webhook:
    """Return the webhook, and start what it judges by. api: None where there is none."""
    nodes = KnownNodes(api) if api else None
    quota = QuotaKeeper(api, *settings.quota) if api and settings.quota else None
    templates = claim_quotas = None
    if api and settings.claims:
        templates = TemplateKeeper(
            api, admitted=lambda *new: claim_quotas and claim_quotas.withdraw(*new)
        )
        claim_quotas = ClaimQuotas(api, templates.users)

    def kinds() -> frozenset[NodeKind]:
        return nodes.kinds if nodes else frozenset()

    def gauges() -> dict[str, float]:
        found: dict[str, float] = {"node_kinds": len(kinds())}
        if quota:
            known = quota.known()
            found["quota_understood"] = float(known.read and not known.trouble)
        if keeper and (ends := keeper.ends):
            found["certificate_expiry_timestamp_seconds"] = ends.timestamp()
        return found

    tasks = {
        "nodes": nodes,
        "quota": quota,
        "certificate": keeper,
        "claim templates": templates,
        "claim quotas": claim_quotas,
    }
    for name, part in tasks.items():
        if part is not None:
            supervisor.keep(name, part.run)
    return Webhook(
        settings.policy,
        kinds,
        lambda: (quota.known().quotas if quota else None) or {},
        WebhookMetrics(gauges, supervisor),
        __version__,
        trouble=lambda: supervisor.trouble,
        quota=claim_quotas,
        claims=settings.claims,
    )


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
    keeper, supervisor = certificate_keeper(settings, api), Supervisor()
    hook = webhook(settings, api, keeper, supervisor)
    server = HttpServer(hook.routes(), BOUNDS)
    try:
        if keeper:
            waits = [asyncio.create_task(event.wait()) for event in (keeper.first, stopping)]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()
        if not stopping.is_set():
            tls = keeper.context if keeper else None
            try:
                port = await server.start(settings.address, settings.port, tls)
            except OSError as error:
                why = f"{settings.address or '*'} port {settings.port}: {error.strerror or error}"
                raise GpuManagerError(f"cannot listen on {why}") from error
            (started or partial(log.info, "listening on port %d"))(port)
            await stopping.wait()
            hook.leaving = True
            await asyncio.sleep(settings.drain)
    finally:
        await server.stop()
        await supervisor.stop()
        if api is not None:
            await api.close()
