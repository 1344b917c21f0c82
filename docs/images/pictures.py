"""Which picture shows what, when it was taken, and of which content: `pictures.json`.

A picture is older than its page when the page's digest is not the one that was noted beside it; a
test says so.
"""

import hashlib
import json
import time
from pathlib import Path
from typing import Any, Final

from gpumanager.view.page import web_page

HERE: Final = Path(__file__).parent
NOTES: Final = HERE / "pictures.json"
BOARDS: Final = HERE.parents[1] / "charts/gpu-manager/dashboards"
PAGES: Final = {
    "web.png": "node",
    "web-dark.png": "node",
    "web-phone.png": "node",
    "web-cluster.png": "cluster",
}
DASHBOARDS: Final = {
    "dashboard-cluster.png": "cluster.json",
    "dashboard-node.png": "node.json",
    "dashboard-workload.png": "workload.json",
}


def shown(picture: str) -> str:
    """Digest of the page or the dashboard that it is a picture of, as that is now."""
    page = PAGES.get(picture)
    return _digest(web_page(page).body if page else (BOARDS / DASHBOARDS[picture]).read_bytes())


def notes() -> dict[str, dict[str, str]]:
    found: dict[str, Any] = json.loads(NOTES.read_text())
    return found


def note(*pictures: str) -> None:
    """These were taken just now."""
    day = time.strftime("%Y-%m-%d")
    taken = {
        one: {"taken": day, "picture": _digest((HERE / one).read_bytes()), "shows": shown(one)}
        for one in pictures
    }
    known = notes() if NOTES.exists() else {}
    NOTES.write_text(json.dumps(known | taken, indent=2, sort_keys=True) + "\n")


def stale() -> list[str]:
    """What is wrong with each picture that is; a sentence each."""
    known = notes()
    wrong = [f"{one}: not in {NOTES.name}" for one in {*PAGES, *DASHBOARDS} - set(known)]
    for name, row in known.items():
        if row["shows"] != shown(name):
            wrong.append(f"{name}: taken on {row['taken']}, and what it shows has changed since")
        if row["picture"] != _digest((HERE / name).read_bytes()):
            wrong.append(f"{name}: not the picture that was noted on {row['taken']}")
    return sorted(wrong)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
