"""What docs/webhook.md tells to install fits what is served, and works at a real API server."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gpumanager.gpu.inventory import inventory
from gpumanager.kube.client import KubeClient
from gpumanager.kube.errors import ApiRefused
from gpumanager.names import VCORE, VMEMORY
from gpumanager.scheduler.certificates.keeper import Keeper
from gpumanager.scheduler.certificates.own_ca import REGISTRATION, OwnCertificate
from gpumanager.scheduler.webhook.nodes import KnownNodes
from gpumanager.scheduler.webhook.policy import AdmissionPolicy
from gpumanager.scheduler.webhook.service import MUTATE, VALIDATE, VALIDATE_CLAIMS, Webhook
from tests.kube.kube_clients import close_clients, opened
from tests.scheduler.claims.claim_texts import device_class, exactly, opaque, resource_claim
from tests.scheduler.http.served import serving
from tests.scheduler.real_api import account, administrator, manifests
from tests.scheduler.webhook.review_texts import container, node_kind, node_topology, pod

PAGE = "webhook.md"
PODS = "/api/v1/namespaces/default/pods"
CLAIMS = "/apis/resource.k8s.io/{}/namespaces/default/{}"
CLASSES = "/apis/resource.k8s.io/v1/deviceclasses"


def configurations() -> list[Any]:
    return [one for one in manifests(PAGE) if one["kind"].endswith("WebhookConfiguration")]


def test_the_paths_to_install_are_those_that_are_served() -> None:
    hooks = [hook for one in configurations() for hook in one["webhooks"]]
    paths = {hook["clientConfig"]["service"]["path"] for hook in hooks}

    assert paths == {MUTATE, VALIDATE, VALIDATE_CLAIMS}
    assert paths < Webhook(AdmissionPolicy()).routes().keys()


class RealWorld:
    """A real API server that sends new pods here.

    api: its administrator's. webhook: with the rights that the page gives, and no others.
    """

    def __init__(self, api: KubeClient, webhook: KubeClient, name: str) -> None:
        self.api = api
        self.webhook = webhook
        self.name = name

    async def install(self, port: int) -> None:
        for one in configurations():
            for hook in one["webhooks"]:
                path = hook["clientConfig"].pop("service")["path"]
                hook["clientConfig"]["url"] = f"https://localhost:{port}{path}"
            one["metadata"]["name"] = self.name
            await self.api.create(f"{REGISTRATION}/{one['kind'].lower()}s", one)

    async def pod(self, made: Any) -> Any:
        """As it was stored; it is taken away again."""
        made["metadata"] = {**made["metadata"], "name": f"p-{secrets.token_hex(4)}"}
        answer = await self.api.create(PODS, made)
        await self.api.delete(f"{PODS}/{made['metadata']['name']}", {"gracePeriodSeconds": 0})
        return answer

    async def write(self, path: str, made: Any, update: Any = None) -> Any:
        """As it was stored, or as `update` has changed it; it is taken away again."""
        name = f"c-{secrets.token_hex(4)}"
        made = {**made, "metadata": {"name": name}}
        answer = await self.api.create(path, made)
        try:
            return await self.api.patch(f"{path}/{name}", update) if update else answer
        finally:
            await self.api.delete(f"{path}/{name}", {})

    async def uninstall(self) -> None:
        for one in configurations():
            await self.api.delete(f"{REGISTRATION}/{one['kind'].lower()}s/{self.name}", {})


@pytest.fixture
async def world() -> AsyncIterator[RealWorld]:
    access = administrator()
    api, name = opened(access), f"gpu-manager-{secrets.token_hex(4)}"
    made: list[str] = []
    roles = [one for one in manifests(PAGE) if one["kind"].endswith("Role")]
    webhook = await account(access, name, roles, made)
    one = RealWorld(api, webhook, name)
    secret = ("kube-system", name)
    source = OwnCertificate(webhook, secret, ("localhost",), [name])
    keeper = Keeper(source)
    await keeper.refresh()
    hook = Webhook(AdmissionPolicy(scheduler_name="gpu-scheduler", default_memory=4))
    async with serving(hook.routes(), tls=keeper.context) as served:
        await one.install(served.port)
        await keeper.refresh()  # the bundle is written
        await settle(one)
        yield one
    await one.uninstall()
    for path in (*made, f"/api/v1/namespaces/kube-system/secrets/{name}"):
        await api.delete(path, {})
    await close_clients()


async def settle(world: RealWorld) -> None:
    """The API server learns of its configurations a moment after they are written."""
    async with asyncio.timeout(300):
        while True:
            if (await world.pod(pod()))["spec"]["schedulerName"] == "gpu-scheduler":
                return
            await asyncio.sleep(0.2)


async def test_a_real_api_server_completes_pods_as_we_say(world: RealWorld) -> None:
    made = pod(container(blocks=None), nodeName="no-such-node")

    stored = await world.pod(made)

    assert stored["spec"]["schedulerName"] == "gpu-scheduler"
    assert "nodeName" not in stored["spec"]
    amounts = stored["spec"]["containers"][0]["resources"]
    assert amounts["limits"] == amounts["requests"] == {VCORE: "30", VMEMORY: "4"}
    keys = {one.get("key") for one in stored["spec"]["tolerations"]}
    assert {VCORE, VMEMORY} <= keys


async def test_a_real_api_server_refuses_pods_in_our_words(world: RealWorld) -> None:
    with pytest.raises(ApiRefused, match="write 100 or 200") as caught:
        await world.pod(pod(container(cores=150)))

    assert caught.value.status == 422


async def test_a_real_api_server_sends_pods_by_whatever_container_asks(world: RealWorld) -> None:
    asking = container(name="asks")
    asking["resources"].pop("requests")
    plain = {"name": "plain", "image": "none"}

    for made in (pod(plain, asking), pod(plain, initContainers=[asking])):
        assert (await world.pod(made))["spec"]["schedulerName"] == "gpu-scheduler"


async def test_a_real_api_server_keeps_other_pods_to_itself(world: RealWorld) -> None:
    made = pod({"name": "plain", "image": "none"})
    ignored = pod()
    ignored["metadata"]["labels"] = {"tencent.com/webhook": "ignore"}

    for one in (made, ignored):
        assert (await world.pod(one))["spec"]["schedulerName"] == "default-scheduler"


async def test_a_real_api_server_lets_us_look_at_its_nodes(world: RealWorld) -> None:
    node = {"metadata": {"name": world.name, "annotations": inventory(node_topology(80))}}
    await world.api.create("/api/v1/nodes", node)
    nodes = KnownNodes(world.webhook)

    await nodes.refresh()

    await world.api.delete(f"/api/v1/nodes/{world.name}", {})
    assert node_kind(80) in nodes.kinds


async def test_a_real_api_server_keeps_two_replicas_from_making_two_certificates(
    world: RealWorld,
) -> None:
    secret = ("kube-system", world.name)
    await world.api.delete(f"/api/v1/namespaces/kube-system/secrets/{world.name}", {})
    now = datetime.now(UTC)
    replicas = [
        OwnCertificate(world.webhook, secret, ("localhost",), [world.name]) for _ in range(4)
    ]

    first = await asyncio.gather(*(one.fetch(now) for one in replicas))
    later = now + timedelta(days=61)
    second = await asyncio.gather(*(one.fetch(later) for one in replicas))

    assert len(set(first)) == len(set(second)) == 1
    assert first[0] != second[0]


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
@pytest.mark.parametrize("kind", ["ResourceClaim", "ResourceClaimTemplate"])
async def test_a_real_api_server_refuses_claims_in_our_words_in_every_version(
    world: RealWorld, version: str, kind: str
) -> None:
    served = await world.api.get("/apis/resource.k8s.io")
    if version not in {one["version"] for one in served["versions"]}:
        pytest.skip(f"resource.k8s.io/{version} is not served")
    path = CLAIMS.format(version, f"{kind.lower()}s")

    def written(**parameters: Any) -> Any:
        request = exactly(allocationMode="ExactCount", count=1)
        flat = {"name": "gpu", **request} if version == "v1beta1" else None
        row = flat or {"name": "gpu", "exactly": request}
        made = resource_claim([row], [opaque(**parameters)], kind)
        return {**made, "apiVersion": f"resource.k8s.io/{version}"}

    with pytest.raises(ApiRefused, match=r"config\[0\].opaque.parameters.coreLimit: '0'") as caught:
        await world.write(path, written(coreLimit=0))

    assert caught.value.status == 422
    assert await world.write(path, written(coreLimit=60))


async def test_a_real_api_server_refuses_classes_too_and_their_updates(world: RealWorld) -> None:
    with pytest.raises(ApiRefused, match=r"spec.config\[0\].opaque.parameters.coreLimit"):
        await world.write(CLASSES, device_class([opaque(coreLimit=0)]))
    with pytest.raises(ApiRefused, match=r"spec.config\[0\].opaque.parameters.coreLimit"):
        await world.write(
            CLASSES,
            device_class([opaque(coreLimit=60)]),
            {"spec": {"config": [opaque(coreLimit=0)]}},
        )


async def test_a_real_api_server_keeps_claims_of_others_to_itself(world: RealWorld) -> None:
    other = {"opaque": {"driver": "nic.example.com", "parameters": {"coreLimits": 0}}}
    nic = {"name": "nic", "exactly": exactly("nic.example.com")}

    assert await world.write(CLAIMS.format("v1", "resourceclaims"), resource_claim([nic], [other]))
    assert await world.write(CLASSES, device_class([other]))
