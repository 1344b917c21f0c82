"""Memory that several processes or GPUs know, behind the shim: who made it pays for it."""

import pytest

from tests.native.gpu_node import GpuNode, accounts_by_gpu
from tests.native.shim.memory.virtual_scripts import LIMIT, PAGE, PRELUDE
from tests.native.shim_container import Container

pytestmark = pytest.mark.namespaces


@pytest.fixture
async def container(node: GpuNode) -> Container:
    return await node.container({0: LIMIT})


SHARED = """
import subprocess, sys
vm.begin()
path = os.environ["WORK"] + "/s"
child = subprocess.Popen([sys.executable, "-c", CHILD, path], stdin=subprocess.PIPE,
                         stdout=subprocess.PIPE, text=True)
def ask(expression):
    child.stdin.write(expression + "\\n")
    child.stdin.flush()
    return json.loads(child.stdout.readline())
"""
CHILD = """
import json, sys
from tests.native.programs import virtual_client as vm
P, path, kept = vm.PAGE, sys.argv[1], {}
for line in sys.stdin:
    print(json.dumps(eval(line)), flush=True)
"""
SHARED = f"{PRELUDE}CHILD = {CHILD!r}\n{SHARED}"


async def test_who_imports_memory_through_a_socket_pays_nothing_for_it(
    container: Container, node: GpuNode
) -> None:
    told = await container.run(
        SHARED
        + """
own = ask("[vm.begin(), kept.update(listener=vm.listen(path)), vm.create(2 * P)[0]]")
_, handle = vm.create(60 * P, shared=True)
descriptor = vm.export(handle)
vm.send(path, descriptor)
taken = ask("[kept.update(h=vm.take(vm.receive(kept['listener']))), kept['h'][0]][1]")
at = vm.reserve(60 * P)
vm.map_at(at, 60 * P, handle), vm.permit(at, 60 * P), vm.write(at, b"the same bytes")
read = ask("[kept.update(at=vm.reserve(60 * P)), vm.map_at(kept['at'], 60 * P, kept['h'][1]),"
           " vm.permit(kept['at'], 60 * P), vm.read(kept['at'], 14)]")
seen = [vm.held(), vm.create(3 * P)[0]]
left = ask("[vm.unmap(kept['at'], 60 * P), vm.release(kept['h'][1]), vm.held()]")
tell(own=own, taken=taken, read=read, seen=seen, left=left,
     end=[vm.release(handle), vm.unmap(at, 60 * P), vm.held()])
child.kill()
child.wait()
""",
        WORK=str(container.work),
    )

    assert (told["own"], told["taken"]) == ([0, None, 0], 0)
    assert told["read"] == [None, 0, 0, "the same bytes"]
    assert told["seen"] == [[62, 62], 2]
    assert (told["left"], told["end"]) == ([0, 0, [62, 62]], [0, 0, [2, 2]])
    assert accounts_by_gpu(node.gpus)[0][0].bytes_peak == 62 * PAGE


@pytest.mark.parametrize("entry", ["cuIpcOpenMemHandle", "cuIpcOpenMemHandle_v2"])
async def test_memory_opened_from_another_process_of_the_container_is_charged_once(
    container: Container, entry: str
) -> None:
    told = await container.run(
        SHARED
        + f"""
address = vm.U64()
assert vm.cuda.cuMemAlloc_v2(ctypes.byref(address), vm.SIZE(40 * P)) == 0
code, handle = vm.ipc_handle(address.value)
vm.write(address.value, b"the same bytes")
opened = ask(f"[vm.begin(), kept.update(o=vm.ipc_open({{handle!r}}, '{entry}')), kept['o'][0]]")
seen = [vm.held(), ask("vm.read(kept['o'][1], 14)"), ask("vm.create(25 * P)[0]")]
closed = ask("[vm.ipc_close(kept['o'][1]), vm.held()]")
tell(code=code, opened=opened, seen=seen, closed=closed,
     end=[vm.cuda.cuMemFree_v2(address), vm.held()])
child.kill()
child.wait()
""",
        WORK=str(container.work),
    )

    assert (told["code"], told["opened"]) == (0, [0, None, 0])
    assert told["seen"] == [[40, 40], "the same bytes", 2]
    assert (told["closed"], told["end"]) == ([0, [40, 40]], [0, [0, 0]])


async def test_what_a_multicast_object_binds_stays_charged_until_it_is_unbound_or_gone(
    container: Container,
) -> None:
    told = await container.run(
        PRELUDE
        + """
vm.begin()
_, object = vm.multicast(16 * P)
at = vm.reserve(32 * P)
seen = [vm.join(object, 0), vm.held()]
_, first = vm.create(8 * P)
seen += [vm.bind(object, first, 8 * P), vm.bind(object, first, 8 * P), vm.release(first)]
vm.segment(at, 4 * P)
seen += [vm.bind_at(object, at, 4 * P, 8 * P), vm.unmap(at, 4 * P), vm.held()]
seen += [vm.unbind(object, 0, 8 * P, P), vm.unbind(object, 0, 8 * P), vm.held()]
seen += [vm.map_at(at, 16 * P, object), vm.release(object), vm.held()]
seen += [vm.unmap(at, 16 * P), vm.held()]
tell(seen=seen)
"""
    )

    bound, unbound = [0, 1, 0, 0, 0, [12, 12]], [1, 0, [4, 4]]
    assert told["seen"] == [0, [0, 0], *bound, *unbound, 0, 0, [4, 4], 0, [0, 0]]
