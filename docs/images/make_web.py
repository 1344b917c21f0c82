"""Pictures of the web pages, taken in Chromium from a simulated node that runs the examples.

    python docs/images/make_web.py [--seconds N] [--browser PATH]

The node is a simulated DGX A100 with the real agent; the pods are those of examples/, run for as
long as the charts are wide instead of seconds, and one that comes later. Nothing on the pictures is
drawn by hand. The cluster is the one that tests/web looks at. Needs the extra `browser` and a
Chromium.
"""

import argparse
import asyncio
import contextlib
import re
import shutil
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, Page, async_playwright

from gpumanager.sim.machines import load_machine
from gpumanager.sim.manifest.pods import ContainerManifest, Pod, read_pods
from gpumanager.sim.node import SimulatedNode

HERE = Path(__file__).parent
EXAMPLES = HERE.parent.parent / "examples"
FIRST = ("thirty-and-sixty", "bursts-beside-training", "four-linked-gpus", "half-a-gpu")
LATER = ("two-containers", "impossible", "greedy-memory")
sys.path.insert(0, str(HERE.parents[1]))
PHONE = {"width": 360, "height": 900}
DESK = {"width": 1180, "height": 1000}


def stretched(pod: Pod, seconds: int) -> Pod:
    """Works for so long; who is done at once holds what it has."""
    return replace(pod, containers=tuple(_stretched(one, seconds) for one in pod.containers))


def _stretched(one: ContainerManifest, seconds: int) -> ContainerManifest:
    words = list(one.command)
    for place, word in enumerate(words):
        words[place] = re.sub(r"for=\d+s", f"for={seconds}s", word)
        if words[place - 1] == "--seconds":
            words[place] = str(seconds)
    if "--until-refused" in words:
        words += ["--hold", str(seconds)]
    return replace(one, command=tuple(words))


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("localhost", 0))
        return int(one.getsockname()[1])


@contextlib.asynccontextmanager
async def node(seconds: int) -> AsyncIterator[str]:
    """A simulated node at work for so long; its agent's address."""
    port = free_port()
    flags = {"query-port": port, "hostname-override": "gpu-node-7"}
    async with SimulatedNode(load_machine("dgx-a100"), agent_flags=flags) as one:
        running = [asyncio.create_task(run(one, FIRST, seconds + 60))]
        await asyncio.sleep(seconds / 3)
        running.append(asyncio.create_task(run(one, LATER, seconds + 60)))
        await asyncio.sleep(2 * seconds / 3)
        yield f"http://localhost:{port}/"
        one.kill_containers()
        await asyncio.gather(*running, return_exceptions=True)


async def run(one: SimulatedNode, names: Sequence[str], seconds: int) -> None:
    pods = read_pods([EXAMPLES / f"{name}.yaml" for name in names])
    await one.run([stretched(pod, seconds) for pod in pods])


async def take(page: Page, name: str) -> None:
    await page.wait_for_selector("#state.good")
    await page.wait_for_timeout(1500)
    await page.screenshot(path=HERE / name)
    print(name)


async def shots(browser: Browser, address: str, rows: Sequence[tuple[str, Any, Any]]) -> None:
    """rows: name of the file, size of the window, colour scheme."""
    for name, size, scheme in rows:
        page = await browser.new_page(viewport=size, color_scheme=scheme, device_scale_factor=2)
        await page.goto(address)
        await take(page, name)
        await page.close()


async def main(words: Sequence[str] | None = None) -> None:
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("--seconds", type=int, default=310, help="of history on the pictures")
    arguments.add_argument("--browser", default=shutil.which("chromium"), help="a Chromium")
    options = arguments.parse_args(words)
    from tests.web.cluster_show import cluster

    async with async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=options.browser)
        async with cluster(60) as served:
            rows = [("web-cluster.png", DESK, "light")]
            await shots(browser, f"http://127.0.0.1:{served.port}/", rows)
        async with node(options.seconds) as address:
            rows = [
                ("web.png", DESK, "light"),
                ("web-dark.png", DESK, "dark"),
                ("web-phone.png", PHONE, "dark"),
            ]
            await shots(browser, address, rows)
        await browser.close()


if __name__ == "__main__":
    asyncio.run(main())
