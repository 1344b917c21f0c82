"""CDI spec files, and what becomes of a container that is to have devices of theirs."""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpumanager.runtime.cdi_support import obstacle_of
from gpumanager.runtime.cri import ContainerRuntime
from gpumanager.sim.cdi import CdiUnresolved, inject, read_specs
from gpumanager.sim.container.values import BindMount, ContainerSpec
from gpumanager.sim.container_runtime import (
    CONTAINERD_1_6,
    CONTAINERD_1_7,
    CONTAINERD_1_7_WITH_CDI,
    CONTAINERD_2,
    ContainerdVersion,
    SimulatedRuntime,
)

KIND = "gpu.tencent.com/share"


def device(name: str, **edits: Any) -> dict[str, Any]:
    return {"name": name, "containerEdits": edits}


def spec(*devices: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"cdiVersion": "0.6.0", "kind": KIND, "devices": list(devices), **fields}


def written(path: Path, content: Any) -> Path:
    """The directory of the file."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path.parent


def mount(host: str, container: str, *options: str) -> dict[str, Any]:
    return {"hostPath": host, "containerPath": container, "options": list(options)}


def injected(directory: Path, before: ContainerSpec, *names: str) -> ContainerSpec:
    return inject(before, read_specs([directory]), [f"{KIND}={name}" for name in names])


def test_a_device_adds_variables_mounts_and_device_nodes(tmp_path: Path) -> None:
    edits = {
        "env": ["VCUDA_CORES=30", "EMPTY="],
        "mounts": [mount("/vm/a", "/etc/vcuda", "ro", "bind"), mount("/x", "/srv", "rw")],
        "deviceNodes": [
            {"path": "/dev/nvidia0", "hostPath": "/node/nvidia0"},
            {"path": "/dev/nvidiactl"},
        ],
    }
    written(tmp_path / "a.json", spec(device("one", **edits)))

    found = injected(tmp_path, ContainerSpec(("x",), {"PATH": "/bin"}), "one")

    assert found.environment == {"PATH": "/bin", "VCUDA_CORES": "30", "EMPTY": ""}
    assert found.mounts == (
        BindMount("/x", "/srv"),
        BindMount("/vm/a", "/etc/vcuda", read_only=True),
    )
    assert found.devices == (
        BindMount("/node/nvidia0", "/dev/nvidia0"),
        BindMount("/dev/nvidiactl", "/dev/nvidiactl"),
    )


def test_the_last_device_has_the_variable_and_the_mount_point(tmp_path: Path) -> None:
    rows = (
        device("one", env=["CORES=30"], mounts=[mount("/vm/one", "/etc/vcuda")]),
        device("two", env=["CORES=20"], mounts=[mount("/vm/two", "/etc/vcuda")]),
    )
    written(tmp_path / "a.json", spec(*rows))
    before = ContainerSpec(("x",), {"CORES": "own"}, mounts=(BindMount("/own", "/etc/vcuda"),))

    forth, back = injected(tmp_path, before, "one", "two"), injected(tmp_path, before, "two", "one")

    assert (forth.environment["CORES"], back.environment["CORES"]) == ("20", "30")
    assert forth.mounts == (BindMount("/vm/two", "/etc/vcuda"),)
    assert back.mounts == (BindMount("/vm/one", "/etc/vcuda"),)


def test_mounts_below_others_come_after_them_and_equals_stay_in_order(tmp_path: Path) -> None:
    below = device("one", mounts=[mount("/1", "/a/b/c"), mount("/2", "/z"), mount("/3", "/a/b")])
    written(tmp_path / "a.json", spec(below))
    before = ContainerSpec(("x",), mounts=(BindMount("/0", "/y/y/y"), BindMount("/9", "/b")))

    found = injected(tmp_path, before, "one")

    assert [row.container for row in found.mounts] == ["/b", "/z", "/a/b", "/y/y/y", "/a/b/c"]


def test_an_unknown_device_is_an_error_that_names_all_of_them(tmp_path: Path) -> None:
    written(tmp_path / "a.json", spec(device("one")))

    with pytest.raises(CdiUnresolved) as raised:
        injected(tmp_path, ContainerSpec(("x",)), "one", "two", "three")

    assert str(raised.value) == (
        f"CDI device injection failed: unresolvable CDI devices {KIND}=two, {KIND}=three"
    )


def test_the_dynamic_directory_wins_over_the_static_one(tmp_path: Path) -> None:
    static = written(tmp_path / "static" / "a.json", spec(device("one", env=["FROM=static"])))
    dynamic = written(
        tmp_path / "dynamic" / "b.yaml", json.dumps(spec(device("one", env=["FROM=dynamic"])))
    )

    registry = read_specs([static, dynamic, tmp_path / "absent"])

    assert inject(ContainerSpec(("x",)), registry, [f"{KIND}=one"]).environment == {
        "FROM": "dynamic"
    }


def test_a_device_of_two_files_of_one_directory_is_nobodys(tmp_path: Path) -> None:
    written(tmp_path / "a.json", spec(device("one"), device("two")))
    written(tmp_path / "b.json", spec(device("one")))

    registry = read_specs([tmp_path])

    assert set(registry) == {f"{KIND}=two"}


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("{", "flow"),
        ("[]", "no object"),
        (spec(device("one"), hooks=[]), 'unknown field "hooks"'),
        (spec(device("one", envs=["A=1"])), 'unknown field "envs"'),
        (spec(device("one", env=["A"])), "invalid environment variable"),
        (spec(), "no devices"),
        (spec(device("one"), device("one")), "two of one name"),
        (spec(device("one"), kind="share"), 'invalid kind "share"'),
        (spec(device("one"), cdiVersion="9.0"), 'invalid version "9.0"'),
        (spec(device("one"), cdiVersion="0.5.0"), 'invalid version "0.5.0"'),
        (spec(device("one", mounts=[{"hostPath": "/a"}])), "containerPath"),
    ],
)
def test_a_file_that_is_wrong_counts_as_not_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: Any, why: str
) -> None:
    written(tmp_path / "wrong.json", content)
    written(tmp_path / "right.json", spec(device("right")))

    registry = read_specs([tmp_path])

    assert set(registry) == {f"{KIND}=right"}
    assert why in caplog.text


def test_other_files_and_folders_are_not_read(tmp_path: Path) -> None:
    written(tmp_path / "a.json.tmp", "{")
    written(tmp_path / "folder.json" / "b.json", spec(device("one")))

    assert read_specs([tmp_path]) == {}


@pytest.mark.parametrize("kind", [CONTAINERD_1_6, CONTAINERD_1_7], ids=lambda kind: kind.number)
def test_old_runtimes_ignore_cdi_and_start_the_container_without(
    tmp_path: Path, kind: ContainerdVersion
) -> None:
    directory = written(tmp_path / "a.json", spec(device("one", env=["CORES=30"])))
    runtime = SimulatedRuntime(tmp_path / "cri.sock", kind=kind, cdi=[directory])
    before = ContainerSpec(("x",))

    assert runtime.create(before, [f"{KIND}=one"]) == before
    assert runtime.create(before, [f"{KIND}=unknown"]) == before


@pytest.mark.parametrize(
    "kind", [CONTAINERD_1_7_WITH_CDI, CONTAINERD_2], ids=lambda kind: kind.number
)
def test_a_runtime_with_cdi_reads_the_files_anew_for_each_container(
    tmp_path: Path, kind: ContainerdVersion
) -> None:
    runtime = SimulatedRuntime(tmp_path / "cri.sock", kind=kind, cdi=[tmp_path])
    with pytest.raises(CdiUnresolved):
        runtime.create(ContainerSpec(("x",)), [f"{KIND}=one"])

    written(tmp_path / "a.json", spec(device("one", env=["CORES=30"])))

    assert runtime.create(ContainerSpec(("x",)), [f"{KIND}=one"]).environment == {"CORES": "30"}


@pytest.mark.parametrize(
    "kind",
    [CONTAINERD_1_6, CONTAINERD_1_7, CONTAINERD_1_7_WITH_CDI, CONTAINERD_2],
    ids=lambda kind: f"{kind.number}-{kind.cdi}",
)
async def test_whoever_asks_a_runtime_by_cri_finds_out_whether_it_has_cdi(
    short_path: Path, kind: ContainerdVersion
) -> None:
    runtime = SimulatedRuntime(short_path / "cri.sock", kind=kind, cdi=[short_path / "cdi"])
    await runtime.start()
    asking = ContainerRuntime([runtime.socket])

    obstacle = await obstacle_of(asking, short_path / "cdi")

    assert (obstacle == "") == kind.cdi
    await asking.close()
    await runtime.stop()


@pytest.fixture
def short_path() -> Iterator[Path]:
    """Short enough for a socket in it."""
    with tempfile.TemporaryDirectory(prefix="gm") as directory:
        yield Path(directory)
