"""Scripts about graphs (graph_client.py) on the simulated driver."""

from tests.native.sim_box import SimBox


def told(box: SimBox, script: str) -> list[str]:
    """What the script prints, line by line."""
    return box.python("from tests.native.programs.graph_client import *\n" + script).splitlines()
