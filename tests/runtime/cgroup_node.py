"""A node's /proc and cgroup files as plain files, for processes that are real or made up."""

from dataclasses import dataclass
from pathlib import Path

from gpumanager.runtime.cgroup import CgroupFiles


@dataclass(frozen=True, slots=True)
class CgroupNode:
    """base: an empty directory. With v1 the hierarchies of memory, systemd and the freezer, or
    v2's one."""

    base: Path
    unified: bool = True
    root: str = "/"

    @property
    def proc(self) -> str:
        return str(self.base / "proc")

    def mounted(self, own: str = "0::/\n") -> CgroupFiles:
        """own: the cgroup file of the reader."""
        reader = self.base / "proc/self"
        reader.mkdir(parents=True, exist_ok=True)
        (reader / "cgroup").write_text(own)
        kinds = ["cgroup2 cgroup2 rw"]
        if not self.unified:
            kinds = [f"cgroup cgroup rw,{one}" for one in ("memory", "name=systemd", "freezer")]
        rows = (
            f"{number} 1 0:{number} {self.root} {self.mount(number)} rw - {kind}\n"
            for number, kind in enumerate(kinds)
        )
        (reader / "mountinfo").write_text("".join(rows))
        return CgroupFiles.here(self.proc)

    def mount(self, number: int = 0) -> Path:
        return self.base / f"cgroup{number}"

    def process(self, pid: int, text: str) -> None:
        directory = self.base / "proc" / str(pid)
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "cgroup").write_text(text)

    def cgroup(self, path: str, *pids: int) -> None:
        """One cgroup, in every hierarchy, with its members."""
        for number in range(1 if self.unified else 3):
            directory = self.mount(number) / path.lstrip("/")
            directory.mkdir(parents=True, exist_ok=True)
            (directory / "cgroup.procs").write_text("".join(f"{pid}\n" for pid in pids))
