"""A service account's token as a pod has it: the API server knows pod and node by it."""

from typing import Any, Final

from tests.e2e.cluster.api_client import ApiClient
from tests.e2e.node.real_node import API_PORT, RealNode

NAMESPACE: Final = "kube-system"
PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"


class BoundAccount:
    """`account`, in a pod of its own on `on`, a node that no kubelet has."""

    def __init__(self, node: RealNode, account: str, on: str) -> None:
        self.name = f"{account}-on-{on}"
        self._api = node.api
        spec = {
            "nodeName": on,
            "serviceAccountName": account,
            "containers": [{"name": "main", "image": "none"}],
        }
        made: Any = node.api.create(PODS, {"metadata": {"name": self.name}, "spec": spec})
        reference = {"kind": "Pod", "apiVersion": "v1", "name": self.name}
        reference["uid"] = made["metadata"]["uid"]
        path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{account}/token"
        asked = {"spec": {"boundObjectRef": reference, "audiences": None}}
        token = str(node.api.create(path, asked)["status"]["token"])
        self.api = ApiClient(API_PORT, token, node.certificate)

    @property
    def path(self) -> str:
        """Of its pod."""
        return f"{PODS}/{self.name}"

    def remove(self) -> None:
        self._api.delete(self.path, 0)
