"""Programs that may not use a system call, by a filter, as sandboxes set them.

Without getpid a process was pid -1 to the simulated driver, which gave up its memory while it
lived; to one without kill, processes that had ended seemed to live, and the driver's ledger once
counted a container with more than its limit: what one held that had ended, and the next one's.
"""

import pytest

from tests.hostile.hostile_node import HostileNode, hostile

pytestmark = pytest.mark.namespaces

MIB = 1 << 20


async def test_a_container_never_holds_more_than_its_limit_whatever_is_forbidden() -> None:
    async with HostileNode() as node:
        (result,) = await node.run(hostile("one", "forbidden_calls.py", cores=50, memory=4))

    rows = {name: (started, int(held)) for name, started, held in map(str.split, node.said["one"])}
    assert list(rows) == ["getpid", "nothing", "kill"]
    assert {started for started, _ in rows.values()} == {"0"}
    assert min(held for _, held in rows.values()) > 512
    assert result.measured.memory_peak <= result.memory_limit == 1024 * MIB
