"""Flags of `gpumanager webhook`, which completes and judges new pods that ask for GPUs."""

import asyncio
from pathlib import Path
from typing import Any, Final

import click

from gpumanager.cli.logs import LogFlags, start_logging
from gpumanager.cli.namespaced import namespaced, quota_configmap
from gpumanager.cli.webhook_parts import WebhookSettings, serve
from gpumanager.errors import InputError
from gpumanager.scheduler.certificates.api import Named
from gpumanager.scheduler.webhook.policy import AdmissionPolicy, MissingMemory, Unmeetable
from gpumanager.units import MEMORY_BLOCK, parse_bytes

PORT: Final = 8443
SERVICE: Final = "kube-system/gpu-manager-webhook"
CONFIGURATION: Final = "gpu-manager"


def _named(context: click.Context, parameter: click.Parameter, text: str) -> Named:
    return Named(*namespaced(context, parameter, text))


def _memory(_ctx: click.Context, parameter: click.Parameter, text: str) -> MissingMemory | int:
    if text in {one.value for one in MissingMemory}:
        return MissingMemory(text)
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
    default=MissingMemory.REFUSE.value,
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
@quota_configmap(help="GPU quotas, to warn of pods that exceed theirs by themselves.")
@click.option(
    "--claims",
    is_flag=True,
    help="Pods sent to /mutate/claims get a ResourceClaim in the place of the two lines.",
)
@click.option(
    "--claim-tiers",
    is_flag=True,
    help="Shares in such claims prefer GPUs in use, by two alternatives. For clusters whose "
    "kube-scheduler does not ask the extender about claims; it takes longer for each pod.",
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
        claim_tiers=given.pop("claim_tiers"),
    )
    if bool(given["certificate"]) != bool(given["key"]):
        raise InputError("--tls-cert-file, --tls-key-file", "give both, or none")
    if sum(map(bool, (given["certificate"], given["signer"], given["plain"]))) > 1:
        raise InputError(
            "--tls-cert-file, --certificate-signer, --plain-http", "give one of them at most"
        )
    return WebhookSettings(**given, policy=policy)
