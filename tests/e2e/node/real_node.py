"""A real node: etcd, an API server and a scheduler, containerd with runc, and a kubelet.

It lives in the namespaces of `enclosure`, hence on fixed ports and the kubelet's own paths. Users
are told apart by tokens; the kubelet asks the API server who may read `/pods`, as on a cluster.
Of the controllers there are those of claims alone, and only while a test wants them: nobody but a
test makes or deletes a pod. Pods have no network.
"""

import json
import os
import resource
import secrets
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from tests.e2e.cluster.api_client import ApiClient, silent
from tests.e2e.node import enclosure, node_image, node_programs, node_runtime
from tests.e2e.node.node_process import NodeProcess
from tests.e2e.node.node_runtime import Containerd, run, said_by

NODE: Final = "node1"
API_PORT: Final = 6443
KUBELET_PORT: Final = 10250
ETCD: Final = "http://127.0.0.1:2379"
NODE_PATH: Final = f"/api/v1/nodes/{NODE}"
DEVICE_PLUGINS: Final = Path("/var/lib/kubelet/device-plugins")
USERS: Final = {
    "admin": ("admin", "system:masters"),
    "kubelet": (f"system:node:{NODE}", "system:nodes"),
    "scheduler": ("system:kube-scheduler", ""),
    "controllers": ("system:kube-controller-manager", ""),
}
CONTROLLERS: Final = ("resourceclaim-controller", "device-taint-eviction-controller")
"""Who makes claims of templates, frees and deletes them, and evicts pods by a device's taint."""
NOT_WITHOUT_CONTROLLERS: Final = "ServiceAccount,TaintNodesByCondition"
"""Admission plugins that wait for what a controller manager would do."""


class RealNode:
    """One node, its programs from `programs`, its files below `directory`.

    device_state: the simulated GPUs' control file, which stands for a driver in the kernel: shown
    to every container as /dev/nvidiactl.
    """

    def __init__(self, programs: Path, directory: Path, device_state: Path) -> None:
        self._programs = programs
        self._directory = directory
        self._containerd = Containerd(directory, device_state)
        self._tokens = {name: secrets.token_hex(16) for name in USERS}
        self._parts: dict[str, NodeProcess] = {}
        self.api = ApiClient(API_PORT, self._tokens["admin"], self._certificate)

    @property
    def version(self) -> str:
        return said_by(self._programs / "kubelet", "--version").split()[-1].removeprefix("v")

    @property
    def minor(self) -> int:
        return int(self.version.split(".")[1])

    @property
    def versions(self) -> dict[str, str]:
        """Of everything that runs here."""
        return {
            "kubelet": self.version,
            "containerd": node_runtime.version(),
            "runc": said_by("runc", "--version").split()[2],
            "etcd": said_by("etcd", "--version").split()[2],
            "kernel": os.uname().release,
        }

    @property
    def containerd_socket(self) -> Path:
        return self._containerd.socket

    def load_image(self, archive: Path) -> None:
        """For pods, by the name in the archive."""
        self._containerd.load(archive)

    def execute(self, status: Mapping[str, Any], *words: str) -> tuple[int, str]:
        """In the first container of a pod with this status, as `kubectl exec`: exit status, and all
        that is said."""
        container = status["containerStatuses"][0]["containerID"].rpartition("/")[2]
        return self._containerd.execute(container, *words)

    @property
    def certificate(self) -> Path:
        """Of the API server, which nobody but itself has signed."""
        return self._certificate

    @property
    def logs(self) -> Path:
        return self._directory / "logs"

    @property
    def static_pods(self) -> Path:
        """Pods of files here are the kubelet's own: no API server gives or takes them."""
        path = self._directory / "static-pods"
        path.mkdir(exist_ok=True)
        return path

    def start(self, stage: Callable[[str], None]) -> None:
        """Until the node is ready; tells `stage` what is reached."""
        self.logs.mkdir(exist_ok=True)
        for step in (self._start_etcd, self._start_api):
            step()
            stage(step.__name__.removeprefix("_start_"))
        self._containerd.start(self.part("containerd"))
        stage("containerd")
        self.start_kubelet()
        self.part("kubelet").wait_for(self._ready, "the node is ready")
        stage("kubelet")
        self._start_scheduler()

    def stop(self) -> None:
        """The kubelet first, so that it does not see the others go."""
        for name in ("kubelet", "controllers", "scheduler", "api", "containerd", "etcd"):
            if name in self._parts:
                self._parts[name].stop(signal.SIGKILL)

    def part(self, name: str) -> NodeProcess:
        log = self._directory / "logs" / f"{name}.log"
        return self._parts.setdefault(name, NodeProcess(name, log))

    def program(self, name: str) -> Path:
        """One of Kubernetes' own."""
        return self._programs / name

    def file(self, name: str) -> Path:
        """A place for a file that goes with the node."""
        return self._directory / name

    def token_of_account(self, name: str, rules: Sequence[Mapping[str, Any]]) -> str:
        """A service account's token; the account is made, with a role of these rules."""
        self.api.create(
            "/api/v1/namespaces/kube-system/serviceaccounts", {"metadata": {"name": name}}
        )
        roles = "/apis/rbac.authorization.k8s.io/v1"
        self.api.create(f"{roles}/clusterroles", {"metadata": {"name": name}, "rules": rules})
        self.api.create(f"{roles}/clusterrolebindings", _binding(name))
        asked = {"spec": {"expirationSeconds": 86400, "audiences": None}}
        path = f"/api/v1/namespaces/kube-system/serviceaccounts/{name}/token"
        return str(self.api.create(path, asked)["status"]["token"])

    def allocatable(self, resource: str) -> int:
        return int(self.api.get(NODE_PATH)["status"]["allocatable"].get(resource, 0))

    def capacity(self, resource: str) -> int:
        return int(self.api.get(NODE_PATH)["status"]["capacity"].get(resource, 0))

    def start_kubelet(self, **settings: object) -> None:
        """Also after `stop_kubelet`; settings: of its configuration, beside ours."""
        configuration = self._directory / "kubelet.json"
        configuration.write_text(json.dumps(self._kubelet_configuration() | settings))
        flags = ["--config", configuration, "--kubeconfig", self.kubeconfig("kubelet")]
        flags += ["--hostname-override", NODE, "--node-ip", enclosure.ADDRESS]
        if self.minor < FIRST_WITH_ENDPOINT_IN_CONFIGURATION:
            flags += ["--container-runtime=remote", "--pod-infra-container-image", node_image.NAME]
            flags += ["--container-runtime-endpoint", f"unix://{self.containerd_socket}"]
        self.part("kubelet").start(self._programs / "kubelet", *flags)

    def stop_kubelet(self, number: signal.Signals = signal.SIGTERM) -> None:
        self.part("kubelet").stop(number)

    def kill_containerd(self) -> None:
        """Containers go on."""
        self.part("containerd").stop(signal.SIGKILL)

    def start_containerd(self) -> None:
        """After `kill_containerd`; does not wait until it answers."""
        self._containerd.launch(self.part("containerd"))

    def stop_api(self) -> None:
        """At once: told to end, it would first wait a minute for who watches."""
        self.part("api").stop(signal.SIGKILL)

    def start_api(self) -> None:
        """Also after `stop_api`."""
        self._start_api()

    def _start_etcd(self) -> None:
        etcd = self.part("etcd")
        places = ["--listen-client-urls", ETCD, "--advertise-client-urls", ETCD]
        etcd.start("etcd", "--data-dir", self._directory / "etcd", "--unsafe-no-fsync", *places)

    def _start_api(self) -> None:
        tokens = self._directory / "tokens.csv"
        rows = (
            f'{self._tokens[name]},{user},{name},"{group}"' for name, (user, group) in USERS.items()
        )
        tokens.write_text("\n".join(rows) + "\n")
        key = self._directory / "accounts.key"
        if not key.exists():  # accounts keep their tokens over a restart
            run("openssl", "genrsa", "-out", key, "2048")
        api = self.part("api")
        api.start(
            self._programs / "kube-apiserver",
            f"--etcd-servers={ETCD}",
            *("--bind-address=127.0.0.1", f"--secure-port={API_PORT}"),
            f"--advertise-address={enclosure.ADDRESS}",
            f"--cert-dir={self._certificate.parent}",
            f"--token-auth-file={tokens}",
            "--authorization-mode=Node,RBAC",
            f"--disable-admission-plugins={NOT_WITHOUT_CONTROLLERS}",
            "--service-account-issuer=https://kubernetes.default.svc",
            *(f"--service-account-{one}-file={key}" for one in ("key", "signing-key")),
            "--service-cluster-ip-range=10.96.0.0/16",
            "--allow-privileged=true",  # as every cluster has it
        )
        api.wait_for(self._api_ready, "the API server is ready")

    def _api_ready(self) -> bool:
        return self._certificate.exists() and silent(lambda: self.api.get("/readyz")) == "ok"

    def _start_scheduler(self) -> None:
        flags = ["--kubeconfig", self.kubeconfig("scheduler"), "--leader-elect=false"]
        self.part("scheduler").start(self._programs / "kube-scheduler", *flags)

    @property
    def has_controllers(self) -> bool:
        return node_programs.has(self._programs, node_programs.CONTROLLERS)

    @property
    def obstacle_to_claims(self) -> str:
        """Why no claim of a share comes as far as into a container here; empty where one does."""
        if self.minor < FIRST_WITH_SHARED_DEVICES:
            return f"Kubernetes {self.version} shares no device by claims"
        if not self.has_controllers:
            return f"there is no {node_programs.CONTROLLERS} beside the kubelet"
        if node_runtime.major() < FIRST_WITH_CDI:
            return f"containerd {node_runtime.version()} ignores CDI: make e2e CONTAINERD=2"
        return ""

    def start_controllers(self, *more: str) -> None:
        """Each with an account and the role that the API server has for it. Safe to repeat."""
        if self.part("controllers").runs:
            return
        flags = ["--kubeconfig", self.kubeconfig("controllers"), "--leader-elect=false"]
        flags += [
            f"--controllers={','.join((*CONTROLLERS, *more))}",
            "--use-service-account-credentials",
        ]
        self.part("controllers").start(self._programs / node_programs.CONTROLLERS, *flags)

    def stop_controllers(self) -> None:
        """At once; safe to repeat."""
        self.part("controllers").stop(signal.SIGKILL)

    def _kubelet_configuration(self) -> dict[str, Any]:
        _, files = resource.getrlimit(resource.RLIMIT_NOFILE)
        configuration = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": "127.0.0.1",
            "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": True}},
            "authorization": {"mode": "Webhook"},
            "cgroupDriver": enclosure.cgroup_driver(),
            "failSwapOn": False,
            "makeIPTablesUtilChains": False,
            "oomScoreAdj": 0,
            "maxOpenFiles": min(files, 20000),
            "imageGCHighThresholdPercent": 100,
            "evictionHard": {"memory.available": "50Mi"},
            "nodeStatusUpdateFrequency": "1s",
            "syncFrequency": "5s",
            "staticPodPath": str(self.static_pods),
            "kubeAPIQPS": 50,
        }
        if enclosure.cgroup_driver() == "cgroupfs":
            enclosure.make_cgroups(self._directory.name)
            configuration["cgroupRoot"] = f"/{self._directory.name}"
        if self.minor >= FIRST_AGAINST_CGROUP_V1:
            configuration["failCgroupV1"] = False
        if self.minor >= FIRST_WITH_ENDPOINT_IN_CONFIGURATION:
            configuration["containerRuntimeEndpoint"] = f"unix://{self.containerd_socket}"
        return configuration

    def kubeconfig(self, user: str) -> Path:
        """Of one of USERS."""
        return self.write_kubeconfig(user, self._tokens[user])

    def write_kubeconfig(self, user: str, token: str) -> Path:
        cluster = {
            "server": f"https://127.0.0.1:{API_PORT}",
            "certificate-authority": str(self._certificate),
        }
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "here", "cluster": cluster}],
            "users": [{"name": user, "user": {"token": token}}],
            "contexts": [{"name": "here", "context": {"cluster": "here", "user": user}}],
            "current-context": "here",
        }
        path = self._directory / f"{user}.kubeconfig"
        path.write_text(yaml.safe_dump(content))
        return path

    def _ready(self) -> bool:
        node = silent(lambda: self.api.get(NODE_PATH)) or {}
        conditions = node.get("status", {}).get("conditions", [])
        return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)

    @property
    def _certificate(self) -> Path:
        return self._directory / "certificates" / "apiserver.crt"


FIRST_WITH_ENDPOINT_IN_CONFIGURATION: Final = 27
FIRST_AGAINST_CGROUP_V1: Final = 31
FIRST_WITH_SHARED_DEVICES: Final = 36
FIRST_WITH_CDI: Final = 2
"""Version of containerd; 1.7 has it too, but not by itself."""


def _binding(name: str) -> Mapping[str, Any]:
    return {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "kube-system"}],
    }
