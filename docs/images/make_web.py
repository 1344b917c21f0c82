"""Pictures of the web pages, taken in Chromium from recorded looks, so that they never differ.

    python docs/images/make_web.py [--browser PATH]

The agent's page shows the node of tests/monitor/node_show.py: eight GPUs and five minutes of
made-up looks at their containers. The extender's shows the cluster of tests/web/cluster_show.py.
Needs the extra `browser` and a Chromium.
"""

import argparse
import asyncio
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, async_playwright

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]
PHONE = {"width": 360, "height": 900}
DESK = {"width": 1180, "height": 1000}


async def shots(browser: Browser, address: str, rows: Sequence[tuple[str, Any, Any]]) -> None:
    """rows: name of the file, size of the window, colour scheme."""
    for name, size, scheme in rows:
        page = await browser.new_page(
            viewport=size, color_scheme=scheme, device_scale_factor=2, reduced_motion="reduce"
        )
        await page.goto(address)
        await page.wait_for_selector("#state.good")
        await page.screenshot(path=HERE / name)
        await page.close()
        print(name)


async def main(words: Sequence[str] | None = None) -> None:
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("--browser", default=shutil.which("chromium"), help="a Chromium")
    options = arguments.parse_args(words)
    from pictures import note

    from tests.monitor.node_show import busy_node, served
    from tests.web.cluster_show import cluster

    async with async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=options.browser)
        async with cluster(60, every=1) as extender:
            rows = [("web-cluster.png", DESK, "light")]
            await shots(browser, f"http://127.0.0.1:{extender.port}/", rows)
        async with served(busy_node(gpus=8)) as agent:
            rows = [
                ("web.png", DESK, "light"),
                ("web-dark.png", DESK, "dark"),
                ("web-phone.png", PHONE, "dark"),
            ]
            await shots(browser, agent.address, rows)
        await browser.close()
    note("web-cluster.png", "web.png", "web-dark.png", "web-phone.png")


if __name__ == "__main__":
    asyncio.run(main())
