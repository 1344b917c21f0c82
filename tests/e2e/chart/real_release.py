"""A release of the chart on a real cluster, by the commands of docs/install.md.

Helm runs as a user runs it: with a kubeconfig, and against the API server. Nothing of it is kept
outside the node's directory.
"""

from typing import Final

import pytest
import yaml

from tests.chart import helm_program
from tests.e2e.cluster.cluster_objects import Object, as_stored, parsed
from tests.e2e.node.real_node import RealNode

NAMESPACE: Final = "kube-system"


def skip_if_too_old(node: RealNode) -> None:
    """Where the chart says itself that it is not for this cluster."""
    needed = yaml.safe_load((helm_program.CHART / "Chart.yaml").read_text())["kubeVersion"]
    first = int(needed.split(".")[1])
    if node.minor < first:
        pytest.skip(f"API server {node.version}: the chart is for {needed}")


class Release:
    """The chart under `name`. Every command returns what helm said, or is an AssertionError."""

    def __init__(self, node: RealNode, name: str) -> None:
        self.name = name
        self._api = node.api
        self._environment = {
            "KUBECONFIG": str(node.kubeconfig("admin")),
            "KUBECACHEDIR": str(node.file("kube-cache")),
        } | {f"HELM_{kind}_HOME": str(node.file("helm")) for kind in ("CACHE", "CONFIG", "DATA")}

    def install(self, *words: object) -> str:
        return self._helm("install", self.name, ".", *words)

    def upgrade(self, *words: object) -> str:
        return self._helm("upgrade", self.name, ".", "--reset-then-reuse-values", *words)

    @property
    def notes(self) -> str:
        """What the chart tells who has installed it."""
        return self._helm("get", "notes", self.name)

    def rollback(self) -> str:
        """To what was before the last of these commands."""
        return self._helm("rollback", self.name)

    def uninstall(self, *words: object) -> str:
        return self._helm("uninstall", self.name, *words)

    @property
    def manifest(self) -> list[Object]:
        """What helm has made of the chart."""
        return list(parsed(self._helm("get", "manifest", self.name)))

    def stored(self, kind: str) -> Object:
        """The one object of this kind, as the API server has it."""
        (one,) = (one for one in self.manifest if one["kind"] == kind)
        return as_stored(self._api, one)

    def _helm(self, *words: object) -> str:
        named = (*words, "--namespace", NAMESPACE)
        done = helm_program.helm(*named, environment=self._environment)
        assert done.returncode == 0, done.stderr
        return done.stdout


def notes(said: str) -> str:
    """Of what helm says after an installation, what the chart has to say."""
    return said.partition("NOTES:\n")[2]
