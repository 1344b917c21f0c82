"""`gpumanager explain NAMESPACE/POD`: why a pod waits, or why it is where it is.

The extender remembers its last verdict about each pod; this asks for it and puts it in words.
"""

import http.client
import json
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

import click

from gpumanager.errors import GpuManagerError, InputError

DEFAULT_URL: Final = "http://127.0.0.1:3456"
SECONDS: Final = 10.0
MOST_BYTES: Final = 16 << 20
EXPECTED: Final = {"pod", "time", "policy", "nodes", "fitting", "reasons", "best", "bound", "gpus"}


class NoAnswer(GpuManagerError):
    """The extender could not be asked: where, and why not."""

    exit_status = 2

    def __init__(self, url: str, cause: str) -> None:
        super().__init__(f"{url}: {cause}")


@click.command("explain")
@click.argument("pod", metavar="[NAMESPACE/]POD")
@click.option(
    "--extender",
    "url",
    metavar="URL",
    default=DEFAULT_URL,
    show_default=True,
    envvar="GPUMANAGER_EXTENDER",
    show_envvar=True,
    help="Where `gpumanager extender` listens; the replica that leads knows most.",
)
@click.option(
    "--ca-file", "authority", type=Path, help="Who certified it; by default who the system trusts."
)
@click.option("--json", "as_json", is_flag=True, help="Print what the extender says, as JSON.")
def command(pod: str, url: str, authority: Path | None, *, as_json: bool) -> None:
    """Tell why a pod waits for a GPU, or why it got the one it has."""
    namespace, slash, name = pod.rpartition("/")
    if not name or "/" in namespace or (slash and not namespace):
        raise click.BadParameter(f"{pod!r}: write NAMESPACE/POD", param_hint="POD")
    said = ask(url, f"/explain/{quote(namespace or 'default')}/{quote(name)}", authority)
    if as_json:
        click.echo(json.dumps(said))
    else:
        from gpumanager.cli.explain_report import print_explanation

        print_explanation(said)


def ask(url: str, path: str, authority: Path | None = None) -> Mapping[str, Any]:
    """What an extender answers; raises InputError, NoAnswer."""
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise InputError("--extender", f"{url!r}: write http://HOST:PORT or https://HOST:PORT")
    try:
        status, body = _get(parts.scheme, parts.hostname, parts.port, path, authority)
    except TimeoutError:
        raise NoAnswer(url, f"no answer within {SECONDS:.0f} s") from None
    except (OSError, ValueError, http.client.HTTPException) as error:
        cause = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise NoAnswer(url, f"cannot ask the extender: {cause}") from error
    return _read(url, status, body)


def _get(
    scheme: str, host: str, port: int | None, path: str, authority: Path | None
) -> tuple[int, bytes]:
    connection: http.client.HTTPConnection
    if scheme == "https":
        context = ssl.create_default_context(cafile=authority)
        connection = http.client.HTTPSConnection(host, port, timeout=SECONDS, context=context)
    else:
        connection = http.client.HTTPConnection(host, port, timeout=SECONDS)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read(MOST_BYTES)
    finally:
        connection.close()


def _read(url: str, status: int, body: bytes) -> Mapping[str, Any]:
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict):
        raise NoAnswer(url, f"answered {status}, and not as an extender does")
    if status != http.client.OK:
        raise GpuManagerError(str(said.get("Error") or f"the extender answered {status}"))
    if EXPECTED - said.keys():
        raise NoAnswer(url, "is another version of the extender, or none")
    return said
