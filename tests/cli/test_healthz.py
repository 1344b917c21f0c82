"""A background task that is down shows in /healthz, of agent, extender and webhook alike."""

import asyncio

import pytest
from aiohttp.test_utils import make_mocked_request

from gpumanager.kube.access import Access
from gpumanager.kube.client import KubeClient
from gpumanager.monitor.events import Events
from gpumanager.monitor.pages import Pages
from gpumanager.scheduler.extender.server import ExtenderServer
from gpumanager.scheduler.extender.service import Extender
from gpumanager.scheduler.http.server import HttpRefusal
from gpumanager.scheduler.webhook.policy import AdmissionPolicy
from gpumanager.scheduler.webhook.service import Webhook
from gpumanager.supervisor import Supervisor

TROUBLE = "background task sharing: OverflowError"


async def broken() -> None:
    raise OverflowError("int too big to convert")


@pytest.mark.parametrize(("trouble", "status"), [("", 200), (TROUBLE, 503)])
async def test_the_agent_is_as_well_as_its_tasks(trouble: str, status: int) -> None:
    async def page() -> None:
        return None

    pages = Pages(page, Events(), str, "1", lambda: trouble)

    answer = await pages.healthz(make_mocked_request("GET", "/healthz"))

    assert answer.status == status
    assert isinstance(answer.body, bytes)
    assert trouble in answer.body.decode()


async def test_the_extender_is_as_well_as_its_tasks() -> None:
    supervisor = Supervisor()
    extender = Extender(KubeClient(Access("http://127.0.0.1:1")))
    server = ExtenderServer(extender, supervisor=supervisor)
    request = make_mocked_request("GET", "/healthz")
    assert (await server.routes()["/healthz"]["GET"](request, b"")).status == 200

    supervisor.keep("nodes", broken)
    while not supervisor.trouble:  # noqa: ASYNC110 - it fails at once
        await asyncio.sleep(0)

    with pytest.raises(HttpRefusal, match="nodes: OverflowError"):
        await server.routes()["/healthz"]["GET"](request, b"")
    assert b'gpumanager_extender_background_task_restarts_total{task="nodes"}' in (
        server.metrics.text()
    )
    await supervisor.stop()


async def test_the_webhook_is_as_well_as_its_tasks() -> None:
    request = make_mocked_request("GET", "/healthz")
    well = Webhook(AdmissionPolicy())
    ill = Webhook(AdmissionPolicy(), trouble=lambda: TROUBLE)

    assert (await well.routes()["/healthz"]["GET"](request, b"")).status == 200
    with pytest.raises(HttpRefusal, match="sharing"):
        await ill.routes()["/healthz"]["GET"](request, b"")
