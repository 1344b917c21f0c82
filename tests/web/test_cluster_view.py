"""The extender's page in a real Chromium."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from gpumanager.kube.pod import read_pod
from gpumanager.scheduler.node import NodeSaid
from tests.scheduler.scheduler_world import pod_object
from tests.scheduler.served_extender import Served
from tests.waiting import until
from tests.web.browsing import DESK, HOSTILE, PHONE, Open, quiet
from tests.web.cluster_show import cluster

pytest_plugins = ["tests.web.chromium_fixtures"]
pytestmark = [pytest.mark.chromium, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(loop_scope="module")
async def served() -> AsyncIterator[Served]:
    async with cluster(31) as one:
        yield one


def address(served: Served) -> str:
    return f"http://127.0.0.1:{served.port}/"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [PHONE, 768, DESK])
async def test_the_page_fits_is_readable_and_asks_nobody_else(
    served: Served, chromium: Open, width: int, scheme: str
) -> None:
    async with chromium(address(served), width, scheme) as tab:
        await tab.state("live")
        await tab.page.click("summary >> nth=0")
        await tab.has("default/train-0")

        assert await tab.overhang() == 0
        assert await tab.barriers() == []
        quiet(tab)


async def test_it_shows_sums_who_waits_and_why_and_quotas(served: Served, chromium: Open) -> None:
    async with chromium(address(served)) as tab:
        await tab.has("gpu-node-24")

        text = " ".join((await tab.page.inner_text("main")).split())
        for words in ("31 nodes, page 1 of 2", "default/pretrain-xl", "this machine has 8",
                      "research A100 0 of 4", "Tesla T4"):  # fmt: skip
            assert words in text, words
        assert await tab.page.locator("#nodes > li").count() == 25


async def test_one_can_turn_pages_search_and_sort(served: Served, chromium: Open) -> None:
    async with chromium(address(served)) as tab:
        await tab.has("gpu-node-24")
        await tab.page.click("#after")
        await tab.has("page 2 of 2")
        assert await tab.page.locator("#nodes > li").count() == 6

        await tab.page.keyboard.press("/")
        await tab.page.keyboard.type("serve-27")
        await tab.says("#nodes b", "gpu-node-27")
        await tab.says("#place", "1 node")
        await tab.page.keyboard.press("Escape")
        await tab.page.select_option("#sort", "free")
        await tab.has("31 nodes, page 1 of 2")
        await tab.says("#nodes b", "gpu-node-1")
        quiet(tab)


async def test_one_can_look_at_nodes_in_one_state_and_go_to_a_page(
    served: Served, chromium: Open
) -> None:
    state = served.extender.state
    text = state.nodes["gpu-node-1"].inventory
    for number in range(100, 160):
        name = f"gpu-node-{number}"
        state.node(NodeSaid(name, text.replace("gpu-node-1", name)))
    try:
        async with chromium(address(served)) as tab:
            await tab.has("91 nodes, page 1 of 4")
            await tab.page.fill("#page", "4")
            await tab.page.keyboard.press("Enter")
            await tab.has("91 nodes, page 4 of 4")
            assert await tab.page.locator("#nodes > li").count() == 16

            await tab.page.select_option("#nodes-state", "closed")
            await tab.has("4 nodes")
            await tab.page.select_option("#nodes-state", "trouble")
            await tab.has("Nothing here matches.")
            quiet(tab)
    finally:
        for number in range(100, 160):
            state.node_gone(f"gpu-node-{number}")


async def test_what_is_left_out_is_told(served: Served, chromium: Open) -> None:
    state = served.extender.state
    for number in range(80):
        name = f"crowd-{number}"
        pod = pod_object(name, (1, 1), node="gpu-node-1", uid=name)
        state.pod(read_pod(pod), "gpu-node-1")
        large = await served.make("pods", pod_object(f"large-{number}", (1500, 0)))
        await served.post("/scheduler/filter", {"Pod": large, "NodeNames": ["gpu-node-2"]})
    async with chromium(address(served), PHONE) as tab:
        await tab.has("50 of 82 are shown, the newest")
        waits = "document.getElementById('waiting').clientHeight"
        assert await tab.page.evaluate(waits) < 450  # and the nodes are not far below
        await tab.page.fill("#search", "crowd-79")
        await tab.says("#place", "1 node")
        await tab.page.click("summary >> nth=0")

        await tab.has("default/crowd-79")
        await tab.has("and 16 more")
        assert await tab.overhang() == 0
        assert await tab.barriers() == []


async def test_what_is_new_is_shown_by_itself(served: Served, chromium: Open) -> None:
    async with chromium(address(served)) as tab:
        await tab.has("gpu-node-24")

        pod = await served.make("pods", pod_object("newcomer", (1500, 0)))
        await served.post("/scheduler/filter", {"Pod": pod, "NodeNames": ["gpu-node-1"]})
        await until(lambda: pod["metadata"]["uid"] in served.extender.state.known)

        await tab.has("default/newcomer")


async def test_names_that_are_scripts_are_only_shown(served: Served, chromium: Open) -> None:
    pod = pod_object("p", (1600, 0), uid="u")
    pod["metadata"] |= {"name": HOSTILE, "namespace": HOSTILE}
    await served.make("pods", pod)
    await served.post("/scheduler/filter", {"Pod": pod, "NodeNames": ["gpu-node-1"]})
    async with chromium(address(served)) as tab:
        await tab.page.fill("#search", HOSTILE)
        await tab.has("Nothing here matches.")
        await tab.page.fill("#search", "")
        await tab.has("gpu-node-24")

        assert await tab.page.evaluate("window.hurt") is None
        assert await tab.page.locator("main img").count() == 0
        quiet(tab)


async def test_a_standby_says_who_leads(served: Served, chromium: Open) -> None:
    class Standby:
        leads, remaining, holder = False, 0.0, "extender-7"

        async def run(self) -> None: ...

    served.extender.election = Standby()  # type: ignore[assignment]
    async with chromium(address(served), PHONE) as tab:
        await tab.has("standby; leader: extender-7")
        await tab.has("known to the leader only")

        assert await tab.overhang() == 0
