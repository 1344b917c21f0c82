"""cuda.core, NVIDIA's Python interface to the driver: pools, streams, libraries, launches."""

import pytest
from client_box import ClientBox

from gpumanager.units import GIB, MIB

pytest_plugins = ["client_fixtures"]
pytestmark = [pytest.mark.clients, pytest.mark.namespaces]

LIMIT = GIB

PRELUDE = """
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch
device = Device()
device.set_current()
stream = device.create_stream()
memory = device.memory_resource
"""


async def test_a_pool_gives_up_to_the_limit_refuses_and_gives_again(clients: ClientBox) -> None:
    finished = await clients.python(
        f"""
{PRELUDE}
def fill():
    held = []
    while len(held) < 1000:
        try:
            held.append(memory.allocate({64 * MIB}, stream=stream))
        except Exception as error:
            return held, str(error)
first, why = fill()
count = len(first)
for buffer in first:
    buffer.close(stream)
stream.sync()
second, _ = fill()
tell(kind=type(memory).__name__, why=why, first=count, second=len(second))
""",
        limit=LIMIT,
    )

    told = finished.told
    assert told["kind"] == "DeviceMemoryResource"
    assert "CUDA_ERROR_OUT_OF_MEMORY" in told["why"]
    assert told["first"] == told["second"] == LIMIT // (64 * MIB)
    (account,) = clients.accounts()
    assert (account.bytes_peak, account.refused) == (LIMIT, 0)


COMPILE_AND_LAUNCH = f"""
{PRELUDE}
code = 'extern "C" __global__ void store(int *to, int count) {{ to[threadIdx.x] = count; }}'
program = Program(code, code_type="c++", options=ProgramOptions(arch=f"sm_{{device.arch}}"))
library = program.compile("cubin")
kernel = library.get_kernel("store")
buffer = memory.allocate(4096, stream=stream)
for _ in range(5):
    launch(stream, LaunchConfig(grid=4, block=64), kernel, buffer, 7)
event = stream.record()
event.sync()
buffer.close(stream)
stream.sync()
tell(
    threads=kernel.attributes.max_threads_per_block,
    blocks=kernel.occupancy.max_active_blocks_per_multiprocessor(64, 0),
    done=event.is_done,
    device=[device.name, str(device.uuid)],
)
"""


async def test_what_nvrtc_compiles_is_loaded_as_a_library_and_launched_as_without_the_shim(
    clients: ClientBox,
) -> None:
    bare = (await clients.python(COMPILE_AND_LAUNCH)).told
    limited = (await clients.python(COMPILE_AND_LAUNCH, limit=LIMIT)).told

    assert limited == bare
    assert limited["done"]
    assert [account.launches for account in clients.accounts()] == [5, 5]
