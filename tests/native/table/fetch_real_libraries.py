"""Fetch NVIDIA's driver libraries as Debian packages them (non-free), for tests without a GPU.

    python tests/native/table/fetch_real_libraries.py [FOLDER]

Where this machine's apt knows a mirror of Debian, the releases that some of Debian's suites have
are fetched from there, some 4 MB each, each into a folder of its name. What is there already is
kept. The system's own sources are only read. UCX, a program that patches the functions of drivers,
comes from the package index (40 MB). What could not be had is said, and is no error.
"""

import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

SUITES: Final = ("bookworm", "trixie", "experimental")
"""With 535, 550 and 555 in 2026."""

UCX: Final = "libucx-cu12==1.22.0"
PACKAGES: Final = ("libcuda1", "libnvidia-ml1")
KEYRING: Final = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
SECONDS: Final = 120.0
HOST: Final = re.compile(r"\w+://[^/\s]+")
"""A mirror is nobody else's business, and so is in no message."""


class NotThere(Exception):
    """Why something cannot be fetched."""


def run(*command: str | Path, folder: Path | None = None) -> str:
    try:
        finished = subprocess.run(
            [str(word) for word in command],
            cwd=folder,
            env={**os.environ, "LC_ALL": "C"},
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotThere(str(error)) from error
    if finished.returncode != 0:
        last = (finished.stderr.strip() or "failed").splitlines()[-1]
        raise NotThere(HOST.sub("", last))
    return finished.stdout


def mirrors() -> Sequence[str]:
    """Those of Debian that this machine's apt uses; before its first update it knows no origin."""
    told = run("apt-get", "indextargets", "--format", "$(ORIGIN) $(RELEASE) $(REPO_URI)",
               "Created-By: Packages")  # fmt: skip
    rows = [line.split() for line in told.splitlines()]
    found = [
        uri
        for origin, release, uri in (row for row in rows if len(row) == 3)
        if origin in ("Debian", "$(ORIGIN)") and "security" not in release
    ]
    if not found:
        raise NotThere("apt knows no mirror of Debian here")
    return tuple(dict.fromkeys(found))


class Suite:
    """apt over packages of one suite of one mirror, with directories of its own."""

    def __init__(
        self,
        folder: Path,
        mirror: str,
        suite: str,
        component: str = "non-free",
        packages: Sequence[str] = PACKAGES,
    ) -> None:
        for name in ("lists/partial", "cache/archives/partial"):
            (folder / name).mkdir(parents=True)
        signed = f" signed-by={KEYRING}" if KEYRING.exists() else ""
        sources = folder / "sources.list"
        sources.write_text(f"deb [arch=amd64{signed}] {mirror} {suite} {component}\n")
        self._folder, self._packages = folder, packages
        settings = {
            "Dir::Etc::sourcelist": sources,
            "Dir::Etc::sourceparts": "-",
            "Dir::State::lists": folder / "lists",
            "Dir::Cache": folder / "cache",
            "APT::Architecture": "amd64",
            "APT::Sandbox::User": "root",
            "APT::Update::Error-Mode": "any",
            "Acquire::Languages": "none",
        }
        self._options = [
            word for key, value in settings.items() for word in ("-o", f"{key}={value}")
        ]
        self._apt("apt-get", "update", "-q")

    def _apt(self, program: str, *words: str) -> str:
        return run(program, *self._options, *words, folder=self._folder)

    def version(self) -> str:
        """The newest that all packages have."""
        versions = [
            {
                line.split("|")[1].strip()
                for line in self._apt("apt-cache", "madison", name).splitlines()
            }
            for name in self._packages
        ]
        both = set.intersection(*versions)
        if not both:
            raise NotThere(f"it has no {self._packages[0]}")
        return max(both)

    def unpack(self, version: str) -> Path:
        """The packages' files, in a folder as they lie on a machine."""
        self._apt("apt-get", "download", "-q", *(f"{name}={version}" for name in self._packages))
        unpacked = self._folder / "unpacked"
        for package in self._folder.glob("*.deb"):
            run("dpkg-deb", "-x", package, unpacked)
        return unpacked

    def put(self, version: str, target: Path) -> None:
        """The packages' libraries, into a folder that appears when it is whole."""
        unpacked = self.unpack(version)
        made = Path(tempfile.mkdtemp(dir=target.parent))
        for name in ("libcuda", "libnvidia-ml"):
            (file,) = unpacked.rglob(f"{name}.so.{target.name}")
            (made / file.name).write_bytes(file.read_bytes())
        made.chmod(0o755)
        made.rename(target)


def fetch(folder: Path, suite: str) -> Iterator[str]:
    """From the first mirror that has it; says what became of it."""
    for mirror in mirrors():
        with tempfile.TemporaryDirectory() as work:
            try:
                apt = Suite(Path(work), mirror, suite)
                version = apt.version()
                target = folder / version.partition("-")[0]
                if not target.exists():
                    apt.put(version, target)
            except NotThere as error:
                yield f"{suite}: not to be had: {error}"
                continue
            yield f"{suite}: {target}"
            return


def fetch_ucx(folder: Path) -> str:
    """A program that patches the driver's functions, as its wheel."""
    target = folder / "ucx"
    if not target.exists():
        with tempfile.TemporaryDirectory(dir=folder) as work:
            run(sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", work, UCX)
            (wheel,) = Path(work).glob("*.whl")
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(Path(work) / "ucx")
            (Path(work) / "ucx").rename(target)
    return f"{UCX}: {target}"


def main() -> None:
    root = Path(__file__).resolve().parents[3]
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else root / ".real-libraries"
    folder.mkdir(exist_ok=True)
    try:
        for suite in SUITES:
            for line in fetch(folder, suite):
                print(line, flush=True)  # noqa: T201
        print(fetch_ucx(folder))  # noqa: T201
    except NotThere as error:
        print(f"not to be had: {error}")  # noqa: T201


if __name__ == "__main__":
    main()
