"""`gpumanager version`: what `--version` says, for hands that are used to `kubectl version`."""

import platform

import click

from gpumanager import __version__


@click.command("version")
def command() -> None:
    """Print the version, and of what it runs on."""
    click.echo(
        f"gpumanager {__version__}, Python {platform.python_version()}, {platform.machine()}"
    )
