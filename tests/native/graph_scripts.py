"""Scripts about graphs (graph_client.py) on the simulated driver."""

from pathlib import Path

from sim_box import SimBox

HERE = Path(__file__).resolve().parent


def told(box: SimBox, script: str) -> list[str]:
    """What the script prints, line by line."""
    return box.python("from graph_client import *\n" + script, PYTHONPATH=str(HERE)).splitlines()
