"""Where the driver knows processes by other numbers than the manager does.

An agent in a pid namespace of its own is told the pids of the host. What it is not told of a
process is not nothing: limits hold by the turns themselves.
"""

import pytest
from harness import Tenant, play

from gpumanager.sim.container.process import namespaces_available

MISSING = namespaces_available()
pytestmark = [
    pytest.mark.namespaces,
    pytest.mark.skipif(MISSING is not None, reason=MISSING or ""),
]


@pytest.mark.parametrize("kernel", ["50us", "2ms", "20ms", "150ms", "10ms pattern=sync"])
async def test_a_limit_holds_for_a_process_that_is_never_listed(kernel: str) -> None:
    tenant = Tenant("a", 50, f"kernel={kernel} for=10s")

    played = await play([tenant], 8, same_pids=False)

    assert played.share("a", 1.0) == pytest.approx(0.50, abs=0.01)


@pytest.mark.parametrize("kernel", ["50us", "2ms"])
async def test_neighbours_that_are_never_listed_get_what_they_are_promised(kernel: str) -> None:
    tenants = [
        Tenant(name, cores, f"kernel={kernel} for=10s") for name, cores in (("a", 30), ("b", 60))
    ]

    played = await play(tenants, 8, same_pids=False)

    assert played.share("a", 1.0) == pytest.approx(0.30, abs=0.01)
    assert played.share("b", 1.0) == pytest.approx(0.60, abs=0.01)
