"""Which pods a kubelet tells of over its Pods API, where it has one, and over `/pods` beside it."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gpumanager.kube.pod import PodView
from gpumanager.kubelet.pods import PodsUnavailable
from gpumanager.kubelet.pods_api import PodsApi
from tests.contracts.kubelet.kubelet_stage import Stage, container, init, one
from tests.contracts.kubelet.kubelet_under_test import ALPHA, Sketch


@pytest.fixture
async def api(stage: Stage) -> AsyncIterator[PodsApi]:
    """With as much time for an answer as a kubelet on a busy machine may need."""
    api = PodsApi(stage.kubelet.pods_api, stage.kubelet.seconds)
    if not stage.version.pods_api:
        with pytest.raises(PodsUnavailable, match="no Pods API"):
            await api.pods()
        pytest.skip(f"kubelet {stage.version.number} has no Pods API")
    yield api
    await api.close()


def of(found: tuple[PodView, ...], name: str) -> PodView:
    (pod,) = (pod for pod in found if pod.name == name)
    return pod


async def test_the_pods_api_lists_what_pods_lists(stage: Stage, api: PodsApi) -> None:
    await stage.run(Sketch("api-whole", [init("init", 2), container("main", 2, 3)]))

    found = of(await api.pods(), "api-whole")
    other = of(await stage.kubelet.pods.pods(), "api-whole")

    assert (found.uid, found.namespace, found.name) == (other.uid, other.namespace, other.name)
    assert found.containers == other.containers
    assert found.annotations == other.annotations
    assert [one.name for one in found.containers] == ["init", "main"]


async def test_the_pod_under_admission_is_listed_before_its_plugin_is_called(
    stage: Stage, api: PodsApi
) -> None:
    seen: list[tuple[set[Any], set[Any]]] = []

    async def look() -> None:
        lists = (await api.pods(), await stage.kubelet.pods.pods())
        by_api, by_http = ({pod.uid for pod in pods} for pods in lists)
        seen.append((by_api, by_http))

    stage.alpha.during_allocate = look
    outcomes = await stage.run(*(one(f"api-{n}", 2) for n in range(3)))

    assert len(seen) == 3
    for by_api, by_http in seen:
        assert by_api == by_http
    assert {outcome.uid for outcome in outcomes} <= seen[-1][0]


async def test_a_rejected_pod_is_seen_to_have_failed(stage: Stage, api: PodsApi) -> None:
    stage.alpha.refuse = {"allocate": "no"}

    (outcome,) = await stage.run(one("api-rejected", 2))

    assert outcome.reason != ""
    assert of(await api.pods(), "api-rejected").ended


async def test_a_deleted_pod_is_not_listed_any_more(stage: Stage, api: PodsApi) -> None:
    (outcome,) = await stage.run(one("api-brief", 2))

    await stage.delete(outcome.uid)

    assert outcome.uid not in {pod.uid for pod in await api.pods()}


async def test_the_pods_api_answers_again_after_a_restart(stage: Stage, api: PodsApi) -> None:
    (outcome,) = await stage.run(one("api-steady", 2))
    await stage.register(stage.alpha)
    assert len(stage.checkpoint_text()["RegisteredDevices"][ALPHA]) == 10

    await stage.kubelet.restart()

    async def listed() -> bool:
        try:
            return outcome.uid in {pod.uid for pod in await api.pods()}
        except PodsUnavailable:
            return False

    await stage.soon(listed)


async def test_so_many_calls_of_the_pods_api_are_answered_and_no_more(
    stage: Stage, api: PodsApi
) -> None:
    refusals: list[str] = []

    async def asked() -> bool:
        sources = [PodsApi(stage.kubelet.pods_api, stage.kubelet.seconds) for _ in range(40)]
        answers = await asyncio.gather(*(s.pods() for s in sources), return_exceptions=True)
        refusals.extend(str(one) for one in answers if isinstance(one, PodsUnavailable))
        for source in sources:
            await source.close()
        return bool(refusals)

    await stage.soon(asked)

    assert all("rate limit" in refusal for refusal in refusals)
