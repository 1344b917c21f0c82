"""The calls of CRI that make pods and containers, which the agent never makes: for tests.

Their messages are built here, from their field numbers in k8s.io/cri-api/pkg/apis/runtime/v1.
"""

from typing import Any, Final

import grpc
import grpc.aio
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_TYPES: Final = {
    "string": descriptor_pb2.FieldDescriptorProto.TYPE_STRING,
    "uint32": descriptor_pb2.FieldDescriptorProto.TYPE_UINT32,
    "int32": descriptor_pb2.FieldDescriptorProto.TYPE_INT32,
    "int64": descriptor_pb2.FieldDescriptorProto.TYPE_INT64,
    "bool": descriptor_pb2.FieldDescriptorProto.TYPE_BOOL,
}

_MESSAGES: Final = {
    "Entry": "key:1:string value:2:string",
    "PodMetadata": "name:1:string uid:2:string namespace:3:string attempt:4:uint32",
    "NamespaceOption": "network:1:int32 pid:2:int32 ipc:3:int32",
    "SandboxSecurity": "namespace_options:1:NamespaceOption",
    "LinuxSandbox": "cgroup_parent:1:string security_context:2:SandboxSecurity",
    "PodConfig": "metadata:1:PodMetadata hostname:2:string log_directory:3:string "
    "labels:6:Entry* annotations:7:Entry* linux:8:LinuxSandbox",
    "RunPodSandboxRequest": "config:1:PodConfig",
    "RunPodSandboxResponse": "pod_sandbox_id:1:string",
    "PodSandboxRequest": "pod_sandbox_id:1:string",
    "Metadata": "name:1:string attempt:2:uint32",
    "Image": "image:1:string",
    "Mount": "container_path:1:string host_path:2:string readonly:3:bool",
    "Device": "container_path:1:string host_path:2:string permissions:3:string",
    "ContainerConfig": "metadata:1:Metadata image:2:Image command:3:string* args:4:string* "
    "envs:6:Entry* mounts:7:Mount* devices:8:Device* labels:9:Entry* annotations:10:Entry* "
    "log_path:11:string",
    "CreateContainerRequest": "pod_sandbox_id:1:string config:2:ContainerConfig "
    "sandbox_config:3:PodConfig",
    "CreateContainerResponse": "container_id:1:string",
    "ContainerRequest": "container_id:1:string",
    "StopContainerRequest": "container_id:1:string timeout:2:int64",
    "Empty": "",
}
"""`name:number:type`, `*` for repeated. A map is a repeated entry, on the wire too."""


def _file() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(
        name="cri_create.proto", package="cri_create", syntax="proto3"
    )
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for text in fields.split():
            _add(message, *text.split(":"))
    return file


def _add(message: descriptor_pb2.DescriptorProto, name: str, number: str, kind: str) -> None:
    field = message.field.add(name=name, number=int(number))
    labels = descriptor_pb2.FieldDescriptorProto
    field.label = labels.LABEL_REPEATED if kind.endswith("*") else labels.LABEL_OPTIONAL
    kind = kind.removesuffix("*")
    if kind in _TYPES:
        field.type = _TYPES[kind]
    else:
        field.type = descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE
        field.type_name = f".cri_create.{kind}"


_POOL: Final = descriptor_pool.DescriptorPool()
_POOL.Add(_file())


def message(name: str) -> Any:
    """The class of a message."""
    found = _POOL.FindMessageTypeByName(f"cri_create.{name}")
    return message_factory.GetMessageClass(found)


def entries(pairs: dict[str, str]) -> list[Any]:
    return [message("Entry")(key=key, value=value) for key, value in pairs.items()]


async def call(channel: grpc.aio.Channel, method: str, request: Any, answer: str) -> Any:
    """One call of runtime.v1, with a deadline that a loaded machine can hold."""
    send: Any = channel.unary_unary(
        f"/runtime.v1.RuntimeService/{method}",
        lambda made: made.SerializeToString(),
        message(answer).FromString,
    )
    return await send(request, timeout=300)
