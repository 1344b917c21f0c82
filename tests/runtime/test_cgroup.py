"""From texts of the kernel to pods and containers, and back to directories."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumanager.ids import PodUID
from gpumanager.runtime.cgroup import (
    UNIFIED,
    CgroupFiles,
    CgroupMount,
    Place,
    directory,
    identify,
    parse_mounts,
    parse_places,
    pods,
)
from tests.runtime.cgroup_texts import ID, PATHS, SLICE, STATIC, UID, hybrid, v1, v2

OTHER = "11111111-2222-3333-4444-555555555555"


@pytest.mark.parametrize("kernel", [v1, v2, hybrid])
@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)
def test_a_container_s_process_is_known_by_its_cgroup(
    kernel: Callable[[str], str], path: str
) -> None:
    found = identify(kernel(path))

    assert found is not None
    assert (found.pod_uid, found.container_id) == (UID, ID)
    assert path.startswith(found.place.path)
    assert ID in found.place.path.rpartition("/")[2]


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/system.slice/sshd.service",
        "/user.slice/user-1000.slice/user@1000.service/app.slice/podman-4711.scope",
        f"/machine.slice/libpod_pod_{ID}.slice/libpod-{ID}.scope",
        f"/docker/{ID}",
        "/kubepods/burstable",
        "/kubepods.slice/kubepods-burstable.slice",
        f"/../cri-containerd-{ID}.scope",
        "/kubepods/podcast/episode",
        f"/kubepods/pod{UID}x/{ID}",
        f"/kubepods/xpod{UID}/{ID}",
    ],
)
def test_what_is_no_pod_s_cgroup_names_none(path: str) -> None:
    assert identify(v2(path)) is None
    assert identify(v1(path)) is None


@pytest.mark.parametrize(
    ("path", "around", "pod", "container"),
    [
        pytest.param(
            f"/kubepods/burstable/pod{UID}", "", UID, None, id="a pod's own cgroup has no container"
        ),
        pytest.param(
            *(f"/kubepods.slice/kubepods-pod{SLICE}.slice/crio-conmon-{ID}.scope", "", UID, None),
            id="CRI-O's monitor is not in the container that it watches",
        ),
        pytest.param(
            *(f"/kubepods/burstable/pod{STATIC}/{ID}", "", STATIC, ID),
            id="a static pod has a hash for its UID",
        ),
        pytest.param(
            *(f"/kubepods/pod{UID}/{ID}/kubelet/kubepods/pod{OTHER}/{'d' * 64}", "", UID, ID),
            id="a process of a cluster that runs in a pod is that pod's",
        ),
        pytest.param(
            *(f"/kubepods/pod{OTHER}/{'d' * 64}/kubelet/kubepods/pod{UID}/{ID}", OTHER, UID, ID),
            id="the agent of a cluster that runs in a pod sees its own pods",
        ),
    ],
)
def test_a_cgroup_names_a_pod_and_perhaps_a_container(
    path: str, around: str, pod: str, container: str | None
) -> None:
    for kernel in (v1, v2):
        found = identify(kernel(path), frozenset({PodUID(around)} if around else ()))

        assert found is not None
        assert (found.pod_uid, found.container_id) == (pod, container)


def test_of_a_process_in_the_agent_s_own_pod_nothing_is_known() -> None:
    text = v2(PATHS["systemd, burstable"])

    assert pods(text) == {UID}
    assert identify(text, pods(text)) is None


PIECES = ("/", ":", "\n", "0::", "4:memory:", "pod", UID, SLICE, STATIC, ID, "kubepods-pod")
ENDS = (".slice", ".scope", "cri-containerd-", "crio-", "..", " (deleted)", "x")


@given(st.lists(st.sampled_from((*PIECES, *ENDS)), max_size=12).map("".join))
def test_no_text_gives_a_pod_that_is_not_in_it(text: str) -> None:
    found = identify(text)
    if found is not None:
        assert f"pod{found.pod_uid}".replace("-", "_") in text.replace("-", "_")
        assert found.container_id in {None, ID}
        assert found.place.path in text


V1_MOUNTS = """\
25 20 0:22 / /sys rw,nosuid - sysfs sysfs rw
29 25 0:26 / /sys/fs/cgroup ro,nosuid - tmpfs tmpfs ro,mode=755
31 29 0:28 / /sys/fs/cgroup/systemd rw shared:9 - cgroup cgroup rw,xattr,name=systemd
33 29 0:30 / /sys/fs/cgroup/cpu,cpuacct rw shared:11 - cgroup cgroup rw,cpu,cpuacct
34 29 0:31 / /sys/fs/cgroup/memory rw shared:12 - cgroup cgroup rw,memory
"""
V2_MOUNT = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
HYBRID_MOUNTS = V1_MOUNTS + "35 29 0:32 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (V1_MOUNTS, "v1"),
        (V2_MOUNT, "v2"),
        (HYBRID_MOUNTS, "hybrid"),
        ("", None),
        ("1 2 3\nnonsense - \n- - -\n", None),
    ],
)
def test_the_version_is_told_by_what_is_mounted(text: str, expected: str | None) -> None:
    assert CgroupFiles(parse_mounts(text), frozenset()).version is expected


@pytest.mark.parametrize(
    ("mounts", "controllers", "path", "expected"),
    [
        (V1_MOUNTS, {"memory"}, "/kubepods/x", "/sys/fs/cgroup/memory/kubepods/x"),
        (V1_MOUNTS, {"cpu", "cpuacct"}, "/", "/sys/fs/cgroup/cpu,cpuacct"),
        (V1_MOUNTS, {"name=systemd"}, "/a", "/sys/fs/cgroup/systemd/a"),
        (V1_MOUNTS, {"hugetlb"}, "/a", None),
        (V1_MOUNTS, set(), "/a", None),
        (V2_MOUNT, set(), "/kubepods.slice/x", "/sys/fs/cgroup/kubepods.slice/x"),
        (HYBRID_MOUNTS, set(), "/a", "/sys/fs/cgroup/unified/a"),
        (V2_MOUNT.replace("0:26 /", "0:26 /docker/ab"), set(), "/docker/ab/k", "/sys/fs/cgroup/k"),
        (V2_MOUNT.replace("0:26 /", "0:26 /docker/ab"), set(), "/docker/abc/k", None),
        (V2_MOUNT.replace("0:26 /", "0:26 /../.."), set(), "/../../k", "/sys/fs/cgroup/k"),
        (V2_MOUNT, set(), "/../../k", None),
        (V2_MOUNT.replace("/sys/fs", r"/a\040b"), set(), "/k", "/a b/cgroup/k"),
    ],
)
def test_a_cgroup_s_files_are_where_its_hierarchy_is_mounted(
    mounts: str, controllers: set[str], path: str, expected: str | None
) -> None:
    assert directory(parse_mounts(mounts), Place(frozenset(controllers), path)) == expected


def test_the_telling_hierarchies_come_first() -> None:
    places = parse_places(v1("/a") + v2("/b"))

    assert places[0] == Place(UNIFIED, "/b")
    assert places[1] == Place(frozenset({"memory"}), "/a")
    assert Place(frozenset({"cpu", "cpuacct"}), "/a") in places


def test_a_mount_shows_its_own_hierarchy_only() -> None:
    memory = CgroupMount(unified=False, root="/", point="/m", options=frozenset({"rw", "memory"}))

    assert memory.shows(Place(frozenset({"memory"}), "/"))
    assert not memory.shows(Place(UNIFIED, "/"))
    assert not memory.shows(Place(frozenset({"pids"}), "/"))
