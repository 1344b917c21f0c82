"""Who may import whom, read from the code: the drawing in docs/architecture.md, enforced."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from gpumanager.cli import COMMANDS

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "gpumanager"

VALUES = {"names", "ids", "units", "errors", "supervisor", "gpu", "placement"}
MAY_IMPORT = {
    "names": set[str](),
    "ids": set[str](),
    "units": set[str](),
    "errors": set[str](),
    "supervisor": set[str](),
    "settings": {"names", "units"},
    "http_server": {"errors"},
    "grpc_wire": set[str](),
    "gpu": {"units", "errors", "names"},
    "placement": {"gpu", "units", "errors"},
    "grants": {"gpu", "ids", "names", "placement", "units", "errors"},
    "compute": {"gpu"},
    "volume": VALUES,
    "kube": VALUES,
    "kubelet": VALUES | {"grpc_wire", "kube"},
    "limits": VALUES | {"compute"},
    "runtime": VALUES | {"grpc_wire", "kube", "kubelet", "limits"},
    "node_status": VALUES | {"kube", "grants"},
    "isolation": VALUES | {"grants", "limits", "volume"},
    "deviceplugin": VALUES
    | {"grpc_wire", "grants", "isolation", "kube", "kubelet", "runtime", "limits"},
    "dra": VALUES | {"grpc_wire", "grants", "isolation", "kube", "limits", "runtime"},
    "legacy": VALUES | {"grpc_wire", "grants", "isolation", "limits", "deviceplugin"},
    "doctor": VALUES,
    "view": {"gpu", "units", "errors", "names"},
    "scheduler": VALUES | {"http_server", "kube", "view"},
    "monitor": VALUES
    | {"http_server", "kube", "kubelet", "runtime", "limits", "grants"}
    | {"isolation", "view"},
    "agent": VALUES
    | {"deviceplugin", "dra", "grants", "grpc_wire", "isolation", "kube", "kubelet", "legacy"}
    | {"limits", "monitor", "node_status", "runtime", "settings", "volume"},
    "sim": VALUES
    | {
        "http_server",
        "volume",
        "limits",
        "kube",
        "kubelet",
        "runtime",
        "grants",
        "deviceplugin",
        "dra",
    },
}
"""What each package may import of ours, besides itself. `cli` and `__main__` may import all."""

SHOWN = VALUES | {"cli", "settings", "view"}
CONTROL_PLANE = VALUES | {"cli", "settings", "kube", "scheduler", "http_server", "view.page"}
LOADS = {
    "doctor": SHOWN
    | {"agent.host", "doctor", "dra", "grants", "grpc_wire", "isolation", "kube", "kubelet"}
    | {"node_status", "runtime", "volume"},
    "explain": SHOWN | {"doctor", "dra", "grpc_wire", "kube", "kubelet"},
    "extender": CONTROL_PLANE,
    "kubectl_plugin": VALUES | {"cli"},
    "plan": VALUES | {"cli"},
    "probe": VALUES | {"cli"},
    "replay": VALUES | {"cli", "sim"},
    "top": SHOWN | {"doctor"},
    "tree": SHOWN | {"doctor"},
    "version": VALUES | {"cli"},
    "webhook": CONTROL_PLANE,
}
"""What each command may load of ours before it runs. `agent` and `simulate` load the node agent."""

OWNERS = {
    "grpc": {"grpc_wire", "deviceplugin", "dra", "kubelet", "runtime", "legacy", "monitor", "sim"},
    "pynvml": {"gpu"},
    "kubernetes": {"kube", "sim"},
    "prometheus_client": {"monitor", "scheduler"},
    "aiohttp": {"http_server", "kube", "kubelet", "monitor", "scheduler", "sim"},
    "elftools": {"volume"},
    "msgspec": {"kubelet", "scheduler", "view"},
    "vcuda_shim": {"limits", "agent", "sim", "cli"},
    "cffi": set[str](),
    "cryptography": {"scheduler"},
    "click": {"cli"},
    "rich": {"cli", "view"},
    "textual": {"cli"},
}
"""Which packages may import a third party's."""


def modules() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py") if not path.name.endswith("_pb2.py"))


def part_of(path: Path, package: Path = PACKAGE) -> str:
    """The package a module belongs to: the first name below `gpumanager`."""
    return path.relative_to(package).parts[0].removesuffix(".py")


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def violations(path: Path, package: Path = PACKAGE) -> list[str]:
    part = part_of(path, package)
    if part in {"cli", "__main__", "__init__"}:
        return []
    found = []
    for name in imports(path):
        top, _, rest = name.partition(".")
        ours = rest.partition(".")[0]
        if ours == "__version__":
            continue
        if top == "gpumanager" and ours and ours != part and ours not in MAY_IMPORT[part]:
            found.append(f"{path.relative_to(package)} imports {name}")
        if top in OWNERS and part not in OWNERS[top]:
            found.append(f"{path.relative_to(package)} imports {name}")
    return found


def test_a_module_imports_only_what_lies_below_it() -> None:
    assert [found for path in modules() for found in violations(path)] == []


LIST_LOADED = """
import importlib, sys
sys.modules["vcuda_shim._shim"] = None  # as on a machine without the node's native module
importlib.import_module("gpumanager.cli." + sys.argv[1])
print(*(name for name, module in sys.modules.items() if module and name.startswith("gpumanager.")))
"""


@pytest.mark.parametrize("command", sorted(LOADS))
def test_a_command_loads_only_what_it_needs(command: str) -> None:
    line = [sys.executable, "-c", LIST_LOADED, command]
    loaded = subprocess.run(line, check=True, capture_output=True, text=True).stdout.split()

    allowed = {f"gpumanager.{name}" for name in LOADS[command]}
    packages = {name for name in allowed if name.count(".") == 1}
    inside = {name for name in allowed if name.count(".") > 1}
    parents = {name.rpartition(".")[0] for name in inside}
    assert len(loaded) > 2
    assert [
        name
        for name in loaded
        if not name.startswith("gpumanager.cli")
        and ".".join(name.split(".")[:2]) not in packages
        and name not in inside | parents
    ] == []


def test_every_command_has_its_row() -> None:
    assert {*LOADS, "agent", "simulate"} == {*COMMANDS, "kubectl_plugin"}


def test_every_package_has_its_row_in_the_table() -> None:
    assert {part_of(path) for path in modules()} <= {*MAY_IMPORT, "cli", "__main__", "__init__"}


@pytest.mark.parametrize(
    ("part", "line"),
    [
        ("placement", "from gpumanager.grants import journal"),
        ("grants", "import gpumanager.sim"),
        ("grants", "from gpumanager.kube import pod"),
        ("limits", "from gpumanager.legacy import sockets"),
        ("agent", "from gpumanager.cli import logs"),
        ("scheduler", "from gpumanager.grants import ledger"),
        ("volume", "from gpumanager import cli"),
        ("placement", "import grpc"),
        ("grants", "from pynvml import nvmlInit"),
        ("grants", "from gpumanager.isolation import table"),
        ("isolation", "from gpumanager.deviceplugin import device_ids"),
        ("deviceplugin", "from gpumanager.legacy import checkpoint"),
        ("dra", "from gpumanager.deviceplugin import allocator"),
        ("monitor", "from gpumanager.deviceplugin import allocator"),
    ],
)
def test_a_wrong_import_is_found(part: str, line: str, tmp_path: Path) -> None:
    planted = tmp_path / part / "planted.py"
    planted.parent.mkdir()
    planted.write_text(line + "\n")

    assert violations(planted, tmp_path) != []


def classes(path: Path) -> list[str]:
    return [one.name for one in parsed(path).body if isinstance(one, ast.ClassDef)]


def test_a_public_class_name_stands_for_one_class() -> None:
    found: dict[str, list[str]] = {}
    for path in modules():
        for name in classes(path):
            if not name.startswith("_"):
                found.setdefault(name, []).append(str(path.relative_to(ROOT)))

    assert len(found) > 500
    assert {name: where for name, where in found.items() if len(where) > 1} == {}


LOGS = {"debug", "info", "warning", "error", "exception", "critical"}
BANNED = re.compile(
    r"\b(?:promis(?:e|es|ed|ing)|settle[ds]?|doubt(?:ed|ful)?|strangers|the dead)\b"
    r"|\b(?:glance[ds]?|lends|foresight|surroundings)\b|(?:^|\.\s+)Who(?:m|se)?\b"
)
"""Words of ours instead of the field's: write grant, guarantee, confirm, suspect, unknown process,
exited process, poll, lending; and name what does it instead of "who"."""


def expected_guard(header: Path, native: Path = ROOT / "native") -> str:
    """A header's path below native/ (of shared ones below native/include/), in capitals."""
    below = header.relative_to(native).as_posix().removeprefix("include/")
    return re.sub(r"\W", "_", below).upper()


def test_an_include_guard_is_the_header_s_path() -> None:
    """But of cffi.h, which only cffi reads, once."""
    headers = [path for path in (ROOT / "native").rglob("*.h") if path.name != "cffi.h"]
    guards = {
        path: re.findall(r"^#ifndef (\w+)\n#define \1$", path.read_text(), re.MULTILINE)
        for path in headers
    }

    assert headers
    assert {p: found for p, found in guards.items() if found[:1] != [expected_guard(p)]} == {}


def texts(path: Path) -> Iterator[str]:
    """Docstrings, and the literals of log lines."""
    for node in ast.walk(parsed(path)):
        match node:
            case ast.Expr(ast.Constant(str(text))):
                yield text
            case ast.Call(
                ast.Attribute(ast.Name("log" | "logger"), name), [ast.Constant(text), *_]
            ):
                if name in LOGS:
                    yield str(text)


def test_docstrings_and_log_lines_use_the_field_s_words() -> None:
    found = [(str(path.relative_to(ROOT)), text) for path in modules() for text in texts(path)]

    assert len(found) > 3000
    assert [(path, word) for path, text in found for word in BANNED.findall(text)] == []


def test_a_wrong_word_is_found(tmp_path: Path) -> None:
    planted = tmp_path / "planted.py"
    planted.write_text('"""Pods. Who comes late waits."""\nlog.info("%s was promised", 1)\n')

    assert [word for text in texts(planted) for word in BANNED.findall(text)] == [
        ". Who",
        "promised",
    ]
