"""A real `helm`, where there is one: GPUMANAGER_HELM, PATH's, or the one `make chart` built."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

from tests import ROOT
from tests.e2e.node import node_programs

CHART: Final = ROOT / "charts" / "gpu-manager"
VERSION: Final = "3.22.0"
PACKAGE: Final = "helm.sh/helm/v3/cmd/helm"
VARIABLE: Final = "GPUMANAGER_HELM"
KUBERNETES: Final = "1.36.2"
"""The version of the cluster that goldens are for."""
SECONDS: Final = 600
MISSING: Final = f"no helm: install helm 3, name one in {VARIABLE}, or run `make chart`"


def built() -> Path:
    return node_programs.cache() / "bin" / f"helm-{VERSION}" / "helm"


@cache
def found() -> Path | None:
    """A helm that runs here."""
    named = os.environ.get(VARIABLE) or shutil.which("helm")
    places = (*((Path(named),) if named else ()), built())
    return next((one for one in places if os.access(one, os.X_OK)), None)


def build() -> Path:
    """The helm there is, or one that is built now. Raises CannotBuild."""
    if there := found():
        return there
    if shutil.which("go") is None:
        raise node_programs.CannotBuild("building helm needs go in PATH")
    module = node_programs.cache() / "module" / f"helm-{VERSION}"
    module.mkdir(parents=True, exist_ok=True)
    seconds = float(os.environ.get(node_programs.SECONDS, node_programs.DEFAULT_SECONDS))
    built().parent.mkdir(parents=True, exist_ok=True)
    print(f"building helm {VERSION}", flush=True)  # noqa: T201 - minutes, on a small machine
    go = node_programs.Go(module, seconds)
    go.run("install", "-trimpath", f"{PACKAGE}@v{VERSION}", GOBIN=str(built().parent))
    found.cache_clear()
    return built()


def helm(
    *words: object, chart: Path = CHART, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """One command of it, in the chart; the caller looks how it ended."""
    program = found()
    assert program is not None, MISSING
    return subprocess.run(
        [str(program), *map(str, words)],
        check=False,
        capture_output=True,
        text=True,
        cwd=chart,
        timeout=SECONDS,
        env=os.environ | (environment or {}),
    )


def rendered(*words: object, kubernetes: str = KUBERNETES, chart: Path = CHART) -> str:
    """What is installed as `gpu-manager` in kube-system, without the pod of `helm test`; an
    AssertionError with helm's words."""
    where = ("gpu-manager", ".", "--namespace", "kube-system", "--kube-version", kubernetes)
    done = helm("template", "--skip-tests", *where, *words, chart=chart)
    assert done.returncode == 0, done.stderr
    return done.stdout


if __name__ == "__main__":
    try:
        print(build())  # noqa: T201
    except node_programs.CannotBuild as error:
        sys.exit(f"cannot build: {error}")
