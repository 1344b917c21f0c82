"""Every public class and method of cuda.core, called once: one test for each member.

The package index has no tests of cuda.core. These do not say what is right, only that each member
ends behind the shim as it ends bare. `MAKE` makes an object of each class; `CALLS` calls a method
that takes arguments; everything else is read, or called without any. Classes that are not in `MAKE`
are options, constants, exceptions and protocols.
"""

import inspect
import itertools
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import Any

import pytest
from cuda import core
from cuda.core import graph, system, texture, utils
from cuda.core.checkpoint import Process

SIZE = 1 << 16
CODE = 'extern "C" __global__ void store(int *to, int count) { to[threadIdx.x] = count; }'
BLOCK = core.LaunchConfig(grid=1, block=32)


@dataclass
class World:
    """What the members are called on and with; made when it is asked for."""

    device: Any

    @cached_property
    def stream(self) -> Any:
        return self.device.create_stream()

    @property
    def buffer(self) -> Any:
        return self.device.memory_resource.allocate(SIZE, stream=self.stream)

    @property
    def pinned(self) -> Any:
        return core.LegacyPinnedMemoryResource().allocate(SIZE)

    @property
    def shared(self) -> Any:
        """A pool that other processes may open."""
        options = core.DeviceMemoryResourceOptions(ipc_enabled=True, max_size=1 << 21)
        return core.DeviceMemoryResource(self.device, options)

    @property
    def managed(self) -> Any:
        return core.ManagedMemoryResource().allocate(SIZE, stream=self.stream)

    @property
    def virtual(self) -> Any:
        return core.VirtualMemoryResource(self.device)

    @property
    def program(self) -> Any:
        options = core.ProgramOptions(arch=f"sm_{self.device.arch}", relocatable_device_code=True)
        return core.Program(CODE, code_type="c++", options=options)

    @property
    def linker(self) -> Any:
        ptx = self.program.compile("ptx")
        return core.Linker(ptx, options=core.LinkerOptions(arch=f"sm_{self.device.arch}"))

    @cached_property
    def code(self) -> Any:
        options = core.ProgramOptions(arch=f"sm_{self.device.arch}")
        return core.Program(CODE, code_type="c++", options=options).compile("cubin")

    @property
    def kernel(self) -> Any:
        return self.code.get_kernel("store")

    @property
    def builder(self) -> Any:
        return self.device.create_graph_builder().begin_building()

    @property
    def graph(self) -> Any:
        builder = self.builder
        core.launch(builder, BLOCK, self.kernel, self.buffer, 7)
        return builder.end_building().complete()

    @property
    def definition(self) -> Any:
        return graph.GraphDefinition()

    @property
    def child(self) -> Any:
        child = graph.GraphDefinition()
        child.empty()
        return child

    @property
    def array(self) -> Any:
        return self.device.create_opaque_array(
            texture.OpaqueArrayOptions((64, 64), "float32", 1, is_surface_load_store=True)
        )

    @property
    def mipmaps(self) -> Any:
        return self.device.create_mipmapped_array(
            texture.MipmappedArrayOptions((64, 64), "float32", 1, 3)
        )

    @property
    def texels(self) -> Any:
        return texture.ResourceDescriptor.from_linear(self.buffer, format="float32", num_channels=1)

    @property
    def surface(self) -> Any:
        return texture.ResourceDescriptor.from_opaque_array(self.array)

    @property
    def view(self) -> Any:
        return utils.StridedMemoryView.from_buffer(self.buffer, (SIZE,), itemsize=1)

    def node(self, kind: str) -> Any:
        """A node of a new graph, of each kind."""
        whole = self.definition
        buffer = self.buffer
        condition = whole.create_condition
        make: dict[str, Callable[[], Any]] = {
            "EmptyNode": whole.join,
            "AllocNode": lambda: whole.allocate(SIZE),
            "FreeNode": lambda: (node := whole.allocate(SIZE)).deallocate(node.dptr),
            "ChildGraphNode": lambda: whole.embed(self.child),
            "EventRecordNode": lambda: whole.record(self.device.create_event()),
            "EventWaitNode": lambda: whole.wait(self.device.create_event()),
            "HostCallbackNode": lambda: whole.callback(nothing),
            "KernelNode": lambda: whole.launch(BLOCK, self.kernel, buffer, 7),
            "MemcpyNode": lambda: whole.memcpy(buffer, self.buffer, SIZE),
            "MemsetNode": lambda: whole.memset(buffer, 7, SIZE),
            "IfNode": lambda: whole.if_then(condition(1)),
            "IfElseNode": lambda: whole.if_else(condition(1)),
            "WhileNode": lambda: whole.while_loop(condition(0)),
            "SwitchNode": lambda: whole.switch(condition(0), 2),
        }
        return make[kind]()

    def running(self, kind: str) -> Any:
        """A node of a graph that has been instantiated."""
        node = self.node(kind.replace("Executable", ""))
        return node.graph.instantiate()[node]


def nothing() -> None:
    """For host callbacks."""


NODES = tuple(
    name
    for name in vars(graph)
    if name.endswith("Node") and name not in ("GraphNode", "ConditionalNode", "ExecutableGraphNode")
)

MAKE: dict[str, Callable[[World], Any]] = {
    "core.Buffer": lambda w: w.buffer,
    "core.Context": lambda w: w.device.context,
    "core.Device": lambda w: w.device,
    "core.DeviceMemoryResource": lambda w: w.device.memory_resource,
    "core.DeviceResources": lambda w: w.device.resources,
    "core.Event": lambda w: w.stream.record(),
    "core.GraphMemoryResource": lambda w: core.GraphMemoryResource(w.device),
    "core.GraphicsResource": lambda w: core.GraphicsResource.from_gl_buffer(1),
    "core.Host": lambda _: core.Host(),
    "core.Kernel": lambda w: w.kernel,
    "core.LaunchConfig": lambda _: BLOCK,
    "core.LegacyPinnedMemoryResource": lambda _: core.LegacyPinnedMemoryResource(),
    "core.Linker": lambda w: w.linker,
    "core.ManagedBuffer": lambda w: w.managed,
    "core.ManagedMemoryResource": lambda _: core.ManagedMemoryResource(),
    "core.MemoryResource": lambda w: w.shared,
    "core.ObjectCode": lambda w: w.code,
    "core.PinnedMemoryResource": lambda _: core.PinnedMemoryResource(
        core.PinnedMemoryResourceOptions(ipc_enabled=True, max_size=1 << 21)
    ),
    "core.Program": lambda w: w.program,
    "core.SMResource": lambda w: w.device.resources.sm,
    "core.Stream": lambda w: w.device.create_stream(),
    "core.TensorMapDescriptor": lambda w: w.view.as_tensor_map((32,), data_type="uint8"),
    "core.VirtualMemoryResource": lambda w: w.virtual,
    "core.WorkqueueResource": lambda w: w.device.resources.workqueue,
    "checkpoint.Process": lambda _: Process(1),
    "graph.Graph": lambda w: w.graph,
    "graph.GraphBuilder": lambda w: w.builder,
    "graph.GraphCondition": lambda w: w.definition.create_condition(1),
    "graph.GraphDefinition": lambda w: w.definition,
    "graph.GraphNode": lambda w: w.node("EmptyNode"),
    "graph.ConditionalNode": lambda w: w.node("IfNode"),
    "graph.ExecutableGraphNode": lambda w: w.running("ExecutableKernelNode"),
    "system.Device": lambda _: system.Device(index=0),
    "system.NvlinkInfo": lambda _: system.Device(index=0).get_nvlink(0),
    "texture.MipmappedArray": lambda w: w.mipmaps,
    "texture.OpaqueArray": lambda w: w.array,
    "texture.ResourceDescriptor": lambda w: w.texels,
    "texture.SurfaceObject": lambda w: w.device.create_surface_object(resource=w.surface),
    "texture.TextureObject": lambda w: w.device.create_texture_object(resource=w.texels),
    "utils.InMemoryProgramCache": lambda _: utils.InMemoryProgramCache(),
    "utils.StridedMemoryView": lambda w: w.view,
    **{
        f"graph.{name}": lambda w, name=name: (  # type: ignore[misc]
            w.running(name) if name.startswith("Executable") else w.node(name)
        )
        for name in NODES
    },
}

ALLOCATE: dict[str, Callable[[Any, World], Any]] = {
    "allocate": lambda o, w: o.allocate(SIZE, stream=w.stream),
    "deallocate": lambda o, w: (
        buffer := o.allocate(SIZE, stream=w.stream),
        o.deallocate(buffer.handle, SIZE, stream=w.stream),
    ),
}
SHARED: dict[str, Callable[[Any, World], Any]] = {
    **ALLOCATE,
    "from_allocation_handle": lambda o, w: type(o).from_allocation_handle(
        w.device, w.shared.allocation_handle
    ),
    "from_registry": lambda o, w: (
        pool := w.shared,
        pool.register(uuid.UUID(int=8)),
        type(o).from_registry(uuid.UUID(int=8)),
    ),
    "close": lambda _, w: w.shared.close(),
    "register": lambda _, w: w.shared.register(uuid.UUID(int=7)),
    "allocation_handle": lambda _, w: w.shared.allocation_handle,
    "uuid": lambda _, w: w.shared.uuid,
}
NODE: dict[str, Callable[[Any, World], Any]] = {
    "allocate": lambda o, _: o.allocate(SIZE),
    "callback": lambda o, _: o.callback(nothing) if callable(o.callback) else o.callback,
    "deallocate": lambda o, _: (node := o.allocate(SIZE)).deallocate(node.dptr),
    "debug_dot_print": lambda o, _: o.debug_dot_print("/dev/null"),
    "embed": lambda o, w: o.embed(w.child),
    "if_else": lambda o, _: o.if_else(whole(o).create_condition(1)),
    "if_then": lambda o, _: o.if_then(whole(o).create_condition(1)),
    "launch": lambda o, w: o.launch(BLOCK, w.kernel, w.buffer, 7),
    "memcpy": lambda o, w: o.memcpy(w.buffer, w.buffer, SIZE),
    "memset": lambda o, w: o.memset(w.buffer, 7, SIZE),
    "record": lambda o, w: o.record(w.device.create_event()),
    "switch": lambda o, _: o.switch(whole(o).create_condition(0), 2),
    "wait": lambda o, w: o.wait(w.device.create_event()),
    "while_loop": lambda o, _: o.while_loop(whole(o).create_condition(0)),
}
UPDATE: dict[str, Callable[[Any, World], Any]] = {
    "ChildGraphNode": lambda o, w: o.update(w.child),
    "EventRecordNode": lambda o, w: o.update(w.device.create_event()),
    "EventWaitNode": lambda o, w: o.update(w.device.create_event()),
    "HostCallbackNode": lambda o, _: o.update(nothing),
    "KernelNode": lambda o, w: o.update(config=BLOCK, kernel=w.kernel, args=(w.buffer, 8)),
    "MemcpyNode": lambda o, w: o.update(dst=w.buffer, src=w.buffer, size=SIZE),
    "MemsetNode": lambda o, w: o.update(dst=w.buffer, value=8, width=SIZE),
}


def whole(node: Any) -> Any:
    return node if isinstance(node, graph.GraphDefinition) else node.graph


CALLS: dict[str, dict[str, Callable[[Any, World], Any]]] = {
    "core.Buffer": {
        "copy_from": lambda o, w: o.copy_from(w.pinned, stream=w.stream),
        "copy_to": lambda o, w: o.copy_to(w.pinned, stream=w.stream),
        "fill": lambda o, w: (o.fill(7, stream=w.stream), w.stream.sync()),
        "from_handle": lambda o, _: core.Buffer.from_handle(o.handle, SIZE, owner=o).is_managed,
        "from_ipc_descriptor": lambda _, w: core.Buffer.from_ipc_descriptor(
            (pool := w.shared),
            pool.allocate(SIZE, stream=w.stream).ipc_descriptor,
            stream=w.stream,
        ),
        "ipc_descriptor": lambda _, w: w.shared.allocate(SIZE, stream=w.stream).ipc_descriptor,
        "set_deallocation_stream": lambda o, w: o.set_deallocation_stream(w.stream),
    },
    "core.Device": {
        "allocate": lambda o, w: o.allocate(SIZE, stream=w.stream),
        "can_access_peer": lambda o, _: o.can_access_peer(1),
        "create_context": lambda o, _: o.create_context(
            core.ContextOptions(resources=o.resources.sm.split(core.SMResourceOptions(count=8))[0])
        ),
        "create_mipmapped_array": lambda _, w: w.mipmaps,
        "create_opaque_array": lambda _, w: w.array,
        "create_surface_object": lambda o, w: o.create_surface_object(resource=w.surface),
        "create_texture_object": lambda o, w: o.create_texture_object(resource=w.texels),
    },
    "core.DeviceMemoryResource": SHARED,
    "core.MemoryResource": ALLOCATE,
    "core.PinnedMemoryResource": {
        **SHARED,
        "from_allocation_handle": lambda o, _: o.from_allocation_handle(o.allocation_handle),
    },
    "core.ManagedMemoryResource": ALLOCATE,
    "core.LegacyPinnedMemoryResource": ALLOCATE,
    "core.GraphMemoryResource": {
        "allocate": lambda o, w: o.allocate(SIZE, stream=w.builder),
        "deallocate": lambda o, w: (
            builder := w.builder,
            buffer := o.allocate(SIZE, stream=builder),
            o.deallocate(buffer.handle, SIZE, stream=builder),
        ),
    },
    "core.VirtualMemoryResource": {
        **ALLOCATE,
        "modify_allocation": lambda o, _: o.modify_allocation(o.allocate(1 << 21), 1 << 22),
    },
    "core.Event": {
        "from_ipc_descriptor": lambda _, w: core.Event.from_ipc_descriptor(
            w.stream.record(options=core.EventOptions(ipc_enabled=True)).ipc_descriptor
        ),
        "ipc_descriptor": lambda _, w: (
            w.stream.record(options=core.EventOptions(ipc_enabled=True)).ipc_descriptor
        ),
    },
    "core.GraphicsResource": {
        "from_gl_image": lambda o, _: o.from_gl_image(1, 0x0DE1),
        "map": lambda o, w: o.map(stream=w.stream),
    },
    "core.Kernel": {"from_handle": lambda o, w: core.Kernel.from_handle(int(o.handle), w.code)},
    "core.Linker": {
        "get_error_log": lambda o, _: (o.link("cubin"), o.get_error_log()),
        "get_info_log": lambda o, _: (o.link("cubin"), o.get_info_log()),
        "link": lambda o, _: o.link("cubin").get_kernel("store").attributes.num_regs,
    },
    "core.ManagedBuffer": {
        "copy_from": lambda o, w: o.copy_from(w.pinned, stream=w.stream),
        "copy_to": lambda o, w: o.copy_to(w.pinned, stream=w.stream),
        "discard": lambda o, w: o.discard(stream=w.stream),
        "discard_prefetch": lambda o, w: o.discard_prefetch(w.device, stream=w.stream),
        "fill": lambda o, w: o.fill(7, stream=w.stream),
        "from_handle": lambda o, _: core.ManagedBuffer.from_handle(o.handle, SIZE, owner=o),
        "from_ipc_descriptor": lambda o, w: core.ManagedBuffer.from_ipc_descriptor(
            o.memory_resource, o.ipc_descriptor, stream=w.stream
        ),
        "prefetch": lambda o, w: o.prefetch(w.device, stream=w.stream),
        "set_deallocation_stream": lambda o, w: o.set_deallocation_stream(w.stream),
    },
    "core.ObjectCode": {
        **{
            f"from_{kind}": lambda o, _, kind=kind: getattr(  # type: ignore[misc]
                core.ObjectCode, f"from_{kind}"
            )(o.code).get_kernel("store")
            for kind in ("cubin", "fatbin", "library", "ltoir", "object", "ptx")
        },
        "get_kernel": lambda o, _: o.get_kernel("store"),
    },
    "core.Program": {"compile": lambda o, _: o.compile("ptx")},
    "core.SMResource": {"split": lambda o, _: o.split(core.SMResourceOptions(count=8))},
    "core.Stream": {
        "from_handle": lambda o, _: core.Stream.from_handle(int(o.handle)),
        "wait": lambda o, w: o.wait(w.stream.record()),
    },
    "core.TensorMapDescriptor": {"replace_address": lambda o, w: o.replace_address(w.view)},
    "core.WorkqueueResource": {
        "configure": lambda o, _: o.configure(core.WorkqueueResourceOptions())
    },
    "graph.Graph": {
        "launch": lambda o, w: (o.launch(w.stream), w.stream.sync()),
        "update": lambda o, w: (
            builder := w.builder,
            core.launch(builder, BLOCK, w.kernel, w.buffer, 8),
            o.update(builder.end_building()),
        ),
        "upload": lambda o, w: o.upload(w.stream),
    },
    "graph.GraphBuilder": {
        "begin_building": lambda _, w: w.device.create_graph_builder().begin_building(),
        "callback": lambda o, _: o.callback(nothing),
        "complete": lambda o, _: o.end_building().complete(),
        "debug_dot_print": lambda o, _: o.end_building().debug_dot_print("/dev/null"),
        "embed": lambda o, w: o.embed(w.builder.end_building()),
        "graph_definition": lambda o, _: o.end_building().graph_definition,
        "if_else": lambda o, _: o.if_else(o.create_condition(1)),
        "if_then": lambda o, _: o.if_then(o.create_condition(1)),
        "join": lambda o, _: graph.GraphBuilder.join(*o.split(2)),
        "split": lambda o, _: o.split(2),
        "switch": lambda o, _: o.switch(o.create_condition(0), 2),
        "while_loop": lambda o, _: o.while_loop(o.create_condition(0)),
    },
    "graph.GraphDefinition": NODE,
    "graph.GraphNode": NODE,
    "graph.ConditionalNode": NODE,
    "texture.MipmappedArray": {"get_level": lambda o, _: o.get_level(1)},
    "texture.OpaqueArray": {
        "copy_from": lambda o, w: o.copy_from(w.buffer, stream=w.stream),
        "copy_to": lambda o, w: o.copy_to(w.buffer, stream=w.stream),
    },
    "texture.ResourceDescriptor": {
        "from_linear": lambda _, w: w.texels,
        "from_mipmapped_array": lambda o, w: o.from_mipmapped_array(w.mipmaps),
        "from_opaque_array": lambda _, w: w.surface,
        "from_pitch2d": lambda o, w: o.from_pitch2d(
            w.buffer, format="float32", num_channels=1, width=32, height=8, pitch_bytes=512
        ),
    },
    "utils.InMemoryProgramCache": {
        "get": lambda o, _: o.get(b"key"),
        "update": lambda o, w: o.update({b"key": w.code}),
    },
    "utils.StridedMemoryView": {
        "as_tensor_map": lambda o, _: o.as_tensor_map((32,), data_type="uint8"),
        "from_any_interface": lambda o, w: o.from_any_interface(w.buffer, -1),
        "from_buffer": lambda _, w: w.view,
        "from_dlpack": lambda o, w: o.from_dlpack(w.buffer, -1),
    },
    "system.Device": {
        "clear_field_values": lambda o, _: o.clear_field_values([82]),
        "get_all_devices_with_cpu_affinity": lambda o, _: list(
            o.get_all_devices_with_cpu_affinity(0)
        ),
        "get_clock": lambda o, _: o.get_clock("graphics"),
        "get_topology_nearest_gpus": lambda o, _: list(o.get_topology_nearest_gpus("internal")),
        "get_fan": lambda o, _: o.get_fan(0),
        "get_field_values": lambda o, _: o.get_field_values([82]),
        "get_nvlink": lambda o, _: o.get_nvlink(0),
    },
    **{
        f"graph.{name}": {
            **NODE,
            **(
                {"update": call}
                if (call := UPDATE.get(name.replace("Executable", ""))) is not None
                else {}
            ),
        }
        for name in NODES
    },
}

MODULES: dict[str, ModuleType] = {
    "core": core,
    "graph": graph,
    "system": system,
    "texture": texture,
    "utils": utils,
}


def public_members() -> Iterator[tuple[str, str]]:
    """Each class that can be made, and each of its public members."""
    classes = {
        f"{name}.{each}": one
        for name, module in MODULES.items()
        for each, one in vars(module).items()
    }
    classes["checkpoint.Process"] = Process
    for name in MAKE:
        for member in dir(classes[name]):
            if not member.startswith("_"):
                yield name, member


def functions() -> Iterator[tuple[str, str]]:
    for (name, module), attribute in itertools.product(MODULES.items(), ("launch", *dir(system))):
        one = getattr(module, attribute, None)
        if not attribute.startswith("_") and callable(one) and not inspect.isclass(one):
            yield name, attribute


@pytest.fixture
def world() -> World:
    device = core.Device()
    device.set_current()
    return World(device)


@pytest.mark.parametrize(
    ("name", "member"), [pytest.param(*one, id=".".join(one)) for one in public_members()]
)
def test_member(world: World, name: str, member: str) -> None:
    one = MAKE[name](world)
    call = CALLS.get(name, {}).get(member)
    if call is not None:
        call(one, world)
        return
    found = getattr(one, member)
    if callable(found):
        found()


FUNCTIONS: dict[str, Callable[[World], Any]] = {
    "launch": lambda w: core.launch(w.stream, BLOCK, w.kernel, w.buffer, 7),
    "register_events": lambda _: system.register_events(["bind"]),
    "get_p2p_status": lambda _: system.get_p2p_status(
        system.Device(index=0), system.Device(index=0), "read"
    ),
    "get_process_name": lambda _: system.get_process_name(1),
    "get_topology_common_ancestor": lambda _: system.get_topology_common_ancestor(
        system.Device(index=0), system.Device(index=0)
    ),
}


@pytest.mark.parametrize(
    ("module", "name"), [pytest.param(*one, id=".".join(one)) for one in functions()]
)
def test_function(world: World, module: str, name: str) -> None:
    if (call := FUNCTIONS.get(name)) is not None:
        call(world)
    else:
        getattr(MODULES[module], name)()
