"""Flags of `gpumanager webhook`, which completes and judges new pods that ask for GPUs."""

import asyncio
from pathlib import Path
from typing import Any, Final

import click

from gpumanager.cli.flags import log_format_option, log_level_option, namespaced, quota_configmap
from gpumanager.cli.logs import LogFlags, start_logging
from gpumanager.cli.webhook_parts import WebhookSettings, serve
from gpumanager.errors import InputError
from gpumanager.scheduler.webhook.policy import AdmissionPolicy, DefaultMemory, Unschedulable
from gpumanager.units import MEMORY_BLOCK, parse_bytes

PORT: Final = 8443
SERVICE: Final = "kube-system/gpu-manager-webhook"
CONFIGURATION: Final = "gpu-manager"


def _memory(_ctx: click.Context, parameter: click.Parameter, text: str) -> DefaultMemory | int:
    if text in {one.value for one in DefaultMemory}:
        return DefaultMemory(text)
    try:
        size = parse_bytes(text)
    except ValueError as error:
        raise click.BadParameter(f"{error}; or refuse, or share", param=parameter) from None
    if size < MEMORY_BLOCK:
        raise click.BadParameter("the minimum is 256MiB", param=parameter)
    return -(-size // MEMORY_BLOCK)


@click.command("webhook")
@click.option(
    "--address",
    metavar="HOST",
    default="",
    show_default=False,
    help="Address to listen on; by default all.",
)
@click.option(
    "--port",
    metavar="PORT",
    type=click.IntRange(0, 65535),
    default=PORT,
    show_default=True,
    help="Port to listen on.",
)
@click.option(
    "--tls-cert-file",
    "certificate",
    type=Path,
    help="Certificate (PEM) to serve with; read again when it changes.",
)
@click.option("--tls-key-file", "key", type=Path, help="Key (PEM) of --tls-cert-file.")
@click.option(
    "--plain-http", "plain", is_flag=True, help="Serve HTTP, behind a proxy that serves HTTPS."
)
@click.option(
    "--service",
    default=SERVICE,
    callback=namespaced,
    show_default=True,
    metavar="NAMESPACE/NAME",
    help="Service that the API server calls; the certificate has its names.",
)
@click.option(
    "--secret",
    default="kube-system/gpu-manager-webhook",
    callback=namespaced,
    show_default=True,
    metavar="NAMESPACE/NAME",
    help="Secret in which the replicas share the certificates that they create.",
)
@click.option(
    "--webhook-configuration",
    "configurations",
    default=(CONFIGURATION,),
    multiple=True,
    show_default=True,
    metavar="NAME",
    help="Webhook configuration whose caBundle is kept up to date. Repeatable.",
)
@click.option(
    "--kubeconfig",
    type=Path,
    help="Kubeconfig of the API server; by default the pod's service account.",
)
@click.option(
    "--scheduler-name",
    metavar="NAME",
    default="",
    show_default=False,
    help="Scheduler for pods that name none.",
)
@click.option(
    "--default-memory",
    default=DefaultMemory.REFUSE.value,
    callback=_memory,
    show_default=True,
    metavar="refuse|share|SIZE",
    help="Memory of a share that requests none: refuse the pod, share (a proportional part of the "
    "smallest GPU), or a fixed size such as 2GiB.",
)
@click.option(
    "--node-name",
    type=click.Choice(["affinity", "keep"]),
    default="affinity",
    show_default=True,
    help="What to do with spec.nodeName, which bypasses the scheduler: make it a node affinity, or "
    "keep it.",
)
@click.option(
    "--unschedulable",
    type=click.Choice([one.value for one in Unschedulable]),
    default=Unschedulable.WARN.value,
    show_default=True,
    help="What to do with a pod that no known node could run; deny also refuses pods for which an "
    "autoscaler would add a larger node.",
)
@click.option(
    "--fail",
    type=click.Choice(["open", "closed"]),
    default="open",
    show_default=True,
    help="Admit (open) or refuse (closed) a pod that the webhook could not check.",
)
@quota_configmap(
    help="ConfigMap with GPU quotas, to warn about pods that exceed their quota on their own."
)
@click.option(
    "--claims",
    is_flag=True,
    help="Replace the two extended resources by a ResourceClaim, in pods sent to /mutate/claims.",
)
@click.option(
    "--claim-alternatives",
    is_flag=True,
    help="Let shares in such claims prefer GPUs in use, by two alternatives. For clusters whose "
    "kube-scheduler does not ask the extender about claims; scheduling takes longer.",
)
@click.option(
    "--drain",
    type=click.FloatRange(0, 300),
    default=5.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to go on serving after SIGTERM, until the Service sends no more requests.",
)
@log_level_option
@log_format_option
def command(*, level: int, format: str, **flags: Any) -> None:  # noqa: A002 - the flag's name
    """Complete and check new pods that ask for GPUs, until stopped.

    The webhook creates its certificate and writes the CA to the webhook configurations, unless you
    name certificate files.

    \b
    Example, in a pod:
      gpumanager webhook --scheduler-name gpu-scheduler --default-memory share
    """
    start_logging(LogFlags(level=level, format=format))
    asyncio.run(serve(read_settings(flags)))


def read_settings(flags: dict[str, Any]) -> WebhookSettings:
    """Return the settings; raises InputError."""
    given = dict(flags)
    policy = AdmissionPolicy(
        scheduler_name=given.pop("scheduler_name"),
        default_memory=given.pop("default_memory"),
        pin=given.pop("node_name") == "affinity",
        unschedulable=Unschedulable(given.pop("unschedulable")),
        fail_open=given.pop("fail") == "open",
        claim_alternatives=given.pop("claim_alternatives"),
    )
    if bool(given["certificate"]) != bool(given["key"]):
        raise InputError("--tls-cert-file, --tls-key-file", "give both, or none")
    if given["certificate"] and given["plain"]:
        raise InputError("--tls-cert-file, --plain-http", "give at most one of them")
    return WebhookSettings(**given, policy=policy)
