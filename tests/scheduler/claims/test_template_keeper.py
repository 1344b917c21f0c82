"""Templates are there for the pods that name them, and for no others; quotas still count."""

import asyncio
from typing import Any, Self

import pytest

from gpumanager.names import ANNOTATION_CLAIM, LABEL_CLAIM_TEMPLATE, VCORE, VMEMORY
from gpumanager.scheduler.claims.keeper import TemplateKeeper
from gpumanager.scheduler.claims.quota import ClaimQuotas
from gpumanager.scheduler.claims.template import ClaimShape, RequestShape
from gpumanager.sim.cluster.objects import Key
from gpumanager.sim.cluster.server import SimulatedApiServer
from gpumanager.sim.in_memory import ManualClock
from tests.kube.kube_clients import client_of
from tests.waiting import until

pytest_plugins = ["tests.scheduler.extender_fixtures"]

SHAPE = ClaimShape((RequestShape("main", 30, 8),))
OTHER = ClaimShape((RequestShape("main", 60, 8),))


class Kept:
    """A keeper that runs, and what the API server has."""

    def __init__(self, api: SimulatedApiServer) -> None:
        self.api = api
        self.clock = ManualClock()
        self.keeper = TemplateKeeper(client_of(api), clock=self.clock)

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self.keeper.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    def names(self) -> list[str]:
        return [one["metadata"]["name"] for one in self.api.objects.list("resourceclaimtemplates")]


def with_claim(name: str, shape: ClaimShape = SHAPE, text: str = "") -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "labels": {LABEL_CLAIM_TEMPLATE: shape.name},
            "annotations": {ANNOTATION_CLAIM: text or shape.text},
        },
        "spec": {},
    }


async def test_a_template_is_made_once_for_all_pods_that_ask_alike(api: SimulatedApiServer) -> None:
    await api.create("pods", with_claim("p1"))
    async with Kept(api) as first, Kept(api) as second:
        for number in range(2, 20):
            await api.create("pods", with_claim(f"p{number}"))
        await until(lambda: first.names() == [SHAPE.name])
        await until(lambda: len(list(second.keeper.users())) == 19)

        (template,) = api.objects.list("resourceclaimtemplates")
        assert template["spec"] == SHAPE.template("default")["spec"]


async def test_one_that_no_pod_names_goes_after_a_while_and_comes_again(
    api: SimulatedApiServer,
) -> None:
    await api.create("pods", with_claim("p1"))
    await api.create("pods", with_claim("p2", OTHER))
    foreign = {"metadata": {"name": "by-hand", "namespace": "default"}, "spec": {}}
    await api.create("resourceclaimtemplates", foreign)
    async with Kept(api) as kept:
        await until(lambda: len(kept.names()) == 3)
        await api.remove(Key("pods", "default", "p1"))
        await until(lambda: len(list(kept.keeper.users())) == 1)
        assert not list(kept.keeper.tasks())  # not yet: a rollout's next pod may ask the same

        kept.clock.now = 100.0
        await until(lambda: sorted(kept.names()) == sorted(["by-hand", OTHER.name]))

        await api.create("pods", with_claim("p3"))
        await until(lambda: SHAPE.name in kept.names())


async def test_the_next_pod_of_a_name_gets_its_own_template_though_nobody_told_of_the_deletion(
    api: SimulatedApiServer,
) -> None:
    """A StatefulSet is changed while the watch is away: the list after it has the same names."""
    await api.create("pods", with_claim("web-0"))
    async with Kept(api) as kept:
        await until(lambda: kept.names() == [SHAPE.name])
        api.answering.clear()
        await api.forget()
        await api.remove(Key("pods", "default", "web-0"))
        await api.create("pods", with_claim("web-0", OTHER))
        await api.forget()
        api.answering.set()

        await until(lambda: OTHER.name in kept.names())
        assert [one.shape for one in kept.keeper.users()] == [OTHER]


@pytest.mark.parametrize("text", ["nonsense", OTHER.text])
async def test_a_pod_that_lies_about_its_template_gets_none(
    api: SimulatedApiServer, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    await api.create("pods", with_claim("liar", SHAPE, text))
    await api.create("pods", with_claim("honest", OTHER))
    async with Kept(api) as kept:
        await until(lambda: OTHER.name in kept.names())
        assert kept.names() == [OTHER.name]
        assert "default/liar" in caplog.text


async def test_a_quota_counts_claims_beside_what_plain_pods_use(api: SimulatedApiServer) -> None:
    hard = {f"requests.{VCORE}": "100", f"requests.{VMEMORY}": "1k", "pods": "10"}
    used = {f"requests.{VCORE}": "35"}
    quota = {
        "metadata": {"name": "gpus", "namespace": "default"},
        "spec": {"hard": hard},
        "status": {"used": used},
    }
    await api.create("resourcequotas", quota)
    await api.create("pods", with_claim("p1"))
    async with Kept(api) as kept:
        quotas = ClaimQuotas(client_of(api), kept.keeper.users, kept.clock)
        task = asyncio.create_task(quotas.run())
        await until(lambda: quotas.informer.listed.is_set() and list(kept.keeper.users()))

        assert quotas.refusals("other", OTHER) == ()
        assert quotas.refusals("default", SHAPE) == ()
        quotas.expect("default", SHAPE)
        (refusal,) = quotas.refusals("default", SHAPE)
        assert refusal == (
            f"exceeded quota: gpus, requested: requests.{VCORE}=30, "
            f"used: requests.{VCORE}=95, limited: requests.{VCORE}=100"
        )
        kept.clock.now += 11.0  # the pod was refused by somebody else
        assert quotas.refusals("default", SHAPE) == ()

        quotas.expect("default", SHAPE)
        quotas.withdraw("default", SHAPE)  # a later webhook has changed the pod
        assert quotas.refusals("default", SHAPE) == ()

        quotas.expect("default", SHAPE)
        await api.create("pods", with_claim("p2"))
        await until(lambda: len(list(kept.keeper.users())) == 2)
        quotas.withdraw("default", SHAPE)
        assert "used: requests.tencent.com/vcuda-core=95" in quotas.refusals("default", SHAPE)[0]
        await api.remove(Key("resourcequotas", "default", "gpus"))
        await until(lambda: quotas.refusals("default", SHAPE) == ())
        task.cancel()
