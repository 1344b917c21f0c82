"""Machines from data files: those that come along, and those a user writes."""

from dataclasses import replace
from pathlib import Path

import pytest

from gpumanager.errors import InputError
from gpumanager.gpu.values import Bond, Level
from gpumanager.sim.machine import DEFAULT_BEHAVIOUR, H100, IDEAL, REAL, DriverBehaviour
from gpumanager.sim.machines import load_machine, machine_names
from gpumanager.units import GIB, MIB

MACHINE = """\
models:
  - name: Card
    memory: 8GiB
    sms: 10
    compute-capability: "8.0"
  - {name: Old, memory: 4096MiB, sms: 5, compute-capability: "7.0", context-memory: 100MiB}
gpus: [Card, Card, Old]
links:
  NODE: [[0, 1, 2]]
  PIX: [[0, 1]]
  NV2: [[0, 1]]
numa: [0, 0, 1]
"""

TABLE = """\
models:
  - {name: Card, memory: 8GiB, sms: 10, compute-capability: "8.0"}
gpus: 2
topology: |2
       GPU0  GPU1  CPU Affinity
  GPU0  X    PHB   0-3
  GPU1 PHB    X    0-3
"""


def written(tmp_path: Path, text: str) -> str:
    path = tmp_path / "machine.yaml"
    path.write_text(text)
    return str(path)


def refusal(tmp_path: Path, text: str) -> str:
    with pytest.raises(InputError) as caught:
        load_machine(written(tmp_path, text))
    return str(caught.value)


@pytest.mark.parametrize("name", machine_names())
def test_every_machine_that_comes_along_can_be_loaded(name: str) -> None:
    machine = load_machine(name)

    assert machine.name == name
    assert {gpu.model for gpu in machine.topology.gpus} == set(machine.models)


def test_the_machines_are_what_their_names_say() -> None:
    dgx = load_machine("dgx-a100").topology
    t4 = load_machine("t4x4").topology
    pcie = load_machine("two-socket-pcie-8").topology

    assert [dgx.bond(0, other) for other in (1, 2)] == [Bond(Level.PXB, 12), Bond(Level.SYS, 12)]
    assert dgx.gpus[0].memory == 40 * GIB
    assert [t4.bond(a, b).level for a, b in ((0, 1), (2, 3), (1, 2))] == [
        Level.PHB,
        Level.NODE,
        Level.SYS,
    ]
    assert [pcie.bond(0, other).level for other in (1, 2, 4)] == [Level.PIX, Level.PXB, Level.SYS]
    assert len(load_machine("single").topology.gpus) == 1


def test_a_user_describes_a_machine_by_groups_of_linked_gpus(tmp_path: Path) -> None:
    machine = load_machine(written(tmp_path, MACHINE))

    assert machine.name == "machine"
    topology = machine.topology
    assert topology.bond(0, 1) == Bond(Level.PIX, 2)
    assert topology.bond(0, 2) == Bond(Level.NODE)
    assert [gpu.memory for gpu in topology.gpus] == [8 * GIB, 8 * GIB, 4 * GIB]
    assert [gpu.numa_node for gpu in topology.gpus] == [0, 0, 1]
    assert machine.models["Old"].context_bytes == 100 * MIB


def test_a_user_says_how_fast_a_machine_moves_bytes_and_how_long_turns_last(
    tmp_path: Path,
) -> None:
    fast = "sms: 10\n    memory-bandwidth: 2000\n    link-bandwidth: 25"
    machine = load_machine(
        written(tmp_path, MACHINE.replace("sms: 10", fast) + "driver: {time-slice: 500}")
    )

    model, silent = machine.models["Card"], machine.models["Old"]
    assert (model.memory_bandwidth, model.link_bandwidth) == (2000 * 10**9, 25 * 10**9)
    assert (silent.memory_bandwidth, silent.link_bandwidth) == (0, 0)
    assert machine.driver.slice_ns == 500_000


@pytest.mark.parametrize(
    ("words", "driver"),
    [
        ("{}", DEFAULT_BEHAVIOUR),
        ("{like: ideal}", IDEAL),
        ("{like: real}", REAL),
        ("{like: h100}", H100),
        ("{switch-cost: 0, like: real}", replace(REAL, switch_ns=0)),
        ("{hmm: true, hides-memory: true}", replace(REAL, hmm=True, hides_memory=True)),
    ],
)
def test_a_user_says_like_which_driver_a_machines_is(
    tmp_path: Path, words: str, driver: DriverBehaviour
) -> None:
    assert load_machine(written(tmp_path, f"{MACHINE}\ndriver: {words}")).driver == driver


def test_a_user_describes_a_machine_by_what_nvidia_smi_prints(tmp_path: Path) -> None:
    machine = load_machine(written(tmp_path, TABLE))

    assert machine.topology.bond(0, 1) == Bond(Level.PHB)


def test_an_unknown_machine_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(
        InputError, match="no machine 'dgx': known are dgx-a100, h100, single, t4x4"
    ):
        load_machine("dgx")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected one description of a machine, found 0"),
        ("a: 1\n---\nb: 2", "found 2"),
        ("- x", ":1: expected a mapping"),
        ("models: {", "not YAML"),
        (MACHINE.replace("gpus:", "gpu:"), ":7: gpu: unknown field; did you mean gpus?"),
        (MACHINE.replace("memory: 8GiB", "memory: lots"), ":3: models[0].memory: 'lots' is not"),
        (MACHINE.replace("memory: 8GiB", "memory: 1MiB"), "less than one memory block"),
        (MACHINE.replace("sms: 10", "sms: ten"), ":4: models[0].sms: expected an integer"),
        (MACHINE.replace('"8.0"', "eight"), "compute-capability: expected for example 8.0"),
        (
            MACHINE.replace("[Card, Card, Old]", "[Card, New]"),
            "expected one of Card, Old, found",
        ),
        (MACHINE.replace("[Card, Card, Old]", "0"), "expected 1 to 16 GPUs, found 0"),
        (MACHINE.replace("[Card, Card, Old]", "1000000"), "expected 1 to 16 GPUs"),
        (MACHINE.replace("PIX: [[0, 1]]", "PIX: [[0, 3]]"), "not among 0 to 2"),
        (MACHINE.replace("PIX: [[0, 1]]", "PIX: [[0, 0]]"), "two or more different GPUs"),
        (MACHINE.replace("PIX:", "PIY:"), "no such link; known are NV1, NV2"),
        (MACHINE.replace("numa: [0, 0, 1]", "numa: [0, 0]"), "for each of 3 GPUs"),
        (TABLE.replace("GPU1 PHB", "GPU1 SYS"), ":7: topology: "),
        (TABLE.replace("gpus: 2", "gpus: 3"), "has 2 GPUs, but gpus says 3"),
        (TABLE + "numa: [0, 0]\n", "given beside topology"),
        (MACHINE + "cuda-version: 99999999999\n", "cuda-version: expected for example 12050"),
        (MACHINE + "cuda-version: -5\n", "cuda-version: expected for example 12050"),
        (MACHINE.replace("[0, 0, 1]", "[0, 0, 999999]"), "expected a NUMA node of 0 to 1023"),
        (MACHINE.replace("memory: 8GiB", "memory: 900TiB"), "larger than any GPU"),
        (MACHINE.replace("8GiB", "8GiB\n    context-memory: 8GiB"), "leaves nothing of the memory"),
        (MACHINE.replace("name: Old", "name: Card"), "models: two models of one name"),
        (MACHINE.replace("name: Card", 'name: ""'), "models[0].name: expected a name of 1 to 95"),
        ("models: [{}]\ngpus: 1", "compute-capability is missing"),
    ],
)
def test_a_broken_description_is_refused_with_line_and_cause(
    tmp_path: Path, text: str, message: str
) -> None:
    assert message in refusal(tmp_path, text)


def test_a_file_that_is_not_there_is_refused() -> None:
    with pytest.raises(InputError, match=r"nowhere/m\.yaml: cannot be read: No such file"):
        load_machine("nowhere/m.yaml")
