"""`kubectl gpu`: this program as a kubectl plugin, which kubectl finds as `kubectl-gpu`.

The commands that ask extender or agent run in one of their pods, by `kubectl exec`: there the
addresses and certificates are known, and kubectl's own access is all that is needed.

    kubectl gpu explain research/train-7     in the extender that leads
    kubectl gpu top                          there too: --cluster, all nodes
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
from gpumanager.errors import GpuManagerError, InputError

SELECTOR: Final = "app.kubernetes.io/name=gpu-manager,app.kubernetes.io/component="
LEADER: Final = "extender,tencent.com/extender-role=leader"
AGENT: Final = "agent"
ON_NODE: Final = ("top", "tree", "doctor")
OF_EXTENDER: Final = ("--extender", "GPUMANAGER_EXTENDER")
OF_AGENT: Final = ("--agent", "GPUMANAGER_AGENT")
HERE: Final = frozenset({"-h", "--help", "--topology"})
"""Flags with which a command needs neither agent nor extender."""
CLUSTER: Final = "--cluster"
ASK_SECONDS: Final = 15
PLACE: Final = "{range .items[*]}{.metadata.namespace} {.metadata.name}{'\\n'}{end}"


@dataclass(frozen=True, slots=True)
class PodCommand:
    """A command for a pod with these labels, on this node if one is named."""

    labels: str
    node: str
    words: tuple[str, ...]


def pod_command(words: Sequence[str], environment: Mapping[str, str]) -> PodCommand | None:
    """Return what to run in a pod; None for what runs here. Raises InputError without a node."""
    name, flags = (words[0] if words else ""), {word.partition("=")[0] for word in words}
    if name not in {"explain", *ON_NODE} or HERE & flags:
        return None
    node, rest = "", tuple(words)
    for place, word in enumerate(words):
        if word.startswith("--node=") or (word == "--node" and place + 1 < len(words)):
            taken = 1 if "=" in word else 2
            node = word.removeprefix("--node=") if taken == 1 else words[place + 1]
            rest = (*words[:place], *words[place + taken :])
            break
    of_cluster = name == "explain" or CLUSTER in flags
    # `top` is of all nodes if neither a node nor an agent is named, as that of kubectl is.
    addresses = [OF_EXTENDER] if of_cluster else [OF_AGENT]
    if name == "top" and not node and not of_cluster:
        addresses, rest = [OF_AGENT, OF_EXTENDER], (*rest, CLUSTER)
    if any(flag in flags or environment.get(variable) for flag, variable in addresses):
        return None
    if of_cluster or CLUSTER in rest:
        return PodCommand(SELECTOR + LEADER, "", rest)
    if not node:
        raise InputError(f"kubectl gpu {name}", f"name a node: kubectl gpu {name} --node NODE")
    return PodCommand(SELECTOR + AGENT, node, rest)


def find_pod(command: PodCommand) -> tuple[str, str]:
    """Return namespace and name of a pod for it. Raises GpuManagerError."""
    words = ["kubectl", "get", "pods", "-A", "-l", command.labels, "-o", f"jsonpath={PLACE}"]
    words += [f"--request-timeout={ASK_SECONDS}s"]
    words += [f"--field-selector=spec.nodeName={command.node}"] if command.node else []
    try:
        asked = subprocess.run(words, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise GpuManagerError("there is no kubectl in PATH") from error
    if asked.returncode != 0:
        # The last line says why; klog's lines before it are its tries.
        said = asked.stderr.strip().splitlines() or ["kubectl get pods failed"]
        raise GpuManagerError(said[-1])
    for line in asked.stdout.splitlines():
        namespace, name = line.split()
        return namespace, name
    where = f" on node {command.node}" if command.node else ""
    raise GpuManagerError(f"no pod{where} has the labels {command.labels}: is the chart installed?")


def main() -> Never:
    try:
        command = pod_command(sys.argv[1:], os.environ)
        if command is None:
            cli.main()
        namespace, name = find_pod(command)
    except GpuManagerError as error:
        sys.exit(cli.complain(str(error), error.exit_status))
    terminal = ("-it",) if sys.stdin.isatty() and sys.stdout.isatty() else ("-i",)
    words = ("exec", *terminal, "-n", namespace, name, "--", "gpumanager", *command.words)
    os.execvp("kubectl", ("kubectl", *words))  # noqa: S606 - words of this program and its user
