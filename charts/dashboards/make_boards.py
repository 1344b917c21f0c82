"""Write the chart's dashboards; with --check only say which are not what this gives.

    python charts/dashboards/make_boards.py [--check]

They are made of tables, `cluster_board`, `node_board` and `workload_board`: change those.
"""

import json
import sys
from pathlib import Path
from typing import Final

import cluster_board
import node_board
import workload_board
from grafana_json import as_json

FOLDER: Final = Path(__file__).resolve().parent.parent / "gpu-manager/dashboards"
BOARDS: Final = {
    "cluster.json": cluster_board.BOARD,
    "node.json": node_board.BOARD,
    "workload.json": workload_board.BOARD,
}


def texts() -> dict[str, str]:
    """What each file has to hold."""
    return {name: json.dumps(as_json(one), indent=1) + "\n" for name, one in BOARDS.items()}


def stale() -> list[str]:
    wanted = texts()
    there = {path.name for path in FOLDER.glob("*.json")}
    differ = {name for name in there & wanted.keys() if (FOLDER / name).read_text() != wanted[name]}
    return sorted((there ^ wanted.keys()) | differ)


def main() -> int:
    if "--check" in sys.argv[1:]:
        for name in (wrong := stale()):
            sys.stderr.write(f"{FOLDER / name}: not what make_boards.py gives; run it\n")
        return bool(wrong)
    FOLDER.mkdir(exist_ok=True)
    for name, text in texts().items():
        (FOLDER / name).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
