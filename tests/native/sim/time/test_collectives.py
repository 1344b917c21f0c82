"""Kernels that wait for one another, as NCCL's do: on the timeline, and in a program."""

import json

import pytest

from tests.native.sim.time.timeline import COLLECTIVE, SLICE, Timeline, timeline
from tests.native.sim_box import SimBox, machine, sim_box

MS = 1_000_000
LENGTH = MS


def collective(
    line: Timeline, process: int, *, gpu: int = 0, group: int = 7, members: int = 2
) -> int:
    return line.queue(process, LENGTH, kind=COLLECTIVE, gpu=gpu, group=group, members=members)


@pytest.mark.parametrize("looked_at", [(0,), (1,), (0, 1)])
def test_it_ends_only_when_all_have_begun_whoever_looks(looked_at: tuple[int, ...]) -> None:
    with timeline(2, gpus=2) as line:
        first = collective(line, 0, gpu=0)
        line.advance(MS)
        line.queue(1, 5 * MS, gpu=1)
        last = collective(line, 1, gpu=1)
        told = line.predict(0, first, gpu=0)
        for _ in range(10):
            line.advance_to(line.now + MS, *looked_at)

        assert line.end(0, first, gpu=0) == line.end(1, last, gpu=1) == 7 * MS
        assert told <= line.start + 7 * MS
        assert (line.busy(0)[0], line.busy(1)[1]) == (7 * MS, 6 * MS)


def test_a_kernel_begins_when_its_process_first_has_the_gpu() -> None:
    with timeline(3, gpus=2) as line:
        early = collective(line, 0, gpu=0)
        line.queue(1, 10 * SLICE, gpu=1)
        late = collective(line, 2, gpu=1)  # its turn comes after a slice of process 1
        line.advance(20 * SLICE)

        assert line.end(0, early, gpu=0) == SLICE + LENGTH
        assert line.end(2, late, gpu=1) == SLICE + LENGTH


def test_two_processes_on_one_gpu_spin_in_their_turns() -> None:
    with timeline(2) as line:
        ends = [collective(line, process) for process in (0, 1)]
        line.advance(10 * SLICE)

        # Process 0 spins for a slice; 1 begins, and takes its length; so does 0.
        assert [line.end(n, end) for n, end in enumerate(ends)] == [
            SLICE + 2 * LENGTH,
            SLICE + LENGTH,
        ]
        assert line.busy() == {0: SLICE + LENGTH, 1: LENGTH}


def test_several_in_a_row_keep_their_groups_apart() -> None:
    with timeline(2, gpus=2) as line:
        ends = {
            (process, group): collective(line, process, gpu=process, group=group)
            for group in range(200)
            for process in (0, 1)
        }
        line.advance(1000 * MS)

        assert all(
            line.end(process, end, gpu=process) == (group + 1) * LENGTH
            for (process, group), end in ends.items()
        )


def test_a_collective_that_lost_a_process_never_ends_and_leaves_nothing_behind() -> None:
    with timeline(3, gpus=2) as line:
        forsaken = collective(line, 0, gpu=0)
        line.advance(MS)
        line.queue(1, 2 * MS, gpu=1)
        collective(line, 1, gpu=1)
        line.advance(MS)
        line.kill(1)
        line.advance(1000 * MS)
        spun = line.end(0, forsaken, gpu=0), line.busy(0)[0]
        line.kill(0)
        again = collective(line, 2, gpu=0, members=1)
        line.advance(2 * MS)

        assert spun == (-1, 1002 * MS)
        assert line.end(2, again, gpu=0) == 1003 * MS


def test_no_more_of_them_at_once_than_there_is_room_for() -> None:
    with timeline(1) as line:
        for group in range(256):
            collective(line, 0, group=group)

        assert line.submit(0, 1, kind=COLLECTIVE, group=256, members=2) is None
        assert line.submit(0, 1, kind=COLLECTIVE, group=255, members=2) is not None


def started(box: SimBox, text: str, *words: str) -> dict[str, float]:
    finished = box.work("--json", *words, text)
    assert (finished.returncode, finished.stderr) == (0, "")
    told: dict[str, float] = json.loads(finished.stdout)
    return told


@pytest.mark.parametrize(("processes", "gpus"), [(1, 2), (2, 1), (2, 2)])
def test_a_program_reduces_over_all_its_gpus_round_by_round(processes: int, gpus: int) -> None:
    ranks = processes * gpus
    text = f"kernel=1ms pattern=allreduce processes={processes} gpus={gpus} for=200ms"
    with sim_box(machine(ranks)) as box:
        told = started(box, text)
        devices = box.gpus.tenants()[0].devices.values()

    rounds, rest = divmod(told["kernels"], 2 * ranks)
    assert rest == 0
    assert rounds > 4
    assert {device.launches for device in devices} == {2 * rounds}
    assert all(device.busy_ns >= rounds * (MS + MS // 10) for device in devices)


def test_who_waits_for_a_late_neighbour_spins_meanwhile() -> None:
    """Rank 1 shares its GPU with a long kernel of another program: rank 0 spins for it."""
    with sim_box(machine(2)) as box:
        other = box.client()
        assert other("[init(1), spin(600_000_000_000)]") == [0, 0]
        told = started(box, "kernel=1ms pattern=allreduce gpus=2 for=300ms")
        program = box.gpus.tenants()[0].devices
        first = program[box.machine.topology.gpus[0].uuid].busy_ns

    rounds = told["kernels"] / 4
    assert first > 1.5 * rounds * (MS + MS // 10)
