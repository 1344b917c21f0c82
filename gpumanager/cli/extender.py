"""`gpumanager extender`: kube-scheduler's extender for GPUs. Its flags, and the parts it runs."""

import asyncio
import gc
import logging
import os
import signal
import socket
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from gpumanager import __version__
from gpumanager.cli.flags import (
    BOOLEAN,
    Flags,
    log_format_option,
    log_level_option,
    quota_configmap,
)
from gpumanager.cli.logs import LogFlags, start_logging
from gpumanager.errors import GpuManagerError, InputError
from gpumanager.kube.access import find_access
from gpumanager.kube.client import KubeClient
from gpumanager.kube.lease import LeaderElection
from gpumanager.placement.policies import DEFAULT_POLICY
from gpumanager.placement.preference import (
    DEFAULT,
    NAMES,
    Preference,
    read_gpu_policy,
    read_preference,
)
from gpumanager.scheduler.certificates.keeper import Files, Keeper
from gpumanager.scheduler.certificates.x509 import CertificateTrouble
from gpumanager.scheduler.extender.role import label_role
from gpumanager.scheduler.extender.server import ExtenderServer
from gpumanager.scheduler.extender.service import Extender
from gpumanager.scheduler.http.server import Bounds, Clients
from gpumanager.scheduler.quota.keeper import QuotaEvents, QuotaKeeper
from gpumanager.scheduler.quota.rules import QuotaCollector, QuotaRules
from gpumanager.supervisor import Supervisor

log = logging.getLogger(__name__)

ACCOUNT_NAMESPACE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


@dataclass(frozen=True, slots=True)
class ExtenderSettings:
    """The flags. address, port: where we listen. max_body: MiB.

    client_authority: of the certificates that callers have to show. quota: namespace and name of
    the ConfigMap with GPU quotas; None: there are none.
    """

    address: str
    port: int
    kubeconfig: Path | None
    certificate: Path | None
    key: Path | None
    client_authority: Path | None
    client_names: tuple[str, ...]
    anonymous_read: bool
    schedulers: tuple[str, ...]
    leader_elect: bool
    lease_namespace: str
    lease_name: str
    identity: str
    max_body: int
    policy: str
    gpu_policy: str
    claims: bool
    quota: tuple[str, str] | None


@click.command("extender", cls=Flags)
@click.option(
    "--address",
    metavar="HOST:PORT",
    default="127.0.0.1:3456",
    show_default=True,
    help="Address to listen on; :3456 for all addresses.",
)
@click.option(
    "--kubeconfig",
    type=Path,
    help="Kubeconfig of the API server; by default the pod's service account.",
)
@click.option(
    "--incluster-mode", **BOOLEAN, help="Use the pod's service account and ignore --kubeconfig."
)
@click.option(
    "--tls-cert-file", "certificate", type=Path, help="Certificate (PEM) to serve HTTPS with."
)
@click.option("--tls-private-key-file", "key", type=Path, help="Key (PEM) of --tls-cert-file.")
@click.option(
    "--client-ca-file",
    "client_authority",
    type=Path,
    help="Certificate authority (PEM) of clients. Clients without its certificate may only read "
    "/healthz, /readyz and /version.",
)
@click.option(
    "--client-name",
    "client_names",
    metavar="NAME",
    multiple=True,
    help="Common name or DNS name that a client's certificate must have; by default any. "
    "Repeatable.",
)
@click.option(
    "--anonymous-read",
    **BOOLEAN,
    help="With --client-ca-file: serve metrics, /explain and the pages without a certificate.",
)
@click.option(
    "--scheduler-name",
    "schedulers",
    metavar="NAME",
    multiple=True,
    help="Bind only pods of this scheduler; by default of any. Repeatable.",
)
@click.option(
    "--leader-elect",
    **{**BOOLEAN, "default": True},
    help="Elect the one replica that binds pods.",
)
@click.option(
    "--leader-elect-resource-namespace",
    "lease_namespace",
    metavar="NAMESPACE",
    help="Namespace of the Lease; by default the pod's own, or kube-system.",
)
@click.option(
    "--leader-elect-resource-name",
    "lease_name",
    metavar="NAME",
    default="gpu-manager-extender",
    show_default=True,
    help="Name of the Lease.",
)
@click.option(
    "--identity",
    metavar="NAME",
    help="Name of this replica in the Lease; by default POD_NAME, or host name and PID.",
)
@click.option(
    "--policy",
    metavar="POLICY",
    default="",
    show_default=False,
    help=f"Node policy of pods that set none: {', '.join(NAMES)}; by default "
    f"{DEFAULT_POLICY}. Several by weight: least-waste=0.7,topology=0.3; or numa=strict.",
)
@click.option(
    "--gpu-policy",
    metavar="POLICY",
    default="",
    show_default=False,
    help="Policy for the GPU of a share on the chosen node; by default the node policy.",
)
@click.option(
    "--max-request-mib",
    "max_body",
    metavar="MIB",
    type=click.IntRange(1, 1024),
    default=16,
    show_default=True,
    help="Largest request. Requests with node names need 1, with whole nodes about 1 for each 50 "
    "nodes.",
)
@click.option(
    "--claims",
    **BOOLEAN,
    help="Score nodes for pods with ResourceClaims too, at /scheduler/prioritize-claims.",
)
@quota_configmap(help="ConfigMap with the GPU quotas of namespaces, by model and pool.")
@log_level_option
@log_format_option
def command(
    address: str,
    level: int,
    format: str,  # noqa: A002 - as the flag is called
    incluster_mode: bool,  # noqa: FBT001
    kubeconfig: Path | None,
    **flags: Any,
) -> None:
    """Serve kube-scheduler's calls for pods with GPUs: filter, prioritize, bind and preempt."""
    start_logging(LogFlags(level=level, format=format))
    flags["lease_namespace"] = flags["lease_namespace"] or own_namespace()
    flags["identity"] = flags["identity"] or own_name()
    settings = ExtenderSettings(
        *read_address(address), None if incluster_mode else kubeconfig, **flags
    )
    if (settings.certificate is None) != (settings.key is None):
        raise InputError("--tls-cert-file", "needs --tls-private-key-file, and the other way round")
    if (settings.client_names or settings.anonymous_read) and not settings.client_authority:
        raise InputError("--client-name", "needs --client-ca-file, and so does --anonymous-read")
    if settings.client_authority and settings.certificate is None:
        raise InputError(
            "--client-ca-file", "needs --tls-cert-file: client certificates work over TLS only"
        )
    asyncio.run(serve(settings))


def read_address(text: str) -> tuple[str, int]:
    """Read HOST:PORT, [::1]:PORT or :PORT; raises InputError."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:  # noqa: PLR2004
        raise InputError("--address", f"{text!r}: write HOST:PORT, for example 0.0.0.0:3456")
    return host, int(port)


def read_policy(policy: str, gpu_policy: str) -> Preference:
    """Return what the cluster prefers; raises InputError."""
    flag = "--policy"
    try:
        found = read_preference(policy)
        flag = "--gpu-policy"
        return replace(found, gpus=read_gpu_policy(gpu_policy)).over(DEFAULT)
    except ValueError as error:
        raise InputError(flag, str(error)) from error


def own_namespace() -> str:
    """Return the namespace of the pod we run in; kube-system outside of one."""
    try:
        return ACCOUNT_NAMESPACE.read_text().strip() or "kube-system"
    except OSError:
        return os.environ.get("POD_NAMESPACE") or "kube-system"


def own_name() -> str:
    return os.environ.get("POD_NAME") or f"{socket.gethostname()}_{os.getpid()}"


async def serve(settings: ExtenderSettings) -> None:
    """Run until SIGTERM or SIGINT. Raises GpuManagerError where it cannot start."""
    preference = read_policy(settings.policy, settings.gpu_policy)
    certificate = None
    if settings.certificate is not None and settings.key is not None:
        files = Files(settings.certificate, settings.key, settings.client_authority)
        certificate = Keeper(files)
        try:
            await certificate.begin()
        except CertificateTrouble as error:
            cause = f"no certificate to serve with: {error}"
            raise InputError(settings.certificate, cause) from error
    api = KubeClient(find_access(settings.kubeconfig), agent="gpumanager-extender")
    quota = events = rules = None
    if settings.quota is not None:
        events = QuotaEvents(api, settings.identity)
        quota = QuotaKeeper(api, *settings.quota, report=events.record)
        rules = QuotaRules(quota.known)
    supervisor = Supervisor()
    lease = settings.lease_namespace, settings.lease_name, settings.identity
    extender = Extender(
        api,
        preference=preference,
        rules=rules,
        schedulers=frozenset(settings.schedulers),
        claims=settings.claims,
        election=partial(LeaderElection, api, *lease) if settings.leader_elect else None,
        skipped=supervisor.skipped,
    )
    names = frozenset(settings.client_names)
    clients = Clients(names, settings.anonymous_read) if settings.client_authority else None
    bounds = Bounds(body=settings.max_body << 20)
    server = ExtenderServer(
        extender, bounds, version=__version__, clients=clients, supervisor=supervisor
    )
    if quota and rules:
        server.metrics.add(QuotaCollector(quota.known, rules.usage))
    tls = certificate.context if certificate else None
    try:
        port = await server.start(settings.address, settings.port, tls)
    except OSError as error:
        where = f"{settings.address or '*'}:{settings.port}"
        raise GpuManagerError(f"cannot listen on {where}: {error.strerror or error}") from error
    scheme = "https" if tls else "http"
    log.info("listening on %s://%s:%d", scheme, settings.address or socket.gethostname(), port)
    others = {"certificate": certificate, "quota": quota, "quota events": events}
    tasks = extender.tasks() | {name: one.run for name, one in others.items() if one is not None}
    if settings.leader_elect and (pod := os.environ.get("POD_NAME")):
        tasks["role"] = partial(label_role, api, own_namespace(), pod, extender.election)
    freezing = asyncio.create_task(freeze_first_lists(extender))
    stopping = asyncio.Event()
    for number in STOP_SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    for name, start in tasks.items():
        supervisor.keep(name, start)
    await stopping.wait()
    await supervisor.stop()
    freezing.cancel()
    await server.stop()
    await api.close()


async def freeze_first_lists(extender: "Extender") -> None:
    """Keep Python's cyclic garbage collector off what was read at the start.

    Otherwise it visits all of it now and then, while kube-scheduler waits: 0.3 s at 5,000 nodes
    and 22,500 pods.
    """
    await extender.nodes.listed.wait()
    await extender.pods.listed.wait()
    gc.freeze()
