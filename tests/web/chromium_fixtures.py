"""A real Chromium, where there is one."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.web.browsing import SECONDS, Open, Tab, missing, program


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def chromium() -> AsyncIterator[Open]:
    """Opens tabs."""
    if reason := missing():
        pytest.skip(reason)
    from playwright.async_api import async_playwright

    async with async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=program())

        @contextlib.asynccontextmanager
        async def tab(
            origin: str, width: int = 1180, scheme: Any = "light", path: str = "", empty: str = ""
        ) -> AsyncIterator[Tab]:
            size: Any = {"width": width, "height": 900}
            page = await browser.new_page(
                viewport=size, color_scheme=scheme, reduced_motion="reduce"
            )
            page.set_default_timeout(SECONDS * 1000)
            found = Tab(page, origin)
            page.on("console", found.hear)
            page.on("pageerror", lambda error: found.said.append(str(error)))
            page.on("request", lambda request: found.asked.append(request.url))
            page.on("dialog", found.refuse)
            if empty:  # as an agent answers that has nothing there
                await page.route(empty, lambda route: route.fulfill(json=[]))
            await page.goto(origin + path)
            try:
                yield found
            finally:
                await page.close()

        yield tab
        await browser.close()
