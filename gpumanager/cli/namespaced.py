"""Flags that name an object in a namespace."""

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
