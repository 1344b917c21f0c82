"""`gpumanager webhook` before a real API server, set up as `docs/webhook.md` tells.

Configurations and roles are read from that page; what the certificates need is made by the webhook.
"""

from typing import Any, Final

from tests.e2e.cluster.api_client import ApiClient
from tests.e2e.cluster.documented import documented
from tests.e2e.cluster.real_scheduler import open_service
from tests.e2e.cluster.replica import NAMESPACE, Replica
from tests.e2e.cluster.service_door import https
from tests.e2e.node import enclosure
from tests.e2e.node.node_process import wait_for
from tests.e2e.node.real_node import RealNode

PAGE: Final = "webhook.md"
APP: Final = "gpu-manager-webhook"
PORT: Final = 8443
REGISTRATION: Final = "/apis/admissionregistration.k8s.io/v1"
ROLES: Final = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}"
CONFIGURATIONS: Final = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
PATIENCE: Final = 30
"""Seconds, for an answer, instead of those of the page: who gets none lets pods in as they are."""
NODE_KINDS: Final = "gpumanager_webhook_node_kinds 1.0"
SERVICE: Final = {
    "metadata": {"name": APP, "namespace": NAMESPACE},
    "spec": {"selector": {"app": APP}, "ports": [{"port": 443, "targetPort": PORT}]},
}


class RealWebhook:
    """One replica of it. scheduler: named to pods that name none."""

    def __init__(self, node: RealNode, scheduler: str) -> None:
        self._api = node.api
        kubeconfig = node.write_kubeconfig("webhook", _token(node))
        flags = {
            "address": enclosure.REPLICAS[-1],
            "port": PORT,
            "kubeconfig": kubeconfig,
            "scheduler-name": scheduler,
            "default-memory": "share",
            "drain": 0,
        }
        words = [f"--{name}={value}" for name, value in flags.items()]
        endpoint = enclosure.REPLICAS[-1], PORT
        self.replica = Replica(node, APP, endpoint, ["webhook", *words])
        self._door = open_service(self._api, dict(SERVICE))

    def start(self) -> None:
        """Until both configurations say whom to believe, and it knows the node's GPUs."""
        for kind in CONFIGURATIONS:
            self._api.create(f"{REGISTRATION}/{kind.lower()}s", _patient(documented(PAGE, kind)))
        self.replica.start()
        wait_for(self._believed, "the configurations have their caBundle")
        wait_for(self._knows_nodes, "it has looked at the nodes")

    def stop(self) -> None:
        """Pods are let in unseen again."""
        for kind in CONFIGURATIONS:
            self._api.delete(f"{REGISTRATION}/{kind.lower()}s/gpu-manager", 0)
        self.replica.remove()
        self._door.close()

    def _believed(self) -> bool:
        paths = [f"{REGISTRATION}/{kind.lower()}s/gpu-manager" for kind in CONFIGURATIONS]
        found: list[Any] = [self._api.get(path)["webhooks"][0]["clientConfig"] for path in paths]
        return all(one.get("caBundle") for one in found)

    def _knows_nodes(self) -> bool:
        return NODE_KINDS in https(self.replica.endpoint, "GET", "/metrics")[1]


def _patient(configuration: dict[str, Any]) -> dict[str, Any]:
    webhooks = [one | {"timeoutSeconds": PATIENCE} for one in configuration["webhooks"]]
    return configuration | {"webhooks": webhooks}


def _token(node: RealNode) -> str:
    """Of an account with the roles of the page."""
    token = node.token_of_account(APP, documented(PAGE, "ClusterRole")["rules"])
    _bind(node.api, documented(PAGE, "Role"))
    return token


def _bind(api: ApiClient, role: dict[str, Any]) -> None:
    api.create(f"{ROLES}/roles", role)
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": APP}
    subject = {"kind": "ServiceAccount", "name": APP, "namespace": NAMESPACE}
    api.create(
        f"{ROLES}/rolebindings",
        {"metadata": {"name": APP}, "roleRef": reference, "subjects": [subject]},
    )
