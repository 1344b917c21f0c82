"""A replica of a Deployment: its Pod object at the API server, and its process on this host.

No kubelet runs the pod; the test says for it which address it has.
"""

import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Final

from gpumanager.sim.container.process import own_environment
from tests.e2e.cluster.service_door import Endpoint, is_ready
from tests.e2e.node.node_process import NodeProcess
from tests.e2e.node.real_node import RealNode

NAMESPACE: Final = "kube-system"
PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
CONTROL_PLANE: Final = "control-plane"
"""The node that its pods name, of which there is no object."""


class Replica:
    """One pod of `app`, whose process is `gpumanager` with this command and listens at `endpoint`.

    command: the verb and its flags.
    """

    def __init__(
        self, node: RealNode, app: str, endpoint: Endpoint, command: Sequence[str]
    ) -> None:
        self.endpoint = endpoint
        self.name = f"{app}-{endpoint[0].rpartition('.')[2]}"
        self._node = node
        self._command = command
        own = {"POD_NAME": self.name, "POD_NAMESPACE": NAMESPACE}
        log = node.logs / f"{self.name}.log"
        self.process = NodeProcess(self.name, log, own_environment() | own)
        node.api.create(PODS, self._pod(app))
        status = {"podIP": endpoint[0], "podIPs": [{"ip": endpoint[0]}]}
        path = f"{PODS}/{self.name}/status"
        node.api.ask("PATCH", path, {"status": status}, "merge-patch+json")

    def start(self) -> None:
        """Until it is ready; also after `kill`."""
        self.process.start(sys.executable, "-m", "gpumanager", *self._command)
        self.process.wait_for(lambda: is_ready(self.endpoint), f"{self.name} is ready")

    def kill(self) -> None:
        """SIGKILL, as a crash. Its pod stays, as that of a container that is to be restarted."""
        self.process.stop(signal.SIGKILL)

    def remove(self) -> None:
        self.process.stop()
        self._node.api.delete(f"{PODS}/{self.name}", 0)

    @property
    def labels(self) -> Mapping[str, str]:
        found: Mapping[str, str] = self._node.api.get(f"{PODS}/{self.name}")["metadata"]["labels"]
        return found

    def _pod(self, app: str) -> Mapping[str, object]:
        return {
            "metadata": {"name": self.name, "labels": {"app": app}},
            "spec": {
                "nodeName": CONTROL_PLANE,
                "containers": [{"name": "main", "image": "local"}],
            },
        }
