"""What docs/quota.md tells to install is understood, and works at a real API server."""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gpumanager.kube.access import Access
from gpumanager.kube.client import KubeClient
from gpumanager.kube.errors import ApiRefused
from gpumanager.names import VCORE, VMEMORY
from gpumanager.scheduler.quota.keeper import REASON, QuotaEvents, QuotaKeeper
from gpumanager.scheduler.quota.limits import read_config_map
from tests.kube.kube_clients import close_clients, opened
from tests.scheduler.real_api import account, administrator, manifests
from tests.scheduler.webhook.review_texts import container, pod
from tests.waiting import until

MAPS = "/api/v1/namespaces/kube-system/configmaps"
EVENTS = "/api/v1/namespaces/kube-system/events"


def one_of_kind(kind: str) -> Any:
    (found,) = (one for one in manifests("quota.md") if one["kind"] == kind)
    return found


def test_the_config_map_to_install_is_understood() -> None:
    quotas = read_config_map(one_of_kind("ConfigMap"))

    assert quotas["research"].gpus == {"M40": 8, "A100": 2}
    assert quotas["teaching"].gpus is None
    assert quotas["teaching"].pools == {"public", "old"}


@pytest.fixture
async def access() -> AsyncIterator[Access]:
    yield administrator()
    await close_clients()


@pytest.fixture
async def namespace(access: Access) -> AsyncIterator[str]:
    """One of its own, with the page's ResourceQuota: `/api/v1/namespaces/NAME`."""
    api, name = opened(access), f"gpu-manager-{secrets.token_hex(4)}"
    path = f"/api/v1/namespaces/{name}"
    await api.create("/api/v1/namespaces", {"metadata": {"name": name}})
    with contextlib.suppress(ApiRefused):  # a controller was faster, where one runs
        await api.create(f"{path}/serviceaccounts", {"metadata": {"name": "default"}})
    quota = one_of_kind("ResourceQuota")
    quota["metadata"]["namespace"] = name
    await api.create(f"{path}/resourcequotas", quota)
    hard = quota["spec"]["hard"]
    status = {"hard": hard, "used": dict.fromkeys(hard, "0")}
    quota_path = f"{path}/resourcequotas/{quota['metadata']['name']}"
    await api.patch(f"{quota_path}/status", {"status": status})  # as its controller begins
    yield path
    await api.delete(quota_path, {})
    await api.delete(path, {})


async def test_a_real_resource_quota_counts_our_resources_without_help(
    access: Access, namespace: str
) -> None:
    api = opened(access)

    async def create(name: str, cores: int, blocks: int | None) -> None:
        item = pod(container(cores=cores, blocks=blocks))
        item["metadata"] = {"name": name}
        await api.create(f"{namespace}/pods", item)

    await create("first", 700, None)
    await create("share", 60, 960)
    with pytest.raises(ApiRefused) as cores:
        await create("train", 200, None)
    with pytest.raises(ApiRefused) as memory:
        await create("small", 10, 100)
    for name in ("first", "share"):
        await api.delete(f"{namespace}/pods/{name}", {"gracePeriodSeconds": 0})

    assert cores.value.status == memory.value.status == 403
    assert (
        f"exceeded quota: gpus, requested: requests.{VCORE}=200, used: requests.{VCORE}=760, "
        f"limited: requests.{VCORE}=800" in str(cores.value)
    )
    assert f"requests.{VMEMORY}=100, used: requests.{VMEMORY}=960" in str(memory.value)


async def test_the_rights_that_an_extender_is_given_are_enough_at_a_real_api_server(
    access: Access,
) -> None:
    api, name = opened(access), f"gpu-manager-{secrets.token_hex(4)}"
    made: list[str] = []
    (role,) = (one for one in manifests("extender.md") if one.get("kind") == "ClusterRole")
    ours = await account(access, name, [role], made)
    events = QuotaEvents(ours, "me")
    keeper = QuotaKeeper(ours, "kube-system", name, report=events.record)
    running = [asyncio.create_task(one.run()) for one in (keeper, events)]
    try:
        await until(lambda: keeper.known().quotas == {})
        text = one_of_kind("ConfigMap")["data"]["gpu_quota"]
        item = {"metadata": {"name": name}, "data": {"gpu_quota": text}}
        await api.create(MAPS, item)
        made.append(f"{MAPS}/{name}")
        await until(lambda: "research" in (keeper.known().quotas or {}))

        await api.patch(f"{MAPS}/{name}", {"data": {"gpu_quota": "{"}})
        await until(lambda: keeper.known().trouble)
        event = await said(api, name)

        assert event["reason"] == REASON
        assert "the previous quotas stay in force" in event["message"]
        assert "research" in (keeper.known().quotas or {})
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        for path in made:
            await api.delete(path, {})


async def said(api: KubeClient, name: str) -> Any:
    """The event about the ConfigMap."""
    found: list[Any] = []
    async with asyncio.timeout(300):
        while not found:
            await api.list(EVENTS, found.append, fieldSelector=f"involvedObject.name={name}")
            await asyncio.sleep(0.1)
    return found[0]
