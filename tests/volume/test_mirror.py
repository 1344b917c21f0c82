"""Publishing: all or nothing, whatever happens in the middle; the same again changes nothing."""

import errno
import fcntl
import os
from pathlib import Path, PurePosixPath

import pytest

from gpumanager.volume import mirror as mirror_module
from gpumanager.volume.errors import MirrorFailed
from gpumanager.volume.layout import File, Link, Plan, digest
from gpumanager.volume.mirror import Disk, is_complete, mirror, prune


class Crash(BaseException):
    """The process dies here: nothing below gets to clean up."""


class FragileDisk(Disk):
    """Raises `failure` at the step numbered `fails_at`, half of that step done if it has halves."""

    def __init__(self, fails_at: int | None = None, failure: BaseException | None = None) -> None:
        self.fails_at = fails_at
        self.failure = failure or Crash()
        self.steps = 0

    def _step(self) -> None:
        self.steps += 1
        if self.steps - 1 == self.fails_at:
            raise self.failure

    def make_directory(self, path: Path) -> None:
        self._step()
        super().make_directory(path)

    def place(self, file: File, target: Path) -> None:
        try:
            self._step()
        except BaseException:
            target.write_bytes(b"half")
            raise
        super().place(file, target)

    def link(self, target: str, path: Path) -> None:
        self._step()
        super().link(target, path)

    def sync(self, directory: Path) -> None:
        self._step()
        super().sync(directory)

    def rename(self, path: Path, target: Path) -> None:
        self._step()
        super().rename(path, target)

    def remove_tree(self, path: Path) -> None:
        try:
            self._step()
        except BaseException:
            next(item for item in path.rglob("*") if not item.is_dir()).unlink()
            raise
        super().remove_tree(path)


def plan_of(folder: Path, content: str) -> Plan:
    """One file and one link, of this content."""
    folder.mkdir(exist_ok=True)
    source = folder / f"libcuda-{content}"
    source.write_text(content)
    path = PurePosixPath("lib64/libcuda.so.555.58.02")
    return (
        File(path, source, source.stat().st_size, content),
        Link(PurePosixPath("lib64/libcuda.so.1"), "libcuda.so.555.58.02"),
    )


def seen(base: Path) -> str:
    """What a container that mounts the volume would load."""
    return (base / "nvidia" / "lib64" / "libcuda.so.1").read_text()


def hidden(base: Path) -> list[str]:
    return [path.name for path in base.iterdir() if path.name.startswith(".nvidia")]


def test_a_plan_becomes_a_directory_behind_a_stable_name(tmp_path: Path) -> None:
    plan = plan_of(tmp_path / "host", "one")

    directory = mirror(plan, tmp_path / "base", "nvidia")

    assert directory == tmp_path / "base" / f"nvidia-{digest(plan)}"
    assert (tmp_path / "base" / "nvidia").readlink() == Path(directory.name)
    assert sorted(path.name for path in directory.iterdir()) == ["bin", "lib", "lib64"]
    assert seen(tmp_path / "base") == "one"


def test_the_same_again_changes_nothing(tmp_path: Path) -> None:
    plan = plan_of(tmp_path / "host", "one")
    mirror(plan, tmp_path / "base", "nvidia")
    disk = FragileDisk()

    mirror(plan, tmp_path / "base", "nvidia", disk)

    assert disk.steps == 0


@pytest.mark.parametrize("before", ["one", None], ids=["an upgrade", "the first"])
def test_a_crash_at_any_step_shows_what_there_was_or_the_new_driver_whole(
    tmp_path: Path, before: str | None
) -> None:
    old, new = (plan_of(tmp_path / "host", name) for name in ("one", "two"))
    counting = FragileDisk()
    mirror(new, tmp_path / "count", "nvidia", counting)
    assert counting.steps > 10

    for step in range(counting.steps):
        base = tmp_path / f"base{step}"
        if before:
            mirror(old, base, "nvidia")

        with pytest.raises(Crash):
            mirror(new, base, "nvidia", FragileDisk(fails_at=step))

        if before:
            assert seen(base) in (before, "two")
        for directory in base.glob("nvidia*"):
            assert is_complete(old, directory) or is_complete(new, directory)
        mirror(new, base, "nvidia")
        assert seen(base) == "two"
        assert hidden(base) == []


def test_a_full_disk_is_our_error_and_leaves_no_rubbish(tmp_path: Path) -> None:
    base = tmp_path / "base"
    mirror(plan_of(tmp_path / "host", "one"), base, "nvidia")
    full = OSError(errno.ENOSPC, "No space left on device", "libcuda.so")

    with pytest.raises(MirrorFailed, match=r"cannot publish .*No space left on device \(libcuda"):
        mirror(plan_of(tmp_path / "host", "two"), base, "nvidia", FragileDisk(5, full))

    assert seen(base) == "one"
    assert hidden(base) == []


def test_a_base_that_is_a_file_is_our_error(tmp_path: Path) -> None:
    (tmp_path / "base").touch()

    with pytest.raises(MirrorFailed, match="File exists"):
        mirror(plan_of(tmp_path / "host", "one"), tmp_path / "base", "nvidia")


def test_a_damaged_directory_is_built_again_and_the_damaged_one_kept(tmp_path: Path) -> None:
    base = tmp_path / "base"
    plan = plan_of(tmp_path / "host", "one")
    directory = mirror(plan, base, "nvidia")
    (directory / "lib64" / "libcuda.so.1").unlink()

    assert mirror(plan, base, "nvidia") == directory

    assert seen(base) == "one"
    (aside,) = base.glob("nvidia.aside-*")
    assert [path.name for path in (aside / "lib64").iterdir()] == ["libcuda.so.555.58.02"]


def test_the_directory_that_the_original_left_gives_way_unharmed(tmp_path: Path) -> None:
    base = tmp_path / "base"
    (base / "nvidia" / "lib64").mkdir(parents=True)
    (base / "nvidia" / "lib64" / "libcuda-control.so").touch()

    mirror(plan_of(tmp_path / "host", "one"), base, "nvidia")

    assert seen(base) == "one"
    (aside,) = base.glob("nvidia.aside-*")
    assert (aside / "lib64" / "libcuda-control.so").exists()


def test_files_are_hard_links_unless_they_have_a_content_of_their_own(tmp_path: Path) -> None:
    source = tmp_path / "nvidia-smi"
    source.write_text("program")
    source.chmod(0o755)
    linked = File(PurePosixPath("bin/nvidia-smi"), source, 7, "stamp")
    written = File(PurePosixPath("bin/copy"), source, 5, "stamp", b"other")

    directory = mirror((linked, written), tmp_path / "base", "nvidia")

    assert (directory / "bin" / "nvidia-smi").samefile(source)
    assert (directory / "bin" / "copy").read_text() == "other"
    assert (directory / "bin" / "copy").stat().st_mode & 0o777 == 0o755


def test_where_no_hard_link_is_possible_files_are_copied(tmp_path: Path) -> None:
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK) or memory.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("no second file system to publish on")
    plan = plan_of(tmp_path / "host", "one")
    base = memory / f"gm-{os.getpid()}"

    try:
        directory = mirror(plan, base, "nvidia")
        copied = (directory / "lib64" / "libcuda.so.555.58.02").stat()
    finally:
        prune(base, "nvidia", ())
        Disk().remove_tree(base)

    assert copied.st_nlink == 1
    assert copied.st_size == 3


def test_everybody_may_read_what_is_published_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        directory = mirror(plan_of(tmp_path / "host", "one"), tmp_path / "base", "nvidia")
    finally:
        os.umask(before)

    assert {path.stat().st_mode & 0o777 for path in (directory, *directory.iterdir())} == {0o755}


def test_two_processes_do_not_publish_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror_module, "LOCK_SECONDS", 0.0)
    base = tmp_path / "base"
    base.mkdir()
    with (base / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)

        with pytest.raises(MirrorFailed, match="another process"):
            mirror(plan_of(tmp_path / "host", "one"), base, "nvidia")


def test_pruning_spares_the_current_the_kept_and_other_volumes(tmp_path: Path) -> None:
    base = tmp_path / "base"
    plans = [plan_of(tmp_path / "host", name) for name in ("one", "two", "three")]
    first, second, third = (mirror(plan, base, "nvidia") for plan in plans)
    other = mirror(plans[0], base, "nvidia-old")

    assert prune(base, "nvidia", {second}) == (first,)

    assert not first.exists()
    assert second.is_dir()
    assert third.is_dir()
    assert other.is_dir()
    assert seen(base) == "three"


def test_a_crash_while_pruning_leaves_no_half_directory(tmp_path: Path) -> None:
    base = tmp_path / "base"
    old, new = (plan_of(tmp_path / "host", name) for name in ("one", "two"))
    mirror(old, base, "nvidia")
    mirror(new, base, "nvidia")

    with pytest.raises(Crash):
        prune(base, "nvidia", (), FragileDisk(fails_at=1))

    assert [is_complete(new, path) for path in base.glob("nvidia-*")] == [True]
    prune(base, "nvidia", ())
    assert hidden(base) == []
