"""Draw a dashboard's panels where the file says, with what Prometheus answers.

In points of the screen: 24 columns across, rows of 30 with gaps of 8, as Grafana has it.
"""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
from dashboard_answers import Panel, Prometheus, Series
from dashboard_panels import PAINTERS, Canvas
from dashboard_scene import free_port, prometheus
from dashboard_scheduling import started
from matplotlib.figure import Figure

ROOT: Final = Path(__file__).resolve().parents[2]
WIDTH: Final = 1480
MARGIN: Final = 12
HEAD: Final = 64
ROW: Final = 38
GAP: Final = 8
DPI: Final = 130
SECONDS: Final = 660
STEP: Final = 10

GROUND: Final = "#111217"
PANEL: Final = "#181b1f"
EDGE: Final = "#2a2d33"
TEXT: Final = "#d5d6dc"
FAINT: Final = "#8e909a"


def draw(
    program: Path, folder: Path, shown: Mapping[str, Mapping[str, str]], pictures: Path
) -> None:
    """folder: as `record` left it. shown: by dashboard, the values of its variables."""
    asyncio.run(_draw(program, folder, shown, pictures))


async def _draw(
    program: Path, folder: Path, shown: Mapping[str, Mapping[str, str]], pictures: Path
) -> None:
    end = float((folder / "end").read_text())
    quiet = folder / "quiet.yaml"
    quiet.write_text("scrape_configs: []\n")
    port = free_port()
    async with started(*prometheus(program, quiet, folder / "data", port)):
        for name, chosen in shown.items():
            server = Prometheus(f"http://127.0.0.1:{port}", end - SECONDS, end, STEP, chosen)
            await asyncio.to_thread(server.wait)
            path = pictures / f"dashboard-{name}.png"
            await asyncio.to_thread(_board, name, server, path)
            print(path)


def _board(name: str, server: Prometheus, path: Path) -> None:
    file = ROOT / f"charts/gpu-manager/dashboards/{name}.json"
    board = json.loads(file.read_text())
    panels = [one for one in board["panels"] if one["gridPos"]]
    deepest = max(one["gridPos"]["y"] + one["gridPos"]["h"] for one in panels)
    height = HEAD + deepest * ROW + MARGIN
    with mpl.rc_context({"font.family": "DejaVu Sans", "font.size": 9.5}):
        figure = Figure(figsize=(WIDTH / 100, height / 100), facecolor=GROUND)
        canvas = Canvas(figure, WIDTH, height)
        _head(canvas, board, server.chosen)
        for panel in panels:
            _panel(canvas, panel, server)
        figure.savefig(path, dpi=DPI, facecolor=GROUND)


def _head(canvas: Canvas, board: Mapping[str, Any], chosen: Mapping[str, str]) -> None:
    canvas.text(MARGIN + 4, 26, board["title"], size=14, weight="bold")
    left = MARGIN + 4
    for variable in board["templating"]["list"]:
        value = chosen.get(variable["name"], "Prometheus")
        label, value = variable["label"], "All" if value == ".*" else value
        width = canvas.width_of(label, 9) + canvas.width_of(value, 9) + 26
        canvas.box(left, 38, width, 22, PANEL, EDGE)
        canvas.text(left + 8, 53, label, size=9, color=FAINT)
        canvas.text(left + 16 + canvas.width_of(label, 9), 53, value, size=9)
        left += width + 8
    canvas.text(WIDTH - MARGIN - 4, 53, f"Last {SECONDS // 60} minutes", size=9, right=True)


def _panel(canvas: Canvas, panel: Panel, server: Prometheus) -> None:
    at = panel["gridPos"]
    column = (WIDTH - 2 * MARGIN + GAP) / 24
    x, y = MARGIN + at["x"] * column, HEAD + at["y"] * ROW
    width, height = at["w"] * column - GAP, at["h"] * ROW - GAP
    if panel["type"] == "row":
        mark = "\u25b8" if panel["collapsed"] else "\u25be"
        folded = f"   ({len(panel['panels'])} panels)" if panel["collapsed"] else ""
        canvas.text(x + 4, y + 21, f"{mark}  {panel['title']}", size=11, weight="bold")
        canvas.text(x + 40 + canvas.width_of(panel["title"], 11), y + 21, folded, color=FAINT)
        return
    canvas.box(x, y, width, height, PANEL, EDGE)
    canvas.text(x + 10, y + 20, panel["title"], size=10)
    series: tuple[Series, ...] = server.series(panel)
    if not series:
        canvas.text(x + width / 2, y + height / 2 + 8, "No data", color=FAINT, middle=True)
        return
    PAINTERS[panel["type"]](canvas, panel, series, (x + 10, y + 32, width - 20, height - 40))
