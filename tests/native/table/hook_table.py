"""The tables of native/table and what was recorded of real drivers, for the tests about them."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from tests import ROOT

TABLE = ROOT / "native/table"
RECORDED = Path(__file__).with_name("recorded")


def load(name: str) -> ModuleType:
    """One of the modules of native/table, which is outside any package."""
    known = sys.modules.get(f"hook_{name}")
    if known is not None:
        return known
    spec = importlib.util.spec_from_file_location(f"hook_{name}", TABLE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[f"hook_{name}"] = module
    spec.loader.exec_module(module)
    return module


def recorded(name: str) -> list[list[str]]:
    """The lines of a recorded table, in words."""
    lines = (RECORDED / f"{name}.txt").read_text().splitlines()
    return [line.split() for line in lines if not line.startswith("#")]


def hooked(library: str) -> list[str]:
    """The functions of a library that the shim exports."""
    rows = load("generate").parse_table(TABLE / f"{library}.hooks")
    return [row.symbol for row in rows if row.exported]


def declared(library: str) -> set[str]:
    """The functions that any version of NVIDIA's headers of a library declares."""
    versions = load("headers").parse(TABLE / f"{library}.headers", load("census").expand)
    return {name for header in versions.values() for name in header.functions}


def unhooked(library: str) -> dict[str, str]:
    """The class of each symbol that the census of a library leaves to the driver."""
    classes = load("census").parse_census(TABLE / f"{library}.census")
    return {symbol: each.name for each in classes for symbol in each.symbols}
