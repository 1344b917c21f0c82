"""Any history of virtual memory behind the shim: racing, killed and forked programs."""

import pytest

from tests.native.gpu_node import GpuNode, accounts_by_gpu
from tests.native.shim.memory.virtual_scripts import LIMIT, PRELUDE
from tests.native.shim_container import Container

pytestmark = pytest.mark.namespaces


@pytest.fixture
async def container(node: GpuNode) -> Container:
    return await node.container({0: LIMIT})


@pytest.mark.parametrize("seed", range(4))
async def test_through_any_history_the_books_say_what_the_driver_holds(
    container: Container, node: GpuNode, seed: int
) -> None:
    told = await container.run(
        "from tests.native.programs import virtual_history\n"
        f"tell(refused=virtual_history.run({seed}, 1500, alone=True))"
    )

    assert told["refused"] > 0
    account, _ = accounts_by_gpu(node.gpus)[0]
    assert 0 < account.bytes_peak <= LIMIT
    assert (account.bytes_now, account.refused) == (0, 0)


async def test_processes_that_race_never_hold_more_than_the_limit_together(
    container: Container, node: GpuNode
) -> None:
    told = await container.run(
        """
import subprocess, sys
history = sys.executable, "-m", "tests.native.programs.virtual_history"
racing = [subprocess.Popen([*history, str(seed), "800"]) for seed in range(4)]
tell(codes=[process.wait() for process in racing])
from tests.native.programs import virtual_client as vm
vm.begin()
soon(lambda: vm.held() == (0, 0), 5)
tell(held=vm.held())
"""
    )

    assert told == {"codes": [0] * 4, "held": [0, 0]}
    account, _ = accounts_by_gpu(node.gpus)[0]
    assert LIMIT // 2 < account.bytes_peak <= LIMIT


async def test_what_killed_processes_held_is_back_within_a_second_and_nothing_is_over_the_limit(
    container: Container, node: GpuNode
) -> None:
    told = await container.run(
        """
import random, subprocess, sys
from tests.native.programs import virtual_client as vm
from tests.native.shim.memory.virtual_scripts import LIMIT
history = sys.executable, "-m", "tests.native.programs.virtual_history"
vm.begin()
after = []
for round in range(4):
    racing = [subprocess.Popen([*history, str(9 * round + n), "1000000"])
              for n in range(3)]
    assert soon(lambda: 2 * vm.held()[0] * vm.PAGE > LIMIT, 60)
    time.sleep(random.random() / 5)
    [process.kill() for process in racing]
    assert [process.wait() for process in racing] == [-9] * 3
    soon(lambda: vm.held() == (0, 0))
    after.append(vm.held())
tell(after=after)
"""
    )

    assert told == {"after": [[0, 0]] * 4}
    account, _ = accounts_by_gpu(node.gpus)[0]
    assert LIMIT // 2 < account.bytes_peak <= LIMIT


async def test_a_forked_child_owes_nothing_of_its_parents_and_begins_anew(
    container: Container,
) -> None:
    told = await container.run(
        PRELUDE
        + """
vm.begin()
at = vm.reserve(64 * P)
vm.segment(at, 40 * P)
child = os.fork()
if child == 0:
    ok = vm.begin() == 0 and vm.held() == (40, 40) and vm.create(25 * P)[0] == 2
    os._exit(0 if ok and vm.segment(vm.reserve(24 * P), 24 * P) == 0 else 1)
status = os.waitpid(child, 0)[1]
soon(lambda: vm.held() == (40, 40), 5)
tell(status=status, held=vm.held(), end=[vm.unmap(at, 40 * P), vm.held()])
"""
    )

    assert told == {"status": 0, "held": [40, 40], "end": [0, [0, 0]]}
