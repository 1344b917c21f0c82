"""Pictures of the dashboards: a small simulated cluster, read by a real Prometheus, then drawn.

    python docs/images/make_dashboards.py record FOLDER [--minutes 13]
    python docs/images/make_dashboards.py draw FOLDER

Needs the extra `pictures`, and Prometheus (tests/dashboards/prometheus_programs.py). Panels,
queries, places and limits are those of the dashboards' files; each query is answered by Prometheus.
Only the drawing is ours and not Grafana's.
"""

import argparse
import asyncio
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

SHOWN = {
    "cluster": {},
    "node": {"node": "gpu-node-1", "gpu": ".*"},
    "workload": {"namespace": "vision", "pod": ".*", "container": ".*"},
}


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("what", choices=("record", "draw"))
    words.add_argument("folder", type=Path)
    words.add_argument("--minutes", type=float, default=13)
    given = words.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    from dashboard_scene import record

    from tests.dashboards import prometheus_programs

    program = prometheus_programs.build("prometheus")
    if given.what == "record":
        asyncio.run(record(program, given.folder.resolve(), 60 * given.minutes))
    else:
        from dashboard_drawing import draw

        draw(program, given.folder.resolve(), SHOWN, Path(__file__).parent)


if __name__ == "__main__":
    main()
