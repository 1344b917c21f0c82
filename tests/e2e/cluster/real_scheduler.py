"""A real kube-scheduler that asks `gpumanager extender`, set up as `docs/extender.md` tells.

Configuration, role and Service are read from that page; of the configuration only what is a path or
belongs to a single scheduler is replaced. The Service stands in `service_door`, pods are replicas.
"""

import json
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from gpumanager.names import LABEL_ROLE
from gpumanager.scheduler.certificates.x509 import issue, make_authority
from tests.e2e.cluster.api_client import ApiClient
from tests.e2e.cluster.documented import documented
from tests.e2e.cluster.replica import NAMESPACE, Replica
from tests.e2e.cluster.service_door import ServiceDoor
from tests.e2e.node import enclosure
from tests.e2e.node.node_process import NodeProcess
from tests.e2e.node.node_runtime import run
from tests.e2e.node.real_node import RealNode

PAGE: Final = "extender.md"
APP: Final = "gpu-manager-extender"
PORT: Final = 3456
SCHEDULER_PORT: Final = 10260
"""Not that of the node's own scheduler, which goes on beside."""
CLIENT: Final = "gpu-manager-kube-scheduler"
DAY: Final = timedelta(days=1)


class RealScheduler:
    """kube-scheduler with our extender, of which one replica runs."""

    def __init__(self, node: RealNode) -> None:
        self.node = node
        self._last_first = ExitStack()
        self._directory = node.file("extender")
        self._directory.mkdir()
        self.configuration: dict[str, Any] = documented(PAGE, "KubeSchedulerConfiguration")
        self.process = NodeProcess("gpu-scheduler", node.logs / "gpu-scheduler.log")
        self.replicas: list[Replica] = []

    @property
    def name(self) -> str:
        """What pods ask for that are to come here."""
        return str(self.configuration["profiles"][0]["schedulerName"])

    @property
    def certificate(self) -> tuple[Path, Path]:
        """By which the extender knows kube-scheduler, and its key."""
        return self._directory / "client.crt", self._directory / "client.key"

    @property
    def extender(self) -> Replica:
        """The first of its replicas."""
        return self.replicas[0]

    def start(self) -> None:
        self._issue()
        rules = documented(PAGE, "ClusterRole")["rules"]
        self._token = self.node.token_of_account(APP, rules)
        self.door = open_service(self.node.api, documented(PAGE, "Service"))
        self._last_first.callback(self.door.close)
        self.add_replica()
        self.extender.process.wait_for(self.door.endpoints, "it leads, and the Service leads to it")
        self._start_scheduler()

    def stop(self) -> None:
        self._last_first.close()

    def add_replica(self) -> Replica:
        """One more, ready."""
        endpoint = enclosure.REPLICAS[len(self.replicas)], PORT
        flags = {
            "address": f"{endpoint[0]}:{PORT}",
            "kubeconfig": self.node.write_kubeconfig("extender", self._token),
            "tls-cert-file": self._directory / "tls.crt",
            "tls-private-key-file": self._directory / "tls.key",
            "client-ca-file": self._directory / "client.crt",  # which has signed itself
            "client-name": CLIENT,
            "anonymous-read": "true",
        }
        words = [f"--{name}={value}" for name, value in flags.items()]
        replica = Replica(self.node, APP, endpoint, ["extender", *words])
        self.replicas.append(replica)
        self._last_first.callback(replica.remove)
        replica.start()
        return replica

    def remove_replica(self) -> None:
        """The last one that came."""
        self.replicas.pop().remove()

    def _issue(self) -> None:
        """A certificate of the name that the configuration calls."""
        host = urlsplit(self.configuration["extenders"][0]["urlPrefix"]).hostname or ""
        now = datetime.now(UTC)
        authority = make_authority(now, DAY)
        served = issue(authority, [host], now, DAY)
        files = {
            "ca.crt": authority.certificate,
            "tls.crt": served.certificate,
            "tls.key": served.key,
        }
        for name, content in files.items():
            (self._directory / name).write_bytes(content)
        made = ("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj")
        certificate, key = self.certificate
        places = ("-keyout", key, "-out", certificate)
        run("openssl", *made, f"/CN={CLIENT}", *places)

    def _start_scheduler(self) -> None:
        written = self._directory / "kube-scheduler.json"
        written.write_text(json.dumps(self._here()))
        self._last_first.callback(self.process.stop)
        self.process.start(
            self.node.program("kube-scheduler"),
            *("--config", written, "--secure-port", SCHEDULER_PORT),
            *("--cert-dir", self._directory),
        )

    def _tls(self, documented: dict[str, str]) -> dict[str, str]:
        """Of the fields that are documented, the files here."""
        files = {"caFile": "ca.crt", "certFile": "client.crt", "keyFile": "client.key"}
        return {field: str(self._directory / files[field]) for field in documented}

    def _here(self) -> dict[str, Any]:
        """The configuration with this node's paths. Its second extender is for claims."""
        extender = self.configuration["extenders"][0]
        return self.configuration | {
            "clientConnection": {"kubeconfig": str(self.node.kubeconfig("scheduler"))},
            "leaderElection": {"leaderElect": False},
            "extenders": [extender | {"tlsConfig": self._tls(extender["tlsConfig"])}],
        }


def open_service(api: ApiClient, service: dict[str, Any]) -> ServiceDoor:
    """A Service at the API server, at its address of `enclosure`, with somebody behind it."""
    name = f"{service['metadata']['name']}.{NAMESPACE}.svc"
    service["spec"]["clusterIP"] = enclosure.SERVICES[name]
    return ServiceDoor(api, api.create(f"/api/v1/namespaces/{NAMESPACE}/services", service))


def role(replica: Replica) -> str:
    """What a replica says of itself."""
    return replica.labels.get(LABEL_ROLE, "")
