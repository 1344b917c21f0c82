"""The trace that is replayed: read, arranged, made up."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumanager.errors import InputError
from gpumanager.placement.values import PodRequest, Request
from gpumanager.sim.trace import (
    MIXES,
    TracePod,
    arrange,
    idle_node,
    make_nodes,
    make_pods,
    read_nodes,
    read_pods,
)
from tests.sim.made_up_traces import made_up

PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos\n"
NODES = "sn,cpu_milli,memory_mib,gpu,model\n"


def written(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_pods_are_read_as_published(tmp_path: Path) -> None:
    rows = "a,12000,16384,1,455,,LS\nb,6000,1024,2,1000,T4|P100,LS\nc,1000,512,0,0,,BE\n"
    path = written(tmp_path / "pods.csv", PODS + rows)

    assert read_pods(path) == (
        TracePod("a", PodRequest((Request(46),), 12000, 16384), 455),
        TracePod("b", PodRequest((Request(200),), 6000, 1024, frozenset({"T4", "P100"})), 2000),
        TracePod("c", PodRequest((), 1000, 512), 0),
    )


def test_nodes_are_read_as_published_in_any_order_of_columns(tmp_path: Path) -> None:
    text = "model,gpu,sn,memory_mib,cpu_milli\r\nP100,2,n,262144,64000\r\n"

    (node,) = read_nodes(written(tmp_path / "nodes.csv", text))

    assert node == idle_node("n", "P100", 2, cpu_milli=64000, memory_mib=262144)
    assert [gpu.cores for gpu in node.gpus] == [100, 100]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "pods.csv:1: no column name, cpu_milli, memory_mib, num_gpu, gpu_milli"),
        ("name,cpu_milli\n", "pods.csv:1: no column memory_mib, num_gpu, gpu_milli"),
        (PODS, "pods.csv: has no rows below its header"),
        (PODS + "a,1,1,0,0,,\nb,x,1,1,500,,\n", "pods.csv:3: cpu_milli is 'x'"),
        (PODS + "a,1,1,1,1001,,\n", "pods.csv:2: gpu_milli is '1001': write a whole number from 0"),
        (PODS + "a,1,1,1,0,,\n", "pods.csv:2: gpu_milli is 0"),
        (PODS + "a,1,1,2,500,,\n", "pods.csv:2: gpu_milli is 500: of several GPUs each is whole"),
        (PODS + "a,1,1,-1,500,,\n", "pods.csv:2: num_gpu is '-1'"),
        (PODS + "a,1\n", "pods.csv:2: num_gpu is ''"),
        (PODS + f"a,{'9' * 5000},1,1,500,,\n", "pods.csv:2: cpu_milli is '9999"),
        (PODS + 'a,"1\n', "pods.csv:2: not a CSV file: unexpected end of data"),
        (PODS.encode() + b"\xff\xfe,1,1,1,1,,\n", "pods.csv: not a text file in UTF-8"),
    ],
)
def test_what_cannot_be_read_is_named_with_its_line(
    text: str | bytes, complaint: str, tmp_path: Path
) -> None:
    path = written(tmp_path / "pods.csv", text)

    with pytest.raises(InputError) as raised:
        read_pods(path)

    assert complaint in str(raised.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none.csv: No such file"):
        read_nodes(tmp_path / "none.csv")


@given(st.binary(max_size=200))
def test_no_file_is_worse_than_unreadable(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = written(tmp_path_factory.getbasetemp() / "any.csv", content)

    with pytest.raises(InputError):
        read_nodes(path)


def test_a_load_is_reached_by_drawing_pods_again() -> None:
    nodes = make_nodes(20, 1)
    pods = make_pods(nodes, MIXES["mixed"], 1)

    workload = arrange(nodes, pods, 1.5, 7)

    asked = [pod.gpu_milli for pod in workload.pods]
    assert sum(asked) >= 1.5 * workload.capacity_milli > sum(asked[:-1])
    assert sorted(pod.name for pod in workload.pods[: len(pods)]) == [pod.name for pod in pods]
    assert set(workload.pods) == set(pods)


def test_a_load_below_what_the_trace_asks_takes_its_first_pods() -> None:
    half, all_of_it = made_up(load=0.5), made_up(load=1.0)

    assert half.pods == all_of_it.pods[: len(half.pods)]


def test_the_seed_decides_the_order() -> None:
    nodes = make_nodes(10, 1)
    pods = make_pods(nodes, MIXES["mixed"], 1)

    assert arrange(nodes, pods, 1.0, 3) == arrange(nodes, pods, 1.0, 3)
    assert arrange(nodes, pods, 1.0, 3).pods != arrange(nodes, pods, 1.0, 4).pods


@pytest.mark.parametrize("missing", ["pods", "nodes"])
def test_without_gpus_there_is_no_load(missing: str) -> None:
    nodes = (idle_node("n", "", 0 if missing == "nodes" else 1, cpu_milli=1, memory_mib=1),)
    pods = (TracePod("a", PodRequest(), 0 if missing == "pods" else 1000),)

    with pytest.raises(InputError, match=missing):
        arrange(nodes, pods, 1.0, 1)
