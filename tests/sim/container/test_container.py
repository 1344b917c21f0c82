"""Containers as real processes in mount namespaces of their own."""

import asyncio
import ctypes
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpumanager.sim.container import enter, kernel, process
from gpumanager.sim.container.process import (
    ContainerNotStarted,
    ContainerProcess,
    kill_namespace,
    namespaces_available,
    start_container,
)
from gpumanager.sim.container.values import BindMount, ContainerSpec
from tests.waiting import has_ended, until

PARENT = Path(__file__).with_name("programs") / "start_and_wait.py"

pytestmark = pytest.mark.namespaces

PR_SET_DUMPABLE = 4
ENVIRONMENT = {"PATH": os.environ.get("PATH", os.defpath)}


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory of the host, with something to mount."""
    path = Path(tempfile.mkdtemp(prefix="gm"))
    path.chmod(0o755)
    (path / "driver" / "lib64").mkdir(parents=True)
    (path / "driver" / "lib64" / "libcuda.so.1").write_text("the library")
    (path / "allocation").mkdir()
    (path / "nvidia3").write_text("the GPU")
    yield path
    shutil.rmtree(path)


def test_a_machine_that_is_too_busy_to_tell_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "START_SECONDS", 0.0)

    with pytest.raises(ContainerNotStarted, match="the machine is too busy"):
        namespaces_available()


def spec(place: Path, *command: str, **environment: str) -> ContainerSpec:
    """As an Allocate response makes it."""
    return ContainerSpec(
        command=command,
        environment={**ENVIRONMENT, **environment},
        devices=(BindMount(str(place / "nvidia3"), "/dev/nvidia3"),),
        mounts=(
            BindMount(str(place / "driver"), "/usr/local/nvidia", read_only=True),
            BindMount(str(place / "allocation"), "/etc/vcuda"),
        ),
    )


def listing(*folders: str) -> set[str]:
    """What lies where mount points were made."""
    return {path.name for one in folders or ("/etc", "/usr/local") for path in Path(one).iterdir()}


async def outcome(place: Path, wanted: ContainerSpec) -> tuple[int, list[str]]:
    lines: list[str] = []
    container = await start_container(wanted, lines.append)
    try:
        async with asyncio.timeout(120):
            return await container.wait(), lines
    finally:
        await container.close()


def shell(place: Path, script: str) -> ContainerSpec:
    return spec(place, "sh", "-c", script)


async def test_a_container_sees_only_the_devices_it_was_given(place: Path) -> None:
    status, lines = await outcome(place, shell(place, "ls -d /dev/nvidia*; cat /dev/nvidia3"))

    assert (status, lines) == (0, ["/dev/nvidia3", "the GPU"])


async def test_the_usual_devices_work(place: Path) -> None:
    script = "echo lost > /dev/null && head -c 2 /dev/zero | wc -c && echo x | cat /dev/fd/0"

    assert await outcome(place, shell(place, script)) == (0, ["2", "x"])


async def test_mounts_appear_where_the_host_has_no_such_directory(place: Path) -> None:
    script = "cat /usr/local/nvidia/lib64/libcuda.so.1; echo; touch /etc/vcuda/made"

    status, lines = await outcome(place, shell(place, script))

    assert (status, lines) == (0, ["the library"])
    assert (place / "allocation" / "made").exists()


async def test_a_read_only_mount_cannot_be_written(place: Path) -> None:
    status, lines = await outcome(place, shell(place, "echo x > /usr/local/nvidia/lib64/x"))

    assert status != 0
    assert "Read-only file system" in lines[0]


async def test_the_hosts_files_stay_visible_and_the_host_untouched(place: Path) -> None:
    before = listing()

    script = "cat /etc/passwd; ls -A /usr/local /etc | grep -v -e '^nvidia$' -e '^vcuda$'"
    _, lines = await outcome(place, shell(place, script))

    assert any(line.startswith("root:") for line in lines)
    assert before - {"nvidia", "vcuda"} <= set(lines)
    assert listing() == before


async def test_a_mount_may_lie_below_directories_that_all_have_to_be_made(place: Path) -> None:
    deep = BindMount(str(place / "nvidia3"), "/usr/local/no/such/place/file")
    wanted = ContainerSpec(("cat", deep.container), ENVIRONMENT, None, (), (deep,))

    assert await outcome(place, wanted) == (0, ["the GPU"])


async def test_only_the_given_environment_arrives(place: Path) -> None:
    _, lines = await outcome(place, spec(place, "env", GIVEN="yes"))

    assert sorted(lines) == sorted([f"PATH={ENVIRONMENT['PATH']}", "GIVEN=yes"])


async def test_output_arrives_line_by_line_with_its_last_words(place: Path) -> None:
    status, lines = await outcome(place, shell(place, "echo one; echo two >&2; printf three"))

    assert (status, lines) == (0, ["one", "two", "three"])


async def test_a_program_that_does_not_exist_ends_as_a_runtime_ends_it(place: Path) -> None:
    assert await outcome(place, spec(place, "no-such-program")) == (
        127,
        ['exec: "no-such-program": executable file not found in $PATH'],
    )
    assert await outcome(place, spec(place, "/no/such")) == (
        127,
        ['exec: "/no/such": no such file'],
    )


async def test_a_file_that_is_no_program_and_a_missing_directory_are_said(place: Path) -> None:
    (place / "text").write_text("x")
    somewhere = ContainerSpec(("true",), ENVIRONMENT, "/no/where")

    status, lines = await outcome(place, spec(place, str(place / "text")))

    assert (status, lines) == (126, [f'exec: "{place}/text": Permission denied'])
    assert await outcome(place, somewhere) == (
        126,
        ['working directory "/no/where" does not exist'],
    )


async def test_a_mount_of_nothing_is_a_clear_error(place: Path) -> None:
    wanted = ContainerSpec(("true",), ENVIRONMENT, None, (), (BindMount("/no/such", "/mnt/x"),))

    with pytest.raises(ContainerNotStarted, match="the host has no /no/such to be mounted"):
        await start_container(wanted, print)


async def test_a_signal_is_told_as_shells_tell_it(place: Path) -> None:
    assert (await outcome(place, shell(place, "kill -9 $$")))[0] == 137


async def test_programs_meet_a_broken_pipe_as_they_expect(place: Path) -> None:
    status, _ = await outcome(place, shell(place, "yes | head -1; exit 0"))
    ignored = await outcome(place, shell(place, "grep SigIgn /proc/self/status"))

    assert status == 0
    assert int(ignored[1][0].split()[1], 16) & (1 << (signal.SIGPIPE - 1)) == 0


async def test_processes_left_behind_end_with_the_container(place: Path) -> None:
    script = "setsid sh -c 'echo $$; exec sleep 300' & sleep 0.3"
    status, lines = await outcome(place, shell(place, script))

    assert status == 0
    assert has_ended(int(lines[0]))


async def test_a_process_that_left_the_namespace_keeps_nobody_waiting(place: Path) -> None:
    """It has the container's output open, and cannot be told from the host's processes."""
    code, lines = await outcome(place, shell(place, "unshare -m sleep 30 & echo $!; sleep 0.3"))
    left = int(lines[0])

    os.kill(left, signal.SIGKILL)
    await until(lambda: has_ended(left))

    assert code == 0


async def test_two_containers_never_share_a_namespace_even_one_after_the_other(
    place: Path,
) -> None:
    kept: list[ContainerProcess] = []
    for _ in range(5):
        wanted = shell(place, "true")
        kept.append(await start_container(wanted, print))
        await kept[-1].wait()

    assert len({container.mount_namespace for container in kept}) == 5
    for container in kept:
        await container.close()


async def test_a_container_that_is_killed_ends_at_once(place: Path) -> None:
    container = await start_container(shell(place, "sleep 300"), print)

    container.kill()

    async with asyncio.timeout(300):
        assert await container.wait() == 137
    await container.close()


async def test_a_container_dies_with_its_parent(place: Path) -> None:
    """The parent is killed; nobody is left to clean up after it."""
    (place / "in.json").write_text(shell(place, "echo started; exec sleep 300").text())
    parent = await asyncio.create_subprocess_exec(
        *(sys.executable, PARENT, place / "in.json"),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(enter.__file__).parents[3])},
    )
    assert parent.stdout is not None
    async with asyncio.timeout(120):
        child = int(await parent.stdout.readline())
        parent.kill()
        await parent.wait()
        await until(lambda: has_ended(child))


def test_our_own_namespace_is_never_killed() -> None:
    with pytest.raises(ValueError, match="our own"):
        kill_namespace(kernel.mount_namespace())


def test_a_spec_survives_being_written_and_read(tmp_path: Path) -> None:
    wanted = spec(tmp_path, "a", "b", KEY="value")

    assert ContainerSpec.read(wanted.text()) == wanted


@pytest.mark.skipif(os.geteuid() != 0, reason="the other tests run as an ordinary user already")
def test_an_ordinary_user_can_run_containers_too(place: Path) -> None:
    """In a child that is nobody: where user namespaces are forbidden, its probe says so."""
    place.chmod(0o777)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _as_nobody(place, writing)
    os.close(writing)
    with os.fdopen(reading) as output:
        said = output.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    if status == enter.NOT_STARTED:
        pytest.skip(f"unprivileged user namespaces are not allowed here: {said}")
    assert (status, said) == (0, "65534\n/dev/nvidia3\nthe library")


def _as_nobody(place: Path, output: int) -> None:
    """Never returns: the rest of this process is the container."""
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)  # as after an exec by that user
    script = "id -u; ls -d /dev/nvidia*; cat /usr/local/nvidia/lib64/libcuda.so.1"
    wanted = shell(place, script)
    try:
        enter.apply(wanted)
    except OSError as error:
        os.write(1, str(error).encode())
        os._exit(enter.NOT_STARTED)
    enter.start(wanted)


async def test_a_mount_may_lie_right_below_the_root_directory(place: Path) -> None:
    """As `/data` does in most pods; the host has no such directory, and gets none."""
    top = BindMount(str(place / "allocation"), "/no-such-directory")
    deep = BindMount(str(place / "nvidia3"), "/no-such-directory-either/below/file")
    script = (
        "echo x > /no-such-directory/made; cat /no-such-directory-either/below/file; ls -d /etc"
    )
    wanted = ContainerSpec(("sh", "-c", script), ENVIRONMENT, "/etc", (), (top, deep))

    assert await outcome(place, wanted) == (0, ["the GPU/etc"])
    assert (place / "allocation" / "made").read_text() == "x\n"
    assert not {name for name in listing("/") if name.startswith("no-such")}
