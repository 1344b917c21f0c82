"""The webhook with the flags, the account and the configurations that the chart has installed.

No controller makes the Deployment's pod and nobody leads to Services here, so its process runs on
this host, behind the Service of the same name at an address of ours.
"""

from typing import Any, Final

from tests.e2e.chart.real_release import Release
from tests.e2e.cluster.cluster_objects import as_stored, collection_of
from tests.e2e.cluster.real_scheduler import open_service
from tests.e2e.cluster.real_webhook import APP, PATIENCE, PORT, REGISTRATION, SERVICE
from tests.e2e.cluster.replica import NAMESPACE, Replica
from tests.e2e.node import enclosure
from tests.e2e.node.node_process import wait_for
from tests.e2e.node.real_node import RealNode

VALUES: Final = {"enabled": True, "claims": "labelled"}
CONFIGURATIONS: Final = tuple(
    f"{REGISTRATION}/{kind}webhookconfigurations/gpu-manager" for kind in ("mutating", "validating")
)


class ChartedWebhook:
    """One replica of it, of a release that is installed."""

    def __init__(self, node: RealNode, release: Release) -> None:
        self._api = node.api
        objects = {one["kind"]: one for one in release.manifest if one["metadata"]["name"] == APP}
        self._api.delete(f"{collection_of(self._api, objects['Service'])}/{APP}", 0)
        self._door = open_service(self._api, dict(SERVICE))
        (container,) = as_stored(self._api, objects["Deployment"])["spec"]["template"]["spec"][
            "containers"
        ]
        account = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{APP}/token"
        token = self._api.create(account, {"spec": {"expirationSeconds": 86400}})
        kubeconfig = node.write_kubeconfig("webhook", token["status"]["token"])
        endpoint = enclosure.REPLICAS[-1], PORT
        here = [f"--address={endpoint[0]}", f"--kubeconfig={kubeconfig}"]
        self.replica = Replica(node, APP, endpoint, [*container["args"], *here])

    def start(self) -> None:
        """Until the API server believes it."""
        for path in CONFIGURATIONS:
            configuration = self._api.get(path)
            for one in configuration["webhooks"]:
                one["timeoutSeconds"] = PATIENCE
            self._api.ask("PUT", path, configuration)
        self.replica.start()
        wait_for(self._is_believed, "the configurations have their caBundle")

    def stop(self) -> None:
        self.replica.remove()
        self._door.close()

    def _is_believed(self) -> bool:
        found: list[Any] = [
            one for path in CONFIGURATIONS for one in self._api.get(path)["webhooks"]
        ]
        return all(one["clientConfig"].get("caBundle") for one in found)
