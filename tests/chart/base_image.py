"""The image that the Dockerfile begins with, made without a registry, under the name it says."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from dockerfile import Dockerfile

from tests.chart.buildah import buildah

VARIABLE: Final = "GPUMANAGER_IMAGE_PYTHON"
PATH: Final = "/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"
PACKAGES: Final = (
    *("ca-certificates", "libbz2-1.0", "libexpat1", "libffi8", "liblzma5", "libncursesw6"),
    *("libreadline8", "libsqlite3-0", "libssl3", "libuuid1", "netbase", "tzdata", "zlib1g"),
)
"""What the official one brings, and a Python is linked with."""
LEFT_OUT: Final = ("test", "__pycache__", "site-packages", "*.a", "idlelib")
CERTIFICATES: Final = "etc/ssl/certs/ca-certificates.crt"


def make(said: Dockerfile) -> None:
    """Unless it is in the store."""
    name = f"docker.io/library/{said.base}"
    if buildah("images", "-q", "--filter", f"reference={name}", printed=False):
        return
    home = python(said)
    if home is None:
        raise LookupError(VARIABLE)
    with tempfile.TemporaryDirectory() as work:
        root = Path(work, "root")
        chosen = f"--include={','.join(PACKAGES)}"
        subprocess.run(
            ["mmdebstrap", "--variant=minbase", chosen, said.debian, str(root)], check=True
        )
        add_python(root, home, said.python)
        trust(root)
        commit(root, name)


def python(said: Dockerfile) -> Path | None:
    """Where a Python of the base's version lies: the folder of its `bin` and `lib`."""
    program = os.environ.get(VARIABLE) or shutil.which(f"python{said.python}")
    if program is None:
        return None
    asked = "import sys; print(sys.base_prefix, '%d.%d' % sys.version_info[:2])"
    done = subprocess.run([program, "-c", asked], check=False, capture_output=True, text=True)
    home, _, version = done.stdout.strip().rpartition(" ")
    return Path(home) if version == said.python else None


def add_python(root: Path, home: Path, version: str) -> None:
    """The one at `home`, with pip, as the official image has it: in /usr/local."""
    local = root / "usr" / "local"
    for folder in (f"lib/python{version}", f"include/python{version}"):
        left_out = shutil.ignore_patterns(*LEFT_OUT)
        shutil.copytree(home / folder, local / folder, symlinks=True, ignore=left_out)
    for file in (home / "bin" / f"python{version}", *(home / "lib").glob("libpython3*.so*")):
        shutil.copy2(file, local / file.relative_to(home), follow_symlinks=False)
    for link, target in {"python3": f"python{version}", "python": "python3", "pip": "pip3"}.items():
        (local / "bin" / link).symlink_to(target)
    for words in (("ldconfig",), ("python3", "-m", "ensurepip")):
        subprocess.run(["chroot", str(root), *words], check=True, env={"PATH": PATH})


def trust(root: Path) -> None:
    """Whom this machine trusts, which may stand behind a proxy of its own."""
    shutil.copy2(Path("/", CERTIFICATES), root / CERTIFICATES)


def commit(root: Path, name: str) -> None:
    container = buildah("from", "scratch", printed=False)
    buildah("add", "-q", container, f"{root}/", "/", printed=False)
    buildah("config", "--cmd", "python3", "--env", f"PATH={PATH}", container)
    buildah("commit", "-q", container, name, printed=False)
    buildah("rm", container, printed=False)
