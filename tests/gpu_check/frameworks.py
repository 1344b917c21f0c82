"""Where Python finds the stand-ins for PyTorch, Triton and others, and what they are made of."""

import importlib.util
from pathlib import Path

from gpu_check.bench import WORKLOADS

FRAMEWORKS = (Path(__file__).parent / "standins", WORKLOADS)
PYTEST = ("pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments", "py")


def link_pytest(folder: Path) -> Path:
    """A folder for Python's path with pytest and what it needs, and with no other package."""
    folder.mkdir()
    for name in PYTEST:
        found = importlib.util.find_spec(name)
        assert found is not None
        assert found.origin is not None
        origin = Path(found.origin)
        source = origin.parent if found.submodule_search_locations else origin
        (folder / source.name).symlink_to(source)
    return folder
