"""Flags that name an object in a namespace."""

from functools import partial
from typing import Final

import click


def namespaced(_ctx: click.Context, parameter: click.Parameter, text: str) -> tuple[str, str]:
    """Namespace and name of NAMESPACE/NAME; raises BadParameter."""
    namespace, slash, name = text.partition("/")
    if not (namespace and slash and name) or "/" in name:
        raise click.BadParameter(f"{text!r}: write NAMESPACE/NAME", param=parameter)
    return namespace, name


def namespaced_or_none(
    context: click.Context, parameter: click.Parameter, text: str
) -> tuple[str, str] | None:
    """The same; None for `none`."""
    return None if text == "none" else namespaced(context, parameter, text)


quota_configmap: Final = partial(
    click.option,
    "--quota-configmap",
    "quota",
    default="kube-system/gpuquota",
    callback=namespaced_or_none,
    show_default=True,
    metavar="NAMESPACE/NAME|none",
)
"""Where quotas are written down: the extender, which holds them, and the webhook, which warns of
them, look at the same place. Takes `help`."""
