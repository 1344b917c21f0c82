"""Every way to instantiate, launch, upload and update a graph is hooked, by symbol and by name."""

import pytest

from tests.native.gpu_node import GpuNode
from tests.native.shim.graph.graph_limits import LIMIT, told
from tests.native.shim_container import Container

pytestmark = pytest.mark.namespaces


@pytest.fixture
async def container(one_gpu: GpuNode) -> Container:
    return await one_gpu.container(LIMIT)


VARIANTS = """
def pointer(value=0):
    return ctypes.c_void_p(int(value))

def by_name(symbol, version, flags):
    entry, status = ctypes.c_void_p(), ctypes.c_int()
    assert shim.cuGetProcAddress_v2(symbol.encode(), ctypes.byref(entry), version,
                                    ctypes.c_uint64(flags), ctypes.byref(status)) == 0
    return ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 5)(entry.value), entry.value

def call(function, *arguments):
    return function(*arguments, *[None] * (5 - len(arguments)))

class Params(ctypes.Structure):
    _fields_ = [("flags", ctypes.c_uint64), ("stream", ctypes.c_void_p),
                ("node", ctypes.c_void_p), ("result", ctypes.c_int)]

def instantiated(function, made, flags=None):
    executable, params = ctypes.c_void_p(), Params(flags or 0, int(stream))
    last = [] if flags is None else [ctypes.addressof(params)]
    code = call(function, ctypes.addressof(executable), int(made), *last)
    return code, executable.value

def tidy(executable):
    assert shim.cuGraphExecDestroy(pointer(executable)) == 0
    done(cu.cuStreamSynchronize(stream))
    assert shim.cuDeviceGraphMemTrim(0) == 0
    assert books() == truth() == 0
"""


@pytest.mark.parametrize(
    ("symbol", "base", "version", "per_thread"),
    [
        ("cuGraphInstantiate", "cuGraphInstantiate", 10000, 0),
        ("cuGraphInstantiate_v2", "cuGraphInstantiate", 11000, 0),
        ("cuGraphInstantiateWithFlags", "cuGraphInstantiateWithFlags", 12000, 0),
        ("cuGraphInstantiateWithParams", "cuGraphInstantiateWithParams", 12000, 0),
        ("cuGraphInstantiateWithParams_ptsz", "cuGraphInstantiateWithParams", 12000, 2),
    ],
)
async def test_every_way_to_instantiate_counts_by_symbol_and_by_name(
    container: Container, symbol: str, base: str, version: int, per_thread: int
) -> None:
    answer = await told(
        container,
        VARIANTS
        + f"""
found, entry = by_name({base!r}, {version}, {per_thread})
ours = ctypes.cast(shim.{symbol}, ctypes.c_void_p).value == entry
held = []
for function in found, ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 5)(entry):
    with_params = 0 if "WithParams" in {symbol!r} else None
    code, executable = instantiated(function, graph(6 * MIB), with_params)
    assert code == 0
    assert shim.cuGraphLaunch(pointer(executable), stream_ := pointer(stream)) == 0
    held.append(books() // MIB)
    assert right()
    tidy(executable)
code, executable = instantiated(found, graph(LIMIT + 1), with_params)
tell(ours=ours, held=held, code=code,
     refused=shim.cuGraphLaunch(pointer(executable), stream_), right=right())
""",
    )

    assert answer == {"ours": True, "held": [6, 6], "code": 0, "refused": 2, "right": True}


@pytest.mark.parametrize(
    ("symbol", "base", "per_thread"),
    [
        ("cuGraphLaunch", "cuGraphLaunch", 0),
        ("cuGraphLaunch_ptsz", "cuGraphLaunch", 2),
        ("cuGraphUpload", "cuGraphUpload", 0),
        ("cuGraphUpload_ptsz", "cuGraphUpload", 2),
    ],
)
@pytest.mark.parametrize("handle", ["stream", "0"])
async def test_every_way_to_launch_and_upload_counts_by_symbol_and_by_name(
    container: Container, symbol: str, base: str, per_thread: int, handle: str
) -> None:
    answer = await told(
        container,
        VARIANTS
        + f"""
found, entry = by_name({base!r}, 12000, {per_thread})
ours = ctypes.cast(shim.{symbol}, ctypes.c_void_p).value == entry
e, large = ready(graph(6 * MIB)), ready(graph(LIMIT + 1))
code = call(found, int(e), int({handle}))
held = books() // MIB
again = shim.{symbol}(pointer(e), pointer({handle}))
beyond = call(found, int(large), int({handle}))
tell(ours=ours, codes=[code, again, beyond], held=held, right=right())
tidy(int(e))
""",
    )

    assert answer == {"ours": True, "codes": [0, 0, 2], "held": 6, "right": True}


@pytest.mark.parametrize(
    "symbol", ["cuGraphInstantiateWithParams", "cuGraphInstantiateWithParams_ptsz"]
)
async def test_a_graph_uploaded_as_it_is_made_is_charged_then(
    container: Container, symbol: str
) -> None:
    answer = await told(
        container,
        VARIANTS
        + f"""
found = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 5)(
    ctypes.cast(shim.{symbol}, ctypes.c_void_p).value)
code, executable = instantiated(found, graph(6 * MIB), 2)
held = books() // MIB
assert right()
beyond, _ = instantiated(found, graph(LIMIT + 1), 2)
tell(code=code, held=held, beyond=beyond, right=right())
tidy(executable)
""",
    )

    assert answer == {"code": 0, "held": 6, "beyond": 2, "right": True}


@pytest.mark.parametrize(
    ("symbol", "version"), [("cuGraphExecUpdate", 11000), ("cuGraphExecUpdate_v2", 12000)]
)
async def test_both_ways_to_update_reach_the_driver(
    container: Container, symbol: str, version: int
) -> None:
    answer = await told(
        container,
        VARIANTS
        + f"""
found, entry = by_name("cuGraphExecUpdate", {version}, 0)
ours = ctypes.cast(shim.{symbol}, ctypes.c_void_p).value == entry
e, other = ready(graph()), graph()
result = (ctypes.c_uint64 * 4)()
code = call(found, int(e), int(other), ctypes.addressof(result), ctypes.addressof(result) + 24)
kernel(other, [], 1)
changed = call(found, int(e), int(other), ctypes.addressof(result), ctypes.addressof(result) + 24)
tell(ours=ours, codes=[code, changed])
""",
    )

    assert answer == {"ours": True, "codes": [0, 910]}
