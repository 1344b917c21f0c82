"""Pictures of the dashboards: recorded data, a real Prometheus, and Grafana's own components.

    python docs/images/make_dashboards.py [--keep FOLDER] [--browser PATH]

The data are those of dashboard_data.py: three hours of a made-up cluster. Prometheus answers the
queries of the dashboards' files, and Grafana's components from npm draw the panels in Chromium,
with its own transformations, units and overrides (grafana/boards.jsx). Only what surrounds the
panels is ours. Needs the extra `browser`, a Chromium, npm, prometheus and promtool
(tests/dashboards/prometheus_programs.py).
"""

import argparse
import asyncio
import contextlib
import json
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).resolve().parent
ROOT: Final = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT)]

from dashboard_answers import Prometheus  # noqa: E402
from dashboard_data import END, SECONDS, STEP, write  # noqa: E402
from pictures import note  # noqa: E402

from tests.dashboards import prometheus_programs  # noqa: E402
from tests.dashboards.chart_files import RULES, alerts  # noqa: E402

SHOWN: Final = {
    "cluster": {},
    "node": {"node": "gpu-node-1", "gpu": ".*"},
    "workload": {"namespace": "vision", "pod": "labels-eval", "container": ".*"},
}
PASSES: Final = 3
"""Rules are built on rules, so deep."""
EMPTY: Final = '<body style="margin:0"><div id="board"></div></body>'
RECORDING: Final = next(path for path in RULES if path.name == "recording.yaml")


def recorded(folder: Path) -> None:
    """Prometheus' storage with the data, what the rules record, and the alerts that fire."""
    promtool = prometheus_programs.build("promtool")
    write(folder, promtool)
    making = (promtool, "tsdb", "create-blocks-from")
    for _ in range(PASSES):
        with server(folder, {}) as one:
            times = ("--start", str(END - SECONDS), "--end", str(END), "--eval-interval", "1m")
            into = ("--url", one.url, "--output-dir", folder / "data")
            subprocess.run([*making, "rules", *times, *into, RECORDING], check=True)
    with server(folder, {}) as one:
        lines = [
            f"{series} 1 {now}\n"
            for series in sorted(firing(one))
            for now in range(END - 10 * STEP, END + 1, STEP)
        ]
    (folder / "alerts.txt").write_text("".join([*lines, "# EOF\n"]))
    subprocess.run([*making, "openmetrics", folder / "alerts.txt", folder / "data"], check=True)


def firing(one: Prometheus) -> Iterator[str]:
    """As Prometheus records alerts; those that ask for something that is there at the end."""
    for alert in alerts():
        for labels in one.instant(alert["expr"]):
            own = {"alertname": alert["alert"], "alertstate": "firing", **alert["labels"]}
            every = {key: text for key, text in (labels | own).items() if key != "__name__"}
            words = ",".join(f"{key}={json.dumps(every[key])}" for key in sorted(every))
            yield f"ALERTS{{{words}}}"


@contextlib.contextmanager
def server(folder: Path, chosen: Mapping[str, str]) -> Iterator[Prometheus]:
    quiet = folder / "quiet.yaml"
    quiet.write_text("scrape_configs: []\n")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    words = (f"--config.file={quiet}", f"--storage.tsdb.path={folder / 'data'}",
             f"--web.listen-address={address}", "--storage.tsdb.retention.time=100y",
             "--log.level=error")  # fmt: skip
    with subprocess.Popen([prometheus_programs.build("prometheus"), *words]) as process:
        found = Prometheus(f"http://{address}", END - SECONDS, END, 60, chosen)
        try:
            found.wait()
            yield found
        finally:
            process.terminate()


def bundle() -> Path:
    """The page's script, built where it is missing or older than its source."""
    folder = prometheus_programs.cache() / "grafana"
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "boards.jsx"):
        shutil.copy(HERE / "grafana" / name, folder / name)
    quiet = ("--no-audit", "--no-fund", "--legacy-peer-deps", "--ignore-scripts")
    if not (folder / "node_modules").is_dir():
        subprocess.run(["npm", "install", *quiet], cwd=folder, check=True)
    subprocess.run(["npm", "run", "build"], cwd=folder, check=True)
    return folder


async def draw(folder: Path, browser: str) -> None:
    """One picture of each dashboard. folder: as `recorded` left it."""
    from playwright.async_api import async_playwright

    built = bundle()
    async with async_playwright() as driver:
        chromium = await driver.chromium.launch(executable_path=browser)
        page = await chromium.new_page(viewport={"width": 1480, "height": 900}, timezone_id="UTC")
        html = {"body": EMPTY, "content_type": "text/html"}
        await page.route("http://boards/", lambda route: route.fulfill(**html))
        page.on("pageerror", lambda error: print(error, file=sys.stderr))
        for name, chosen in SHOWN.items():
            board = json.loads((ROOT / f"charts/gpu-manager/dashboards/{name}.json").read_text())
            with server(folder, chosen) as one:
                answers = {panel["id"]: one.answers(panel) for panel in board["panels"]}
            await page.goto("http://boards/")
            await page.add_style_tag(path=built / "boards.css")
            await page.add_script_tag(path=built / "boards.js")
            times = {"from": END - SECONDS, "to": END}
            given: Any = {"board": board, "answers": answers, "chosen": chosen, **times}
            await page.evaluate("given => window.draw(given)", given)
            await page.wait_for_timeout(1500)
            path = f"dashboard-{name}.png"
            await page.locator("#board > div").screenshot(path=HERE / path)
            note(path)
            print(path)
        await chromium.close()


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("--keep", type=Path, help="record into this folder, or use what is there")
    words.add_argument("--browser", default=shutil.which("chromium"), help="a Chromium")
    given = words.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder: Path = given.keep or Path(made)
        if not (folder / "alerts.txt").is_file():
            folder.mkdir(parents=True, exist_ok=True)
            recorded(folder)
        asyncio.run(draw(folder, given.browser))


if __name__ == "__main__":
    main()
