"""cuda.core, NVIDIA's Python interface to the driver: pools, streams, libraries, launches."""

import pytest

from gpumanager.units import GIB, MIB
from tests.clients.client_box import ClientBox, client_box
from tests.clients.suites import Suite, cuda_core, ends_of

pytest_plugins = ["tests.clients.client_fixtures"]
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


async def test_what_nvrtc_compiled_says_of_itself_and_refuses_launches_it_has_no_room_for(
    clients: ClientBox,
) -> None:
    finished = await clients.python(
        f"""
{PRELUDE}
code = '''
__constant__ float table[20];
extern "C" __global__ void __launch_bounds__(128) sum(float *to, int n)
{{
    __shared__ float part[100];
    part[threadIdx.x % 100] = table[n % 20];
    __syncthreads();
    to[threadIdx.x] = part[n % 100];
}}
'''
program = Program(code, code_type="c++", options=ProgramOptions(arch=f"sm_{{device.arch}}"))
kernel = program.compile("cubin").get_kernel("sum")
buffer = memory.allocate(4096, stream=stream)
def tried(**shape):
    try:
        launch(stream, LaunchConfig(grid=1, **shape), kernel, buffer, 7)
    except Exception as error:
        return str(error).partition(":")[0]
    return ""
said = kernel.attributes
tell(
    sizes=[said.max_threads_per_block, said.shared_size_bytes, said.const_size_bytes],
    registers=said.num_regs,
    tried=[tried(block=size) for size in (128, 129, 1025)] + [tried(block=1, shmem_size=48 << 10)],
)
""",
        limit=LIMIT,
    )

    told = finished.told
    assert told["sizes"] == [128, 400, 80]
    assert 0 < told["registers"] < 32
    assert told["tried"] == [
        "",
        "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
        "CUDA_ERROR_INVALID_VALUE",
        "CUDA_ERROR_INVALID_VALUE",
    ]


CAUSES = {
    "cuPointerGetAttributes (497)": ("core.Buffer.from_handle", "core.Buffer.is_managed"),
    "pools exported by file descriptor (92)": (
        "core.DeviceMemoryResource.allocation_handle",
        "core.DeviceMemoryResource.from_allocation_handle",
        "core.Buffer.ipc_descriptor",
    ),
    "cuLaunchHostFunc and host nodes": (
        "graph.GraphBuilder.callback",
        "graph.GraphDefinition.callback",
        "graph.ExecutableHostCallbackNode.update",
    ),
    "cuLink": ("core.Linker.link", "core.Linker.get_info_log"),
    "user objects": ("graph.GraphBuilder.complete", "graph.KernelNode.launch"),
    "textures, surfaces, copies to arrays": (
        "core.Device.create_texture_object",
        "core.Device.create_surface_object",
        "texture.OpaqueArray.copy_from",
        "texture.MipmappedArray.get_level",
    ),
    "conditional nodes": (
        "graph.GraphDefinition.if_then",
        "graph.GraphDefinition.while_loop",
        "graph.GraphBuilder.if_then",
    ),
    "green contexts": ("core.Device.create_context", "core.SMResource.split"),
    "sensors of NVML": ("system.Device.temperature", "system.Device.brand", "system.Device.serial"),
}
"""Why tests of cuda.core failed on the bare simulated driver, and members that need just that."""


async def test_members_that_the_simulated_driver_lacked_work_bare_and_behind_the_shim() -> None:
    members = [f"core_members.py::test_member[{one}]" for each in CAUSES.values() for one in each]
    suite = Suite("cuda.core", "causes", cuda_core, ran=len(members), passed=len(members))

    async with client_box(2) as clients:
        bare = await ends_of(clients, suite, suite.plan(), None, members)
        behind = await ends_of(clients, suite, suite.plan(), LIMIT, members)

    assert bare == behind == dict.fromkeys(members, ("passed", ""))
