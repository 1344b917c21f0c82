"""Build a kubelet, an API server, a scheduler and the controllers of one version, once, outside the
checkout.

    python tests/e2e/node/node_programs.py 1.36.2

A small module pins `k8s.io/kubernetes` and, at the matching version, the modules it is made of; the
Go module proxy has them all. Programs already built elsewhere are taken from GPUMANAGER_E2E_BIN.
A build that takes too long is given up; Go keeps what it compiled, so that the next one goes on.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

PROGRAMS: Final = ("kubelet", "kube-apiserver", "kube-scheduler")
CONTROLLERS: Final = "kube-controller-manager"
FIRST_WITH_CLAIMS: Final = (1, 36)
"""Before, no device can be shared by claims, and nothing here needs a controller."""
DEFAULT: Final = "1.36.2"
NEWEST_SEEN: Final = {"1.36": DEFAULT, "1.37": "1.37.2"}
"""Of minor versions: the patch that is meant by the minor version alone."""
OLDEST: Final = (1, 30)
"""Before, a generated source file that the API server needs is not part of the module."""

MODULE: Final = "k8s.io/kubernetes"
STAMP: Final = "k8s.io/component-base/version"
SECONDS: Final = "GPUMANAGER_E2E_BUILD_SECONDS"
IMAGE: Final = "GPUMANAGER_E2E_IMAGE"
"""Names an archive of `make release`, which the pods of the chart then run."""
DEFAULT_SECONDS: Final = 3600.0


class CannotBuild(Exception):
    """No programs, and why: one sentence for who asked for them."""


def cache() -> Path:
    """Where built programs are kept."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("GPUMANAGER_E2E_CACHE") or home / "gpumanager-e2e")


def wanted() -> str:
    """The version asked for by GPUMANAGER_E2E_VERSION, without `v`."""
    asked = (os.environ.get("GPUMANAGER_E2E_VERSION") or DEFAULT).removeprefix("v")
    return NEWEST_SEEN.get(asked, asked)


def programs(version: str) -> Path:
    """The folder with the programs of a version, built or not."""
    given = os.environ.get("GPUMANAGER_E2E_BIN")
    return Path(given) if given else cache() / "bin" / version


def has(folder: Path, name: str) -> bool:
    return os.access(folder / name, os.X_OK)


def build(version: str, names: Sequence[str] = PROGRAMS) -> Path:
    """The folder with the programs, which are built where they are missing. Raises CannotBuild."""
    folder = programs(version)
    if not (lacking := [name for name in names if not has(folder, name)]):
        return folder
    if "GPUMANAGER_E2E_BIN" in os.environ:
        raise CannotBuild(f"GPUMANAGER_E2E_BIN={folder} has no {', '.join(lacking)}")
    if minor(version) < OLDEST:
        raise CannotBuild(f"{version} is too old to be built here: name its programs' folder")
    if shutil.which("go") is None:
        raise CannotBuild("building Kubernetes needs go in PATH")
    go = Go(cache() / "module" / version, float(os.environ.get(SECONDS, DEFAULT_SECONDS)))
    _pin(go, version)
    folder.mkdir(parents=True, exist_ok=True)
    for name in lacking:
        _build_one(go, name, folder, version)
    return folder


def build_node(version: str) -> Path:
    """All that a node of this version can have. Of a folder built elsewhere the version is not
    known: without a controller manager there, claims are not tried. Raises CannotBuild."""
    claims = minor(version) >= FIRST_WITH_CLAIMS and "GPUMANAGER_E2E_BIN" not in os.environ
    return build(version, (*PROGRAMS, CONTROLLERS) if claims else PROGRAMS)


def minor(version: str) -> tuple[int, ...]:
    """Major and minor, as of `1.36.2`."""
    return tuple(map(int, version.split(".")[:2]))


class Go:
    """Go's commands in one module, all of them together within a time."""

    def __init__(self, module: Path, seconds: float) -> None:
        self.module = module
        self._seconds = seconds
        self._until = time.monotonic() + seconds

    def run(self, *words: str, **environment: str) -> str:
        """What it prints; raises CannotBuild."""
        try:
            ran = subprocess.run(
                ["nice", "-n", "19", "go", *words],
                check=False,
                capture_output=True,
                text=True,
                cwd=self.module,
                timeout=max(0.0, self._until - time.monotonic()),
                env=os.environ | {"CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false"} | environment,
            )
        except subprocess.TimeoutExpired:
            raise CannotBuild(
                f"go {words[0]}: not within {self._seconds:g} s ({SECONDS})"
            ) from None
        if ran.returncode != 0:
            raise CannotBuild(f"go {words[0]}: {ran.stderr.strip()[-800:]}")
        return ran.stdout


def _pin(go: Go, version: str) -> None:
    """A go.mod that requires Kubernetes and says where its parts, which it calls v0.0.0, are."""
    go.module.mkdir(parents=True, exist_ok=True)
    description = go.module / "go.mod"
    description.write_text("module node\n")
    found = json.loads(go.run("mod", "download", "-json", f"{MODULE}@v{version}"))
    described = json.loads(go.run("mod", "edit", "-json", found["GoMod"]))
    parts = [one["Path"] for one in described["Require"] if one["Version"] == "v0.0.0"]
    lines = [
        "module node",
        f"go {described['Go']}",
        f"require {MODULE} v{version}",
        *(f"replace {part} => {part} v0.{version.partition('.')[2]}" for part in parts),
    ]
    description.write_text("\n".join(lines) + "\n")


def _build_one(go: Go, name: str, folder: Path, version: str) -> None:
    stamps = {"gitVersion": f"v{version}", "gitMajor": "1", "gitMinor": version.split(".")[1]}
    flags = " ".join(f"-X {STAMP}.{field}={value}" for field, value in stamps.items())
    print(f"building {name} {version}", flush=True)
    built = folder / f".{name}"
    go.run(
        *("build", "-mod=mod", "-trimpath", "-ldflags", f"-s -w {flags}", "-o", str(built)),
        f"{MODULE}/cmd/{name}",
    )
    built.rename(folder / name)


if __name__ == "__main__":
    try:
        print(build_node(sys.argv[1] if sys.argv[1:] else wanted()))
    except CannotBuild as error:
        sys.exit(f"cannot build: {error}")
