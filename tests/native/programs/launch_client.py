"""Every way to take GPU time: each once, by the name of the driver's function.

Runs in a container. `prepare()` makes a context and what the ways work on; then `way(name)` takes
some time of the GPU and answers with the driver's result.
"""

import ctypes
from collections.abc import Callable
from typing import Any

from tests.native.programs.shim_client import SPIN, SUCCESS, begin, cuda

U8, U16, U32, U64, SIZE = (
    ctypes.c_uint8,
    ctypes.c_uint16,
    ctypes.c_uint32,
    ctypes.c_uint64,
    ctypes.c_size_t,
)
INT, HANDLE = ctypes.c_int, ctypes.c_void_p
NANOSECONDS = 300_000
ROW, ROWS = 1024, 1024
BYTES = ROW * ROWS
DEVICE, UNIFIED = 2, 4
Ways = dict[str, Callable[[Any, Any], int]]
"""How to call each function, given it and a stream."""

driver = cuda()
ROOM = ctypes.create_string_buffer(256)
"""For what is put out and not looked at."""

made: dict[str, Any] = {}
"""What there is to work on, by name."""


def block(wide: Any, address: Any, *, deep: bool) -> type[ctypes.Structure]:
    """CUDA_MEMCPY2D or CUDA_MEMCPY3D, with integers and addresses of these types."""

    def side(name: str) -> list[tuple[str, Any]]:
        places = ["x", "y", "z", "level"] if deep else ["x", "y"]
        pitches = ["pitch", "height"] if deep else ["pitch"]
        inside = [(f"{name}_{place}", wide) for place in places]
        inside += [(f"{name}_memory", INT), (f"{name}_host", HANDLE), (f"{name}_device", address)]
        inside += [(f"{name}_array", HANDLE)] + [(f"{name}_context", HANDLE)] * deep
        return inside + [(f"{name}_{pitch}", wide) for pitch in pitches]

    extent = ["width", "height", "depth"] if deep else ["width", "height"]
    fields = side("from") + side("to") + [(name, wide) for name in extent]
    return type("Block", (ctypes.Structure,), {"_fields_": fields})


FLAT, DEEP = block(SIZE, U64, deep=False), block(SIZE, U64, deep=True)
FLAT_V1, DEEP_V1 = block(U32, U32, deep=False), block(U32, U32, deep=True)


class Part(ctypes.Structure):
    """CUDA_LAUNCH_PARAMS."""

    _fields_ = (
        ("function", HANDLE),
        ("shape", U32 * 7),
        ("stream", HANDLE),
        ("parameters", HANDLE),
    )


class Config(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (("shape", U32 * 7), ("stream", HANDLE), ("attributes", HANDLE), ("count", U32))


def prepare() -> None:
    made["function"] = begin(driver)
    for name, allocate, address in (
        ("to", driver.cuMemAlloc_v2, U64()),
        ("from", driver.cuMemAlloc_v2, U64()),
        ("low", driver.cuMemAlloc, U32()),
        ("low_from", driver.cuMemAlloc, U32()),
    ):
        size = U32(BYTES) if name.startswith("low") else SIZE(BYTES)
        assert allocate(ctypes.byref(address), size) == SUCCESS
        made[name] = address
    made["stream"], made["context"] = new_stream(), HANDLE()
    assert driver.cuCtxGetCurrent(ctypes.byref(made["context"])) == SUCCESS
    made["length"] = U64(NANOSECONDS)
    made["parameters"] = (HANDLE * 1)(ctypes.addressof(made["length"]))
    set_up_function()
    made["exec"] = graph_of(lambda: way("cuLaunchKernel", made["stream"]))


def spin_function() -> Any:
    """The kernel `spin`, in the current context."""
    module, function = HANDLE(), HANDLE()
    assert driver.cuModuleLoadData(ctypes.byref(module), SPIN) == SUCCESS
    assert driver.cuModuleGetFunction(ctypes.byref(function), module, b"spin") == SUCCESS
    return function


def set_up_function(threads: int = 32) -> None:
    """As the launches need it that came before cuLaunchKernel."""
    function, length = made["function"], made["length"]
    assert driver.cuFuncSetBlockShape(function, threads, 1, 1) == SUCCESS
    assert driver.cuParamSetSize(function, 8) == SUCCESS
    assert driver.cuParamSetv(function, 0, ctypes.byref(length), 8) == SUCCESS


def new_stream() -> Any:
    stream = HANDLE()
    assert driver.cuStreamCreate(ctypes.byref(stream), 1) == SUCCESS
    return stream


def begin_capture() -> int:
    return int(driver.cuStreamBeginCapture_v2(made["stream"], 2))


def capture(work: Callable[[], Any]) -> Any:
    """The graph of what is launched in `stream`."""
    graph, stream = HANDLE(), made["stream"]
    assert begin_capture() == SUCCESS
    work()
    assert driver.cuStreamEndCapture(stream, ctypes.byref(graph)) == SUCCESS
    return graph


def executable(graph: Any) -> Any:
    found = HANDLE()
    assert driver.cuGraphInstantiateWithFlags(ctypes.byref(found), graph, U64(0)) == SUCCESS
    return found


def graph_of(work: Callable[[], Any]) -> Any:
    return executable(capture(work))


def chain(nanoseconds: int) -> Any:
    """A graph of one kernel."""
    before = made["length"].value
    made["length"].value = nanoseconds
    graph = capture(lambda: way("cuLaunchKernel", made["stream"]))
    made["length"].value = before
    return graph


def first(graph: Any) -> Any:
    """Its first node."""
    nodes, count = (HANDLE * 1)(), SIZE(1)
    assert driver.cuGraphGetNodes(graph, nodes, ctypes.byref(count)) == SUCCESS
    return HANDLE(nodes[0])


def replaced(old: Any, graph: Any) -> int:
    """Destroy an executable graph and make another that has its handle."""
    assert driver.cuGraphExecDestroy(old) == SUCCESS
    for _ in range(100):
        found = executable(graph)
        if found.value == old.value:
            return SUCCESS
    return -1


def shape(blocks: int = 1, threads: int = 32) -> tuple[int, ...]:
    return (blocks, 1, 1, threads, 1, 1, 0)


def config(stream: Any) -> Any:
    return ctypes.byref(Config((U32 * 7)(*shape()), stream.value, None, 0))


def part(stream: Any) -> Part:
    address = ctypes.addressof(made["parameters"])
    return Part(made["function"].value, (U32 * 7)(*shape()), stream.value, address)


def inside(kind: Any, memory: int = DEVICE, *, host: str = "") -> Any:
    """A copy of the rows of one allocation to another one. host: the side, from or to, that is
    pageable memory instead."""
    low = kind in (FLAT_V1, DEEP_V1)
    copy = kind(from_memory=memory, to_memory=memory, width=ROW, height=ROWS)
    copy.from_device, copy.to_device = (
        made["low_from" if low else "from"],
        made["low" if low else "to"],
    )
    copy.from_pitch = copy.to_pitch = ROW
    if kind in (DEEP, DEEP_V1):
        copy.depth, copy.from_height, copy.to_height = 1, ROWS, ROWS
    if kind is DEEP:
        copy.from_context = copy.to_context = made["context"]
    if host:
        made["host"] = ctypes.create_string_buffer(BYTES)
        setattr(copy, f"{host}_device", ctypes.addressof(made["host"]))
    return ctypes.byref(copy)


LAUNCHES: Ways = {
    "cuLaunchKernel": lambda f, s: f(made["function"], *shape(), s, made["parameters"], None),
    "cuLaunchKernelEx": lambda f, s: f(config(s), made["function"], made["parameters"], None),
    "cuLaunchCooperativeKernel": lambda f, s: f(made["function"], *shape(), s, made["parameters"]),
    "cuLaunchCooperativeKernelMultiDevice": lambda f, s: f(ctypes.byref(part(s)), 1, 0),
    "cuLaunch": lambda f, _: f(made["function"]),
    "cuLaunchGrid": lambda f, _: f(made["function"], 1, 1),
    "cuLaunchGridAsync": lambda f, s: f(made["function"], 1, 1, s),
    "cuGraphLaunch": lambda f, s: f(made["exec"], s),
}
COPIES: Ways = {
    "cuMemcpyDtoD": lambda f, _: f(made["to"], made["from"], SIZE(BYTES)),
    "cuMemcpyDtoDAsync": lambda f, s: f(made["to"], made["from"], SIZE(BYTES), s),
    "cuMemcpy2D": lambda f, _: f(inside(FLAT)),
    "cuMemcpy2DUnaligned": lambda f, _: f(inside(FLAT)),
    "cuMemcpy2DAsync": lambda f, s: f(inside(FLAT), s),
    "cuMemcpy3D": lambda f, _: f(inside(DEEP)),
    "cuMemcpy3DAsync": lambda f, s: f(inside(DEEP), s),
}
COPIES_V1: Ways = {
    "cuMemcpyDtoD": lambda f, _: f(made["low"], made["low_from"], BYTES),
    "cuMemcpyDtoDAsync": lambda f, s: f(made["low"], made["low_from"], BYTES, s),
    "cuMemcpy2D": lambda f, _: f(inside(FLAT_V1)),
    "cuMemcpy2DUnaligned": lambda f, _: f(inside(FLAT_V1)),
    "cuMemcpy2DAsync": lambda f, s: f(inside(FLAT_V1), s),
    "cuMemcpy3D": lambda f, _: f(inside(DEEP_V1)),
    "cuMemcpy3DAsync": lambda f, s: f(inside(DEEP_V1), s),
}
PEERS: Ways = {
    "cuMemcpyPeer": lambda f, _: f(*peers()),
    "cuMemcpyPeerAsync": lambda f, s: f(*peers(), s),
    "cuMemcpy3DPeer": lambda f, _: f(inside(DEEP)),
    "cuMemcpy3DPeerAsync": lambda f, s: f(inside(DEEP), s),
}


def peers() -> tuple[Any, ...]:
    context = made["context"]
    return made["to"], context, made["from"], context, SIZE(BYTES)


def fills(bits: int, element: Any) -> Ways:
    """By the name without `_ptds` and `_ptsz`."""
    one, width = element(1), ROW * 8 // bits
    count, rows = width * ROWS, (SIZE(ROW), one, SIZE(width), SIZE(ROWS))
    return {
        f"cuMemsetD{bits}": lambda f, _: f(made["low"], one, U32(count)),
        f"cuMemsetD{bits}_v2": lambda f, _: f(made["to"], one, SIZE(count)),
        f"cuMemsetD{bits}Async": lambda f, s: f(made["to"], one, SIZE(count), s),
        f"cuMemsetD2D{bits}": lambda f, _: f(made["low"], ROW, one, width, ROWS),
        f"cuMemsetD2D{bits}_v2": lambda f, _: f(made["to"], *rows),
        f"cuMemsetD2D{bits}Async": lambda f, s: f(made["to"], *rows, s),
    }


WAYS = (
    LAUNCHES
    | PEERS
    | fills(8, U8)
    | fills(16, U16)
    | fills(32, U32)
    | COPIES_V1
    | {f"{name}_v2": call for name, call in COPIES.items()}
)


def way(name: str, stream: Any = None) -> int:
    """Take GPU time by this function, in `stream` where it may be chosen."""
    call = WAYS[name.removesuffix("_ptsz").removesuffix("_ptds")]
    return int(call(getattr(driver, name), made["stream"] if stream is None else stream))
