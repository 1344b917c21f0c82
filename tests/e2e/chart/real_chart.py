"""The chart's agent on a real node: installed by helm, its DaemonSet's pod on the real kubelet.

There is no controller: this makes the pod of the DaemonSet that the API server has, and gives it
what ServiceAccounts' admission would, the account's token. The driver stands at /run/nvidia/driver
by a mount, as a driver's container would have it there; the GPUs are the simulated ones.
"""

from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import yaml

from gpumanager.sim.container import kernel
from gpumanager.sim.host import NodeDisk
from tests.e2e.chart.real_release import NAMESPACE, Release
from tests.e2e.cluster.api_client import NOT_FOUND, ApiError, silent
from tests.e2e.cluster.cluster_objects import Object, as_stored, created, everything
from tests.e2e.node import agent_image
from tests.e2e.node.node_process import wait_for
from tests.e2e.node.real_node import API_PORT, NODE, NODE_PATH, RealNode
from tests.e2e.node.real_pods import LOGS

PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
POD: Final = "gpu-manager-agent"
"""Its pods are numbered."""
LABEL: Final = {"tencent.com/gpu": "true"}
"""By which the chart's agent comes to a node that nobody has discovered anything of."""
DRIVER: Final = Path("/run/nvidia/driver")
ACCOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
AUTHORITY: Final = "kube-root-ca.crt"


class ChartedAgent:
    """The chart's agent on `node`, with the files that the host's own agent has on `disk`.

    values: of the chart, by part; the others are as this node needs them.
    """

    def __init__(
        self, node: RealNode, disk: NodeDisk, values: Mapping[str, Object] = MappingProxyType({})
    ) -> None:
        self._node = node
        self._pod = f"{POD}-0"
        self._uid = ""
        self.before: frozenset[str] = frozenset()
        if not DRIVER.exists():
            DRIVER.mkdir(parents=True)
            kernel.bind(str(disk.root), str(DRIVER))
        self._values = node.file("values.yaml")
        here = _values(node, disk)
        given = {part: {**here.get(part, {}), **more} for part, more in values.items()}
        self._values.write_text(yaml.safe_dump({**here, **given}))
        self.release = Release(node, "gpu-manager")

    def prepare(self) -> None:
        """What a cluster has before the chart: the node's label, the authority, the image.

        before: all its objects then.
        """
        label = {"metadata": {"labels": LABEL}}
        self._node.api.ask("PATCH", NODE_PATH, label, "merge-patch+json")
        self._node.load_image(agent_image.archive(self._node.file))
        authority = _authority(self._node.certificate)
        if silent(lambda: as_stored(self._node.api, authority)) is None:
            created(self._node.api, authority)
        self.before = everything(self._node.api)

    def install(self) -> str:
        """What helm says."""
        return self.release.install("--values", self._values)

    def start(self) -> None:
        """A pod of the DaemonSet, until it is ready; also after `stop`."""
        daemons = self.release.stored("DaemonSet")
        described = pod_of(daemons, self._pod)
        self._uid = self._node.api.create(PODS, described)["metadata"]["uid"]
        try:
            wait_for(self.is_ready, "the agent's pod is ready")
        except AssertionError as error:
            raise AssertionError(f"{error}; {self.status}; it says: {self.log()}") from None

    def stop(self) -> None:
        """The pod is gone."""
        self._delete(self._pod)

    def roll(self) -> None:
        """As the DaemonSet's controller with `maxSurge`: the next pod beside this one, which is
        ended when the next one is ready."""
        former, self._pod = self._pod, f"{POD}-{int(self._pod.rpartition('-')[2]) + 1}"
        self.start()
        self._delete(former)

    @property
    def values(self) -> Path:
        """The file of the values that differ from the chart's."""
        return self._values

    @property
    def arguments(self) -> list[str]:
        """Of the pod that is there."""
        (container,) = self._node.api.get(f"{PODS}/{self._pod}")["spec"]["containers"]
        return list(container["args"])

    def is_ready(self) -> bool:
        status = self.status
        assert status.get("phase") != "Failed", "the kubelet has refused it"
        conditions = status.get("conditions", ())
        return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)

    @property
    def status(self) -> Mapping[str, Any]:
        stored = silent(lambda: self._node.api.get(f"{PODS}/{self._pod}")) or {}
        found: Mapping[str, Any] = stored.get("status", {})
        return found

    def log(self) -> str:
        """Of the pod that runs, all its attempts."""
        files = sorted(LOGS.glob(f"{NAMESPACE}_{self._pod}_{self._uid}/agent/*.log"))
        return "\n".join(file.read_text(errors="replace") for file in files)

    def _delete(self, pod: str) -> None:
        self._node.api.delete(f"{PODS}/{pod}", 10)
        wait_for(lambda: self._is_gone(pod), f"{pod} is gone")

    def _is_gone(self, pod: str) -> bool:
        try:
            self._node.api.get(f"{PODS}/{pod}")
        except ApiError as error:
            return error.status == NOT_FOUND
        return False


def _values(node: RealNode, disk: NodeDisk) -> Object:
    """What this node has elsewhere than others."""
    registry, _, name = agent_image.name().rpartition("/")
    repository, _, tag = name.partition(":")
    none = {"enabled": False}
    environment = {
        "GPUSIM_DEV": str(disk.base / "dev"),
        "NVIDIA_VISIBLE_DEVICES": "all",  # GPUs come without privilege
        "KUBERNETES_SERVICE_HOST": "127.0.0.1",  # nobody leads to Services here
        "KUBERNETES_SERVICE_PORT": str(API_PORT),
    }
    agent = {
        "privileged": False,  # simulated GPUs are files
        "stateDirectory": str(disk.base),
        "extraArgs": ["--allocation-check-period=5s"],
        "extraEnv": [{"name": key, "value": value} for key, value in environment.items()],
    }
    return {
        "image": {
            "registry": registry,
            "repository": repository,
            "tag": tag,
            "pullPolicy": "Never",
        },
        "driver": {"root": str(DRIVER), "deviceDirectory": str(disk.base / "nodes")},
        "containerRuntime": {"socket": str(node.containerd_socket)},
        "agent": agent,
        **dict.fromkeys(("extender", "scheduler", "webhook"), none),
    }


def pod_of(workload: Mapping[str, Any], name: str) -> Object:
    """What a controller and the admission of accounts would make here of a DaemonSet's template, or
    of a Deployment's."""
    template = deepcopy(workload["spec"]["template"])
    spec = template["spec"]
    spec["nodeName"] = NODE
    token = {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}}
    authority = {"configMap": {"name": AUTHORITY, "items": [{"key": "ca.crt", "path": "ca.crt"}]}}
    volume = {"name": "account", "projected": {"sources": [token, authority]}}
    spec["volumes"].append(volume)
    for container in spec["containers"]:
        mount = {"name": "account", "mountPath": ACCOUNT, "readOnly": True}
        container["volumeMounts"].append(mount)
    metadata = {"name": name, "labels": template["metadata"]["labels"]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _authority(certificate: Path) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": AUTHORITY, "namespace": NAMESPACE},
        "data": {"ca.crt": certificate.read_text()},
    }
