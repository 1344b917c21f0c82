"""`gpumanager webhook`: looks at new pods that ask for GPUs, completes and judges them.

Its flags, and how its parts are put together.
"""

import asyncio
import logging
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from gpumanager import __version__
from gpumanager.cli.background import Background
from gpumanager.cli.logs import LogFlags, start_logging
from gpumanager.cluster.access import NoAccess, find_access
from gpumanager.cluster.api import ApiServer
from gpumanager.errors import GpuManagerError, InputError
from gpumanager.scheduler.certificates.api import Named
from gpumanager.scheduler.certificates.keeper import Keeper
from gpumanager.scheduler.certificates.values import Source
from gpumanager.scheduler.http.server import HttpServer
from gpumanager.scheduler.webhook.known_nodes import KnownNodes
from gpumanager.scheduler.webhook.nodes import NodeKind
from gpumanager.scheduler.webhook.policy import AdmissionPolicy, Memory, Unmeetable
from gpumanager.scheduler.webhook.service import BOUNDS, Webhook
from gpumanager.units import MEMORY_BLOCK, parse_bytes

log = logging.getLogger(__name__)

PORT: Final = 8443
SERVICE: Final = "kube-system/gpu-manager-webhook"
CONFIGURATION: Final = "gpu-manager"
STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


@dataclass(frozen=True, slots=True)
class WebhookSettings:
    """As the flags say. certificate, key: files, or None. signer: of a request, or empty.

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
    drain: float
    policy: AdmissionPolicy

    @property
    def names(self) -> tuple[str, ...]:
        """What the API server calls us, and others may."""
        host = f"{self.service.name}.{self.service.namespace}.svc"
        return host, f"{host}.cluster.local", host.removesuffix(".svc"), self.service.name


def _named(_ctx: click.Context, parameter: click.Parameter, text: str) -> Named:
    namespace, slash, name = text.partition("/")
    if not (namespace and slash and name) or "/" in name:
        raise click.BadParameter(f"{text!r}: write NAMESPACE/NAME", param=parameter)
    return Named(namespace, name)


def _memory(_ctx: click.Context, parameter: click.Parameter, text: str) -> Memory | int:
    if text in {one.value for one in Memory}:
        return Memory(text)
    try:
        size = parse_bytes(text)
    except ValueError as error:
        raise click.BadParameter(f"{error}; or refuse, or share", param=parameter) from None
    if size < MEMORY_BLOCK:
        raise click.BadParameter("the least is 256MiB", param=parameter)
    return -(-size // MEMORY_BLOCK)


@click.command("webhook")
@click.option("--address", default="", help="Where to listen; by default on every address.")
@click.option("--port", type=click.IntRange(0, 65535), default=PORT, show_default=True)
@click.option("--tls-cert-file", "certificate", type=Path, help="PEM; looked at for changes.")
@click.option("--tls-key-file", "key", type=Path, help="PEM.")
@click.option(
    "--certificate-signer",
    "signer",
    default="",
    metavar="NAME",
    help="Ask this signer of the cluster for a certificate.",
)
@click.option(
    "--plain-http", "plain", is_flag=True, help="Without TLS, behind somebody who has it."
)
@click.option(
    "--service",
    default=SERVICE,
    callback=_named,
    show_default=True,
    metavar="NAMESPACE/NAME",
    help="What the API server calls: the names of our certificate.",
)
@click.option(
    "--secret",
    default="kube-system/gpu-manager-webhook",
    callback=_named,
    show_default=True,
    metavar="NAMESPACE/NAME",
    help="Where replicas share the certificates that they make themselves.",
)
@click.option(
    "--configuration",
    "configurations",
    default=(CONFIGURATION,),
    multiple=True,
    show_default=True,
    help="Webhook configurations whose caBundle is kept. Repeatable.",
)
@click.option("--kubeconfig", type=Path, help="For the API server; else the pod's own token.")
@click.option("--scheduler-name", default="", help="For pods that name no scheduler of their own.")
@click.option(
    "--missing-memory",
    default=Memory.REFUSE.value,
    callback=_memory,
    show_default=True,
    metavar="refuse|share|SIZE",
    help="What a share without memory gets: nothing, its part of the smallest GPU, or a size.",
)
@click.option(
    "--node-name",
    type=click.Choice(["affinity", "keep"]),
    default="affinity",
    show_default=True,
    help="What becomes of spec.nodeName, which would keep the scheduler from counting.",
)
@click.option(
    "--unmeetable",
    type=click.Choice([one.value for one in Unmeetable]),
    default=Unmeetable.DENY.value,
    show_default=True,
    help="What becomes of a pod that no node known could ever run.",
)
@click.option(
    "--fail",
    type=click.Choice(["open", "closed"]),
    default="open",
    show_default=True,
    help="Whether a pod passes that could not be looked at.",
)
@click.option(
    "--drain",
    type=click.FloatRange(0, 300),
    default=5.0,
    show_default=True,
    metavar="SECONDS",
    help="Serve on for so long when told to stop, until nobody is sent here any more.",
)
@click.option("-v", "--v", "level", type=int, default=0, help="Log level; 4 and above: all.")
def command(*, level: int, **flags: Any) -> None:
    """Complete and judge new pods that ask for GPUs, until told to stop.

    The certificate is made here and put into the webhook configurations, unless files or a signer
    are named for it.

    \b
    Example, in a pod:
      gpumanager webhook --scheduler-name gpu-scheduler --missing-memory share
    """
    start_logging(LogFlags(level=level))
    asyncio.run(serve(read_settings(flags)))


def read_settings(flags: dict[str, Any]) -> WebhookSettings:
    """What the flags say; raises InputError."""
    given = dict(flags)
    policy = AdmissionPolicy(
        scheduler_name=given.pop("scheduler_name"),
        missing_memory=given.pop("missing_memory"),
        pin=given.pop("node_name") == "affinity",
        unmeetable=Unmeetable(given.pop("unmeetable")),
        fail_open=given.pop("fail") == "open",
    )
    if bool(given["certificate"]) != bool(given["key"]):
        raise InputError("--tls-cert-file, --tls-key-file", "give both, or none")
    if sum(map(bool, (given["certificate"], given["signer"], given["plain"]))) > 1:
        raise InputError(
            "--tls-cert-file, --certificate-signer, --plain-http", "give one of them at most"
        )
    return WebhookSettings(**given, policy=policy)


async def serve(settings: WebhookSettings, started: Callable[[int], None] | None = None) -> None:
    """Run until SIGTERM or SIGINT. started: told the port. Raises GpuManagerError."""
    stopping = asyncio.Event()
    for number in STOP_SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    api, background = _api(settings), Background()
    nodes = KnownNodes(api) if api else None
    keeper = None if settings.plain else Keeper(_source(settings, api))
    hook = Webhook(settings.policy, nodes.kinds if nodes else _none, __version__)
    server = HttpServer(hook.routes(), BOUNDS)
    try:
        if nodes:
            background.run(nodes.run())
        if keeper:
            background.run(keeper.run())
            await _either(keeper.first, stopping)
        if not stopping.is_set():
            port = await _listen(server, settings, keeper)
            (started or _say)(port)
            await stopping.wait()
            hook.leaving = True
            await asyncio.sleep(settings.drain)
    finally:
        await server.stop()
        await background.stop()


async def _either(*events: asyncio.Event) -> None:
    waits = [asyncio.create_task(event.wait()) for event in events]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()


async def _listen(server: HttpServer, settings: WebhookSettings, keeper: Keeper | None) -> int:
    tls = keeper.context if keeper else None
    try:
        return await server.start(settings.address, settings.port, tls)
    except OSError as error:
        where = f"{settings.address or '*'} port {settings.port}"
        raise GpuManagerError(f"cannot listen on {where}: {error.strerror or error}") from error


def _say(port: int) -> None:
    log.info("listening on port %d", port)


def _none() -> tuple[NodeKind, ...]:
    return ()


def _api(settings: WebhookSettings) -> ApiServer | None:
    """None where there is none and none is needed."""
    try:
        return ApiServer(find_access(settings.kubeconfig), agent="gpu-manager-webhook")
    except NoAccess as error:
        if settings.certificate or settings.plain:
            log.info("nodes are not looked at: %s", error)
            return None
        raise


def _source(settings: WebhookSettings, api: ApiServer | None) -> Source:
    """Where the certificate comes from."""
    if settings.certificate and settings.key:
        from gpumanager.scheduler.certificates.files import Files

        return Files(settings.certificate, settings.key)
    if api is None:
        raise InputError("--kubeconfig", "an API server is needed for a certificate")
    if settings.signer:
        from gpumanager.scheduler.certificates.requested import RequestedCertificate

        return RequestedCertificate(api, settings.signer, settings.names)
    from gpumanager.scheduler.certificates.bundle import Bundles
    from gpumanager.scheduler.certificates.own import OwnCertificate

    bundles = Bundles(api, settings.configurations)
    return OwnCertificate(api, settings.secret, settings.names, bundles)
