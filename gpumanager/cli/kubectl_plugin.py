"""`kubectl gpu`: this program as a kubectl plugin, which kubectl finds as `kubectl-gpu`.

The commands that ask extender or agent run in one of their pods, by `kubectl exec`: there the
addresses and certificates are known, and kubectl's own access is all that is needed.

    kubectl gpu explain research/train-7     in the extender that leads
    kubectl gpu top --node node1             in the agent of that node; tree and doctor too

With an address (`--extender`, `--agent`, or their variables), and for all other commands, it is the
same as `gpumanager`.
"""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Never

from gpumanager import cli
from gpumanager.errors import GpuManagerError

SELECTOR: Final = "app.kubernetes.io/name=gpu-manager,app.kubernetes.io/component="
LEADER: Final = "extender,tencent.com/extender-role=leader"
AGENT: Final = "agent"
ON_NODE: Final = ("top", "tree", "doctor")
ADDRESSES: Final = {
    "explain": ("--extender", "GPUMANAGER_EXTENDER"),
    **dict.fromkeys(ON_NODE, ("--agent", "GPUMANAGER_AGENT")),
}
ASK_SECONDS: Final = 15
PLACE: Final = "{range .items[*]}{.metadata.namespace} {.metadata.name}{'\\n'}{end}"


@dataclass(frozen=True, slots=True)
class PodCommand:
    """A command for a pod with these labels, on this node if one is named."""

    labels: str
    node: str
    words: tuple[str, ...]


def pod_command(words: Sequence[str], environment: Mapping[str, str]) -> PodCommand | None:
    """None for what runs here."""
    name = words[0] if words else ""
    flag, variable = ADDRESSES.get(name, ("", ""))
    named = any(word == flag or word.startswith(f"{flag}=") for word in words)
    if not flag or named or environment.get(variable) or "--help" in words:
        return None
    if name == "explain":
        return PodCommand(SELECTOR + LEADER, "", tuple(words))
    node, rest = _node(words)
    return PodCommand(SELECTOR + AGENT, node, rest) if node else None


def _node(words: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """The value of `--node`, and the other words."""
    for place, word in enumerate(words):
        if word == "--node" and place + 1 < len(words):
            return words[place + 1], (*words[:place], *words[place + 2 :])
        if word.startswith("--node="):
            return word.removeprefix("--node="), (*words[:place], *words[place + 1 :])
    return "", tuple(words)


def find_pod(command: PodCommand) -> tuple[str, str]:
    """Namespace and name of a pod for it. Raises GpuManagerError."""
    words = ["kubectl", "get", "pods", "-A", "-l", command.labels, "-o", f"jsonpath={PLACE}"]
    words += [f"--request-timeout={ASK_SECONDS}s"]
    words += [f"--field-selector=spec.nodeName={command.node}"] if command.node else []
    try:
        asked = subprocess.run(words, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise GpuManagerError("there is no kubectl in PATH") from error
    if asked.returncode != 0:
        raise GpuManagerError(asked.stderr.strip() or "kubectl get pods failed")
    for line in asked.stdout.splitlines():
        namespace, name = line.split()
        return namespace, name
    where = f" on node {command.node}" if command.node else ""
    raise GpuManagerError(f"no pod{where} has the labels {command.labels}: is the chart installed?")


def main() -> Never:
    command = pod_command(sys.argv[1:], os.environ)
    if command is None:
        cli.main()
    try:
        namespace, name = find_pod(command)
    except GpuManagerError as error:
        sys.exit(cli.complain(str(error), 1))
    terminal = ("-it",) if sys.stdin.isatty() and sys.stdout.isatty() else ("-i",)
    words = ("exec", *terminal, "-n", namespace, name, "--", "gpumanager", *command.words)
    os.execvp("kubectl", ("kubectl", *words))  # noqa: S606 - words of this program and its user
