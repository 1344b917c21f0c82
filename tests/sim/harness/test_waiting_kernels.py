"""Turns of containers whose kernels wait: for one another on several GPUs, or for a host.

A round of a job is a kernel on each GPU, then an all-reduce, whose kernels spin until all have
begun. With half of each GPU a job has at most half of its rounds.
"""

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from harness import HarnessResult, Tenant, play

pytestmark = pytest.mark.namespaces

SOURCE = Path(__file__).with_name("programs") / "waits.c"
POINT = 0.01
SHAPE = "blocks=264 threads=1024"
NEIGHBOUR = Tenant("neighbour", 30, "kernel=200us for=3s")


@pytest.fixture(scope="module")
def waits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("waits") / "waits"
    words = ["gcc", "-O1", "-pthread", "-o", str(program), str(SOURCE), "-ldl"]
    subprocess.run(words, check=True, timeout=300)
    return program


def job(kernel: str, ranks: str) -> Tenant:
    """gpus=N: one thread for all GPUs; processes=N: a process for each."""
    return Tenant("job", 50, f"kernel={kernel} pattern=allreduce {ranks} {SHAPE} for=3s")


async def without_turns(tenant: Tenant, gpus: int = 2) -> HarnessResult:
    return await play([tenant], 5.0, gpus=gpus, limiter="none")


async def beside_a_neighbour(tenants: Sequence[Tenant], gpus: int = 2) -> HarnessResult:
    return await play([*tenants, NEIGHBOUR], 6.0, gpus=gpus)


def rounds(played: HarnessResult) -> float:
    """Of all ranks, in a second."""
    told = played.reports["job"]
    return float(told["kernels"] / told["seconds"])


@pytest.mark.parametrize(
    ("kernel", "ranks", "gpus"),
    [("50us", "processes=2", 2), ("20ms", "processes=8", 8), ("200us", "gpus=8", 8)],
)
async def test_a_job_alone_has_its_part_of_the_rounds(kernel: str, ranks: str, gpus: int) -> None:
    alone = rounds(await without_turns(job(kernel, ranks), gpus))
    held = await play([job(kernel, ranks)], 8.0, gpus=gpus)

    saved = 0.1 / 3  # what a container may save up before it begins
    assert 0.97 * 0.50 * alone < rounds(held) < 1.03 * (0.50 + saved) * alone
    assert held.share("job", until=3) / gpus < 0.50 + saved + POINT


@pytest.mark.parametrize(("kernel", "ranks"), [("50us", "gpus=2"), ("1ms", "processes=2")])
async def test_a_job_beside_a_neighbour_has_its_part_of_the_rounds(kernel: str, ranks: str) -> None:
    alone = await without_turns(job(kernel, ranks))
    played = await beside_a_neighbour([job(kernel, ranks)])

    done = played.reports["job"]["kernels"] / alone.reports["job"]["kernels"]
    assert 0.88 * 0.50 < done < 0.53
    assert played.share("neighbour", since=1, until=3) == pytest.approx(0.30, abs=1.5 * POINT)


@pytest.mark.parametrize(
    ("kernel", "ranks", "least"), [("50us", "gpus=2", 0.29), ("1ms", "processes=2", 0.36)]
)
async def test_a_job_pays_for_spinning_beside_a_neighbour_that_fills_a_gpu(
    kernel: str, ranks: str, least: float
) -> None:
    """Of short rounds no more than 70 % of half are due: the second GPU spins in the neighbour's
    slices of the first."""
    neighbour = Tenant("neighbour", 30, f"kernel=1ms {SHAPE} for=3s")
    alone = rounds(await without_turns(job(kernel, ranks)))
    held = await play([job(kernel, ranks), neighbour], 6.0, gpus=2)

    assert rounds(held) > least * alone
    assert held.share("job", 1.0, 3.0) / 2 < 0.50 + 2 * POINT
    assert held.share("neighbour", 1.0, 3.0) > 0.29


@pytest.mark.parametrize(
    ("kind", "kernel_us", "rounds"),
    [
        pytest.param("threads", 1000, 1000, id="a thread for each GPU"),
        pytest.param("flag", 200, 3000, id="for its host, after the next launch"),
    ],
)
async def test_kernels_that_wait_for_the_next_launch(
    waits: Path, kind: str, kernel_us: int, rounds: int
) -> None:
    job = Tenant("job", 50, f"{waits} {kind} {kernel_us * 1000} {rounds}")
    alone = await without_turns(job)
    played = await beside_a_neighbour([job])

    rate = alone.reports["job"]["seconds"] / played.reports["job"]["seconds"]
    assert 0.88 * 0.50 < rate < 0.55
    assert played.share("neighbour", since=1.5, until=2.5) > 0.30 - 2 * POINT


@pytest.mark.parametrize(
    ("rounds", "ceiling"),
    [
        pytest.param(100, 100, id="time that nobody else wants is lent"),
        pytest.param(40, None, id="both under a hard limit"),
    ],
)
async def test_kernels_that_wait_for_another_containers_host_end(
    waits: Path, tmp_path: Path, rounds: int, ceiling: int | None
) -> None:
    """A round takes two turns. Under a hard limit the time in which they wait is charged."""
    pair = [
        Tenant(name, 25, f"{waits} {name} 200000 {rounds} {tmp_path}/flags", ceiling=ceiling)
        for name in ("ping", "pong")
    ]
    played = await beside_a_neighbour(pair, 1)

    for one in pair:
        assert played.reports[one.name]["seconds"] < 2.5
    assert played.share("neighbour", since=1, until=3) > 0.30 - POINT


async def test_collectives_take_nothing_from_a_neighbour() -> None:
    """Of a container that hardly uses its second GPU, and none of it for most of the time."""
    phase = f"kernel=50us pattern=allreduce gpus=2 {SHAPE} for=100ms; kernel=200us for=650ms"
    played = await beside_a_neighbour([Tenant("job", 70, "; ".join([phase] * 4), ceiling=100)])

    assert played.share("neighbour", since=1, until=3) > 0.30 - POINT
