"""A newer runc than this host's: built once, outside the checkout, where containerd is a newer one.

    python -m tests.e2e.node.runc_program

Debian's newer packages need a newer libc than an older Debian has, so it is built. The Go module
proxy has its source; libseccomp's headers and a C compiler have to be there.
"""

import shutil
import sys
from pathlib import Path
from typing import Final

from tests.e2e.node.node_programs import CannotBuild, Go, cache, has

VERSION: Final = "1.3.2"
MODULE: Final = "github.com/opencontainers/runc"
NEEDED: Final = {"go": "golang", "gcc": "gcc libc6-dev", "pkg-config": "pkg-config libseccomp-dev"}
"""Programs, and Debian's packages that have them and what is built with them."""
SECONDS: Final = 600.0


def build() -> Path:
    """The folder with it. Raises CannotBuild."""
    folder = cache() / "bin" / f"runc-{VERSION}"
    if has(folder, "runc"):
        return folder
    if lacking := sorted(NEEDED[one] for one in NEEDED if shutil.which(one) is None):
        raise CannotBuild(f"building runc needs packages: apt-get install {' '.join(lacking)}")
    work = cache() / "module" / f"runc-{VERSION}"
    work.mkdir(parents=True, exist_ok=True)
    print(f"building runc {VERSION}", flush=True)
    Go(work, SECONDS).run(
        *("install", "-tags", "seccomp", "-trimpath"),
        *("-ldflags", f"-s -w -X main.version={VERSION}"),
        f"{MODULE}@v{VERSION}",
        CGO_ENABLED="1",
        GOBIN=str(work),
    )
    folder.mkdir(parents=True, exist_ok=True)
    return (work / "runc").rename(folder / "runc").parent


if __name__ == "__main__":
    try:
        print(build())
    except CannotBuild as error:
        sys.exit(f"cannot be had: {error}")
