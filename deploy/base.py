"""A base for images without a registry: Debian's packages of Python, unpacked into a folder.

apt of this machine, with directories of its own, resolves and fetches them for any architecture;
nothing of them is run, so that a machine of another kind is needed for none of it. Their licences
stay, and what scanners read: `/var/lib/dpkg/status.d`, one file for each package.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PYTHON: Final = f"python3.{sys.version_info.minor}"
"""The modules are compiled by this Python, so the image's is of the same version."""
PACKAGES: Final = (PYTHON, "dash", "coreutils", "libstdc++6")
"""chroot, of coreutils: the agent loads the driver's modules by the host's own programs. libstdc++:
wheels for arm64 need it, as gRPC's does."""
KEYRING: Final = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
LEFT_OUT: Final = re.compile(
    r"usr/share/(doc/.*/(?!copyright$)[^/]*|(man|info|locale|lintian|bug|zoneinfo)/.*)"
)
USERS: Final = "root:x:0:0:root:/root:/bin/sh\n"
PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SECONDS: Final = 600.0


class CannotMake(Exception):
    """Why there is no base here, in one sentence."""


@dataclass(frozen=True, slots=True)
class Package:
    """One of Debian's."""

    name: str
    version: str
    architecture: str


def make(root: Path, architecture: str, work: Path) -> tuple[Package, ...]:
    """Unpack all into `root`; work: an empty folder for apt. Raises CannotMake."""
    options = prepare(work, architecture)
    _run("apt-get", *options, "update", "-q")
    _run("apt-get", *options, "install", "-q", "-y", "--download-only", *PACKAGES)
    archives = sorted((work / "cache" / "archives").glob("*.deb"))
    status = root / "var" / "lib" / "dpkg" / "status.d"
    status.mkdir(parents=True)
    found = []
    for archive in archives:
        _run("dpkg-deb", "-x", archive, root)
        name, version, of = _run(
            "dpkg-deb", "-W", "--showformat", "${Package} ${Version} ${Architecture}", archive
        ).split()
        (status / name).write_text(_run("dpkg-deb", "-f", archive))
        found.append(Package(name, version, of))
    finish(root)
    return tuple(found)


def prepare(work: Path, architecture: str) -> list[str]:
    """apt's options: this machine's Debian, another architecture, nothing installed."""
    for name in ("lists/partial", "cache/archives/partial"):
        (work / name).mkdir(parents=True)
    (work / "status").touch()
    sources = work / "sources.list"
    sources.write_text("".join(f"{line}\n" for line in debian_sources(architecture)))
    settings = {
        "Dir::Etc::sourcelist": sources,
        "Dir::Etc::sourceparts": "-",
        "Dir::State::lists": work / "lists",
        "Dir::State::status": work / "status",
        "Dir::Cache": work / "cache",
        "APT::Architecture": architecture,
        "APT::Architectures": architecture,
        "APT::Install-Recommends": "false",
        "APT::Sandbox::User": "root",
        "APT::Update::Error-Mode": "any",
        "Acquire::Languages": "none",
    }
    return [word for key, value in settings.items() for word in ("-o", f"{key}={value}")]


def debian_sources(architecture: str) -> list[str]:
    """Lines of a sources.list: what this machine's apt has of Debian, updates included."""
    told = _run(
        *("apt-get", "indextargets", "--format", "$(ORIGIN)|$(REPO_URI)|$(RELEASE)|$(COMPONENT)"),
        "Created-By: Packages",
    )
    signed = f" signed-by={KEYRING}" if KEYRING.exists() else ""
    rows = [line.split("|") for line in dict.fromkeys(told.splitlines())]
    found = [
        f"deb [arch={architecture}{signed}] {uri} {release} {component}"
        for origin, uri, release, component in (row for row in rows if len(row) == 4)  # noqa: PLR2004
        if origin in {"Debian", "$(ORIGIN)"}
    ]
    if not found:
        raise CannotMake("apt knows no mirror of Debian here; its first update may be missing")
    return found


def finish(root: Path) -> None:
    """Remove unused files; make the links, folders and users that install scripts would."""
    for path in sorted(root.rglob("*"), reverse=True):
        if not path.is_dir() or path.is_symlink():
            if LEFT_OUT.fullmatch(str(path.relative_to(root))):
                path.unlink()
        elif not any(path.iterdir()) and LEFT_OUT.match(f"{path.relative_to(root)}/x"):
            path.rmdir()
    for name, target in {"usr/bin/python3": PYTHON, "bin/sh": "dash"}.items():
        link = root / name
        if not link.is_symlink():
            link.symlink_to(target)
    for folder, mode in {"tmp": 0o1777, "root": 0o700, "etc": 0o755}.items():
        (root / folder).mkdir(exist_ok=True)
        (root / folder).chmod(mode)
    (root / "etc" / "passwd").write_text(USERS)


def _run(*command: str | Path) -> str:
    if shutil.which(command[0]) is None:
        raise CannotMake(f"it needs {command[0]}, which Debian and what descends from it have")
    words: Sequence[str] = [str(word) for word in command]
    try:
        done = subprocess.run(
            words,
            check=False,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            env={**os.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"},
        )
    except subprocess.TimeoutExpired:
        raise CannotMake(f"{words[0]}: no end after {SECONDS:g} s") from None
    if done.returncode != 0:
        last = (done.stderr.strip() or "failed").splitlines()[-1]
        raise CannotMake(f"{words[0]}: {re.sub(r'[a-z+]+://[^/ ]+', '', last)}")
    return done.stdout
