"""The agent's page in a real Chromium: what it shows, that it lives, and what it must not do."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio

from tests.monitor.monitor_world import claimant
from tests.monitor.node_show import MODEL, Show, busy_node, container, device, served
from tests.web.browsing import DESK, HOSTILE, PHONE, Open, quiet

pytest_plugins = ["tests.web.chromium_fixtures"]
pytestmark = [pytest.mark.chromium, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(loop_scope="module")
async def show() -> AsyncIterator[Show]:
    """Five minutes of a busy node."""
    async with served(busy_node()) as one:
        yield one


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [PHONE, 768, DESK])
async def test_the_page_fits_is_readable_and_asks_nobody_else(
    show: Show, chromium: Open, width: int, scheme: str
) -> None:
    async with chromium(show.address, width, scheme) as tab:
        await tab.state("live")
        await tab.has("train-resnet")

        assert await tab.overhang() == 0
        assert await tab.barriers() == []
        ground = await tab.page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert ("rgb(2" in ground) == (scheme == "light")
        quiet(tab)


async def test_it_shows_who_has_what_and_what_happened(show: Show, chromium: Open) -> None:
    async with chromium(show.address) as tab:
        await tab.has("batch-score")

        text = await tab.page.inner_text("main")
        for words in (MODEL, "of 40 to 90 %", "21 GiB of 24 GiB", "whole GPU", "out of use, Xid 79",
                      "3 allocations refused", "90 of 100 % granted",
                      "throttled 71 % of the last minute"):  # fmt: skip
            assert words in " ".join(text.split()), words
        drawn = await tab.page.eval_on_selector_all(
            ".spark .got, .stack path", "all => all.map(one => one.getAttribute('d').length)"
        )
        assert len(drawn) == 6 + 6
        assert min(drawn) > 200


async def test_what_is_new_arrives_without_being_asked_for(show: Show, chromium: Open) -> None:
    async with chromium(show.address) as tab:
        await tab.state("live")
        show.containers = [container("newcomer", device(show.gpus[3], 55))]

        show.look()

        await tab.has("newcomer")
        await tab.counts(".row", 1)
        assert tab.asked.count(f"{show.address}api/history") == 1
        quiet(tab)


async def test_names_that_are_scripts_are_only_shown(show: Show, chromium: Open) -> None:
    show.gpus = [replace(show.gpus[0], model=HOSTILE), *show.gpus[1:]]
    show.reason = HOSTILE
    show.containers = [container(HOSTILE, device(show.gpus[0]), name=HOSTILE)]
    show.look()
    show.containers = []
    async with chromium(show.address) as tab:
        await tab.has(HOSTILE)
        show.containers = [container(HOSTILE + "2", device(show.gpus[0]))]
        show.look()
        await tab.has(HOSTILE + "2")

        assert await tab.page.evaluate("window.hurt") is None
        assert await tab.page.locator("main img").count() == 0
        quiet(tab)


async def test_what_slips_into_the_page_is_not_run_and_reaches_nobody(
    show: Show, chromium: Open
) -> None:
    called: list[Any] = []
    other = await asyncio.start_server(lambda _, writer: called.append(writer), "127.0.0.1", 0)
    port = other.sockets[0].getsockname()[1]
    async with other, chromium(show.address) as tab:
        await tab.state("live")
        await tab.page.evaluate(
            """port => {
                const script = document.createElement("script");
                script.textContent = "window.hurt = 1";
                document.body.append(script);
                document.body.insertAdjacentHTML("beforeend",
                    `<img src="http://127.0.0.1:${port}/" onerror="window.hurt=1">`);
                document.body.insertAdjacentHTML("beforeend", `<p style="color: red">x</p>`);
            }""",
            port,
        )
        sent = await tab.page.evaluate(
            "port => fetch(`http://127.0.0.1:${port}/`).then(() => true, () => false)", port
        )

        assert (sent, called) == (False, [])
        assert await tab.page.evaluate("window.hurt") is None
        assert "Content Security Policy" in " ".join(tab.said)


async def test_one_can_filter_order_and_stop_the_picture(show: Show, chromium: Open) -> None:
    async with chromium(show.address) as tab:
        await tab.has("batch-score")
        await tab.page.keyboard.press("/")
        await tab.page.keyboard.type("notebook")
        await tab.counts(".row", 1)
        await tab.page.keyboard.press("Escape")
        await tab.counts(".row", 6)
        await tab.page.select_option("#order", "refused")
        assert await tab.page.locator(".row b").first.inner_text() == "notebook-jana"

        await tab.page.click("#pause")
        show.containers = []
        show.look()
        await tab.state("paused")
        await tab.page.wait_for_timeout(300)
        assert await tab.page.locator(".row").count() == 6
        await tab.page.click("#pause")
        await tab.has("No container has a GPU of this node.")
        quiet(tab)


async def test_an_agent_that_goes_and_comes_back_is_shown_as_that(
    show: Show, chromium: Open
) -> None:
    async with chromium(show.address) as tab:
        await tab.state("live")

        await show.stop()
        await tab.state("no answer since")
        assert await tab.page.locator("#all.old").count() == 1
        await show.start()
        show.look()

        await tab.state("live")
        assert await tab.page.locator("#all.old").count() == 0
        assert tab.strangers() == set()


async def test_the_age_of_the_picture_is_told_when_the_agent_hangs(
    show: Show, chromium: Open
) -> None:
    async with chromium(show.address) as tab:
        await tab.state("live")

        await tab.state("picture is 3 s old")  # it is connected, and nothing comes
        show.look()

        await tab.state("live")
        quiet(tab)


async def test_refusals_and_placements_say_which_pod_when_and_what(
    show: Show, chromium: Open
) -> None:
    show.events.refused(claimant("greedy"), "asks for 200 blocks")
    async with chromium(show.address) as tab:
        await tab.has("team/greedy/main refused: asks for 200 blocks")
        await tab.has("team/batch-score/main placed on GPU 1 (fullest GPU that still fits:")
        assert await tab.page.locator("#events time >> nth=0").inner_text() == "21 Sept, 14:35:00"

        await tab.page.fill("#search", "greedy")
        await tab.counts("#events li", 1)
        quiet(tab)


async def test_a_page_shows_what_it_has_seen_where_the_agent_keeps_nothing(
    show: Show, chromium: Open
) -> None:
    async with chromium(show.address, empty="**/api/history") as tab:
        await tab.has("train-resnet")
        for _ in range(3):
            show.look(4)
            await tab.says("#state", "live")
            await tab.page.wait_for_timeout(1100)

        drawn = "document.querySelector('.spark .got').getAttribute('d').split('L').length"
        assert await tab.page.evaluate(drawn) >= 3
        quiet(tab)


async def test_a_clock_that_is_set_back_does_not_stop_the_charts(
    show: Show, chromium: Open
) -> None:
    async with chromium(show.address) as tab:
        await tab.has("train-resnet")
        show.at -= 3600
        for _ in range(3):
            show.look()
            await tab.page.wait_for_timeout(1200)

        points = "document.querySelector('.spark .got').getAttribute('d').split('L').length"
        assert 2 <= await tab.page.evaluate(points) <= 4


async def test_it_can_be_read_aloud(show: Show, chromium: Open) -> None:
    async with chromium(show.address) as tab:
        await tab.has("batch-score")

        assert await tab.page.locator("h1").count() == 1
        unnamed = """all => all.filter(one => !(one.getAttribute("aria-label") || one.title
            || one.textContent.trim())).map(one => one.outerHTML.slice(0, 80))"""
        named = "svg[role=img], input, select, button, article"
        assert await tab.page.eval_on_selector_all(named, unnamed) == []
        assert await tab.page.get_attribute("html", "lang") == "en"
        chart = await tab.page.get_attribute("svg.stack >> nth=0", "aria-label")
        assert chart is not None
        assert "% now" in chart


async def test_a_node_without_a_driver_says_so(show: Show, chromium: Open) -> None:
    show.answered, show.reason = False, "waiting for a GPU: no driver"
    show.look()
    async with chromium(show.address, PHONE) as tab:
        await tab.has("NVML does not respond")
        await tab.has("not ready: waiting for a GPU: no driver")

        assert await tab.overhang() == 0
        quiet(tab)


async def test_many_containers_with_long_names_fit_on_a_phone(show: Show, chromium: Open) -> None:
    show.containers = [
        container(f"{number}-" + "x" * 240, device(show.gpus[number % 4], 1), name="y" * 63)
        for number in range(64)
    ]
    show.look()
    async with chromium(show.address, PHONE) as tab:
        await tab.has("63-xxx")

        assert await tab.overhang() == 0
        assert await tab.page.locator(".row").count() == 64
        quiet(tab)
