"""Virtual memory management for programs under test: plain ctypes on `libcuda.so.1`.

Functions answer with result codes unless they say otherwise.
"""

import array
import ctypes
import socket

cuda = ctypes.CDLL("libcuda.so.1")

PAGE = 2 << 20
DEVICE, HOST = 1, 3  # of the host: a NUMA node, which drivers of CUDA 12 know too
READ_WRITE = 3
LAZY_PEER_ACCESS = 1
INTERPROCESS = 6

U64, SIZE = ctypes.c_uint64, ctypes.c_size_t


class Location(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int), ("id", ctypes.c_int))


class Properties(ctypes.Structure):
    """CUmemAllocationProp."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location", Location),
        ("win32", ctypes.c_void_p),
        ("flags", ctypes.c_ubyte * 8),
    )


class Access(ctypes.Structure):
    _fields_ = (("location", Location), ("flags", ctypes.c_int))


class Team(ctypes.Structure):
    """CUmulticastObjectProp."""

    _fields_ = (
        ("devices", ctypes.c_uint),
        ("size", SIZE),
        ("handle_types", ctypes.c_ulonglong),
        ("flags", ctypes.c_ulonglong),
    )


class IpcHandle(ctypes.Structure):
    _fields_ = (("reserved", ctypes.c_char * 64),)


def properties(device: int = 0, location: int = DEVICE, *, shared: bool = False) -> Properties:
    return Properties(1, int(shared), Location(location, device))


def create(
    size: int, device: int = 0, location: int = DEVICE, *, shared: bool = False
) -> list[int]:
    """The code, and the handle."""
    handle = U64()
    wanted = properties(device, location, shared=shared)
    code = cuda.cuMemCreate(ctypes.byref(handle), SIZE(size), ctypes.byref(wanted), U64(0))
    return [code, handle.value]


def release(handle: int) -> int:
    return int(cuda.cuMemRelease(U64(handle)))


def retain(address: int) -> list[int]:
    """The code, and the handle."""
    handle = U64()
    code = cuda.cuMemRetainAllocationHandle(ctypes.byref(handle), ctypes.c_void_p(address))
    return [code, handle.value]


def reserve(size: int, alignment: int = 0) -> int:
    """The address."""
    address = U64()
    where = SIZE(size), SIZE(alignment), U64(0), U64(0)
    assert cuda.cuMemAddressReserve(ctypes.byref(address), *where) == 0
    return address.value


def free_address(address: int, size: int) -> int:
    return int(cuda.cuMemAddressFree(U64(address), SIZE(size)))


def map_at(address: int, size: int, handle: int, offset: int = 0) -> int:
    return int(cuda.cuMemMap(U64(address), SIZE(size), SIZE(offset), U64(handle), U64(0)))


def unmap(address: int, size: int) -> int:
    return int(cuda.cuMemUnmap(U64(address), SIZE(size)))


def permit(address: int, size: int, device: int = 0, flags: int = READ_WRITE) -> int:
    access = Access(Location(DEVICE, device), flags)
    return int(cuda.cuMemSetAccess(U64(address), SIZE(size), ctypes.byref(access), SIZE(1)))


def permitted(address: int, device: int = 0) -> int:
    """The access flags."""
    flags = U64()
    location = Location(DEVICE, device)
    assert cuda.cuMemGetAccess(ctypes.byref(flags), ctypes.byref(location), U64(address)) == 0
    return flags.value


def write(address: int, text: bytes) -> int:
    return int(cuda.cuMemcpyHtoD_v2(U64(address), text, SIZE(len(text))))


def read(address: int, size: int) -> str:
    target = ctypes.create_string_buffer(size)
    assert cuda.cuMemcpyDtoH_v2(target, U64(address), SIZE(size)) == 0
    return target.raw.decode()


def segment(address: int, size: int, device: int = 0) -> int:
    """The idiom of allocators: create, map, release, permit."""
    code, handle = create(size, device)
    return int(
        code or map_at(address, size, handle) or release(handle) or permit(address, size, device)
    )


def export(handle: int) -> int:
    """The file descriptor, or the code as a negative number."""
    descriptor = ctypes.c_int(-1)
    code = cuda.cuMemExportToShareableHandle(ctypes.byref(descriptor), U64(handle), 1, U64(0))
    return descriptor.value if code == 0 else -code


def take(descriptor: int) -> list[int]:
    """Import: the code, and the handle."""
    handle = U64()
    shareable = ctypes.c_void_p(descriptor)
    code = cuda.cuMemImportFromShareableHandle(ctypes.byref(handle), shareable, 1)
    return [code, handle.value]


def send(path: str, descriptor: int) -> None:
    """Pass a file descriptor to the one who listens at this socket."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        rights = array.array("i", [descriptor])
        connection.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])


def listen(path: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    return listener


def receive(listener: socket.socket) -> int:
    """The file descriptor that comes next."""
    connection, _ = listener.accept()
    with connection:
        _, messages, _, _ = connection.recvmsg(1, socket.CMSG_SPACE(4))
    return array.array("i", messages[0][2])[0]


def multicast(size: int, devices: int = 1) -> list[int]:
    """The code, and the handle."""
    handle = U64()
    team = Team(devices, size, 1, 0)
    code = cuda.cuMulticastCreate(ctypes.byref(handle), ctypes.byref(team))
    return [code, handle.value]


def join(handle: int, device: int) -> int:
    return int(cuda.cuMulticastAddDevice(U64(handle), device))


def bind(handle: int, memory: int, size: int, offset: int = 0) -> int:
    where = U64(handle), SIZE(offset), U64(memory), SIZE(0), SIZE(size), U64(0)
    return int(cuda.cuMulticastBindMem(*where))


def bind_on(device: int, handle: int, memory: int, size: int) -> int:
    """As a program of CUDA 13 does it."""
    where = U64(handle), device, SIZE(0), U64(memory), SIZE(0), SIZE(size), U64(0)
    return int(cuda.cuMulticastBindMem_v2(*where))


def bind_at(handle: int, address: int, size: int, offset: int = 0) -> int:
    where = U64(handle), SIZE(offset), U64(address), SIZE(size), U64(0)
    return int(cuda.cuMulticastBindAddr(*where))


def bind_at_on(device: int, handle: int, address: int, size: int) -> int:
    where = U64(handle), device, SIZE(0), U64(address), SIZE(size), U64(0)
    return int(cuda.cuMulticastBindAddr_v2(*where))


def unbind(handle: int, device: int, size: int, offset: int = 0) -> int:
    return int(cuda.cuMulticastUnbind(U64(handle), device, SIZE(offset), SIZE(size)))


def endpoint_bind(endpoint: int, memory: int, size: int, offset: int = 0, flags: int = 0) -> int:
    where = endpoint, 0, U64(offset), U64(memory), U64(0), U64(size), U64(flags)
    return int(cuda.cuLogicalEndpointBindMem(*where))


def endpoint_bind_at(endpoint: int, address: int, size: int, offset: int = 0) -> int:
    where = endpoint, 0, U64(offset), ctypes.c_void_p(address), U64(size), U64(0)
    return int(cuda.cuLogicalEndpointBindAddr(*where))


def endpoint_unbind(endpoint: int, size: int, offset: int = 0) -> int:
    return int(cuda.cuLogicalEndpointUnbind(endpoint, 0, U64(offset), U64(size)))


class MapInfo(ctypes.Structure):
    """CUarrayMapInfo."""

    _fields_ = (
        ("resource_type", ctypes.c_int),
        ("resource", ctypes.c_void_p),
        ("subresource_type", ctypes.c_int),
        ("subresource", ctypes.c_uint64 * 4),
        ("operation", ctypes.c_int),
        ("handle_type", ctypes.c_int),
        ("handle", ctypes.c_uint64),
        ("offset", ctypes.c_uint64),
        ("devices", ctypes.c_uint),
        ("flags", ctypes.c_uint * 3),
    )


def map_tiles(entry: str, *handles: int) -> int:
    """Map memory to tiles of an array, of which the driver under test makes nothing."""
    list_ = (MapInfo * len(handles))()
    for tile, handle in zip(list_, handles, strict=True):
        tile.operation, tile.handle = 1, handle
    return int(getattr(cuda, entry)(list_, len(handles), None))


def ipc_handle(address: int) -> list[object]:
    """The code, and the handle as hexadecimal text."""
    handle = IpcHandle()
    code = cuda.cuIpcGetMemHandle(ctypes.byref(handle), U64(address))
    return [code, bytes(handle).hex()]


def ipc_open(text: str, entry: str = "cuIpcOpenMemHandle_v2") -> list[int]:
    """The code, and the address."""
    address = U64()
    handle = IpcHandle.from_buffer_copy(bytes.fromhex(text))
    code = getattr(cuda, entry)(ctypes.byref(address), handle, LAZY_PEER_ACCESS)
    return [code, address.value]


def ipc_close(address: int) -> int:
    return int(cuda.cuIpcCloseMemHandle(U64(address)))


def event(flags: int = INTERPROCESS) -> list[int]:
    """The code, and the event."""
    found = ctypes.c_void_p()
    code = cuda.cuEventCreate(ctypes.byref(found), flags)
    return [code, found.value or 0]


def event_handle(event: int) -> list[object]:
    """The code, and the handle as hexadecimal text."""
    handle = IpcHandle()
    code = cuda.cuIpcGetEventHandle(ctypes.byref(handle), ctypes.c_void_p(event))
    return [code, bytes(handle).hex()]


def event_open(text: str) -> list[int]:
    """The code, and the event."""
    found = ctypes.c_void_p()
    code = cuda.cuIpcOpenEventHandle(
        ctypes.byref(found), IpcHandle.from_buffer_copy(bytes.fromhex(text))
    )
    return [code, found.value or 0]


def of_event(verb: str, event: int, *more: None) -> int:
    """cuEventRecord, Query, Synchronize or Destroy_v2."""
    return int(getattr(cuda, f"cuEvent{verb}")(ctypes.c_void_p(event), *more))


def begin(device: int = 0) -> int:
    """cuInit, and a context on a device made the current one."""
    context = ctypes.c_void_p()
    return int(
        cuda.cuInit(0)
        or cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
        or cuda.cuCtxSetCurrent(context)
    )


def figures(library: ctypes.CDLL) -> tuple[int, int]:
    """What is used and how much there is on the current device, as a library says it."""
    left, total = SIZE(), SIZE()
    assert library.cuMemGetInfo_v2(ctypes.byref(left), ctypes.byref(total)) == 0
    return total.value - left.value, total.value


def held() -> tuple[float, float]:
    """Pages used on the current device: by the shim's books, and by the driver behind it.

    What another process is just asking for is in the books before the driver has looked at it, so
    a size that is no whole number of pages, which the driver refuses, can be seen there.
    """
    books, _ = figures(cuda)
    truth, _ = figures(ctypes.CDLL("libvcuda-real.so.1"))
    assert truth % PAGE == 0
    return books / PAGE, truth / PAGE
