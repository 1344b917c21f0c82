"""tinygrad: a client that finds the driver's functions by their plain exported names, and launches
kernels with their parameters in one buffer (`extra`)."""

import pytest

from gpumanager.units import GIB, MIB
from tests.clients.client_box import ClientBox

pytest_plugins = ["tests.clients.client_fixtures"]
pytestmark = [pytest.mark.clients, pytest.mark.namespaces]

LIMIT = GIB


async def test_tensors_are_computed_within_the_limit_refused_beyond_and_computed_again(
    clients: ClientBox,
) -> None:
    finished = await clients.python(
        f"""
from tinygrad import Tensor
def compute(size):
    tensor = (Tensor.ones(size // 4, device="CUDA").contiguous() * 3).contiguous().realize()
    return tensor.shape
first = compute({64 * MIB})
try:
    compute({LIMIT + MIB})
    refused = ""
except Exception as error:
    refused = f"{{type(error).__name__}}: {{error}}"
tell(first=first, refused=refused, again=compute({32 * MIB}))
""",
        limit=LIMIT,
    )

    told = finished.told
    assert told["first"] == [16 * MIB]
    assert told["again"] == [8 * MIB]
    assert told["refused"].startswith("MemoryError: Allocation of 1.00 GB failed on CUDA")
    (account,) = clients.accounts()
    assert account.launches >= 2
    assert 64 * MIB <= account.bytes_peak <= LIMIT
    assert account.refused == 0
