"""Names other programs know us by: resources, annotations, paths.

Everything here is kept from gpu-manager (reference: its README and source) unless the comment
says it is new; new names live beside the old ones.
"""

from pathlib import PurePosixPath
from typing import Final

VCORE: Final = "tencent.com/vcuda-core"
"""Extended resource: percent of a GPU, 1-99, or 100 per whole GPU."""

VMEMORY: Final = "tencent.com/vcuda-memory"
"""Extended resource: memory blocks of 256 MiB. Also a container annotation, there in bytes."""

ANNOTATION_DEVICE: Final = "tencent.com/vcuda-device"
"""Container annotation of the Allocate response: `/dev/nvidia0,/dev/nvidia3`."""

ANNOTATION_CORE_LIMIT: Final = "tencent.com/vcuda-core-limit"
"""Pod annotation by the user: the compute share it may burst up to, percent."""

ANNOTATION_PROFILE: Final = "tencent.com/vcuda-profile"
"""Pod annotation by the user, new: `latency` lets the share be used in longer bursts."""

PROFILE_LATENCY: Final = "latency"

ANNOTATION_PREDICATE_TIME: Final = "tencent.com/predicate-time"
ANNOTATION_PREDICATE_GPU_INDEX: Final = "tencent.com/predicate-gpu-idx-"
ANNOTATION_PREDICATE_NODE: Final = "tencent.com/predicate-node"
ANNOTATION_PLAN: Final = "tencent.com/vcuda-plan"
"""Pod annotation by our scheduler, new: JSON, the UUIDs of the GPUs of each container."""

ANNOTATION_GPU_ASSIGNED: Final = "tencent.com/gpu-assigned"

CONTAINER_VCUDA: Final = PurePosixPath("/etc/vcuda")
"""Where a container finds its allocation: the socket, the configuration, the books."""

CONTAINER_DRIVER: Final = PurePosixPath("/usr/local/nvidia")
"""Where a container finds the driver's libraries and programs."""

CONTAINER_COMPAT: Final = PurePosixPath("/usr/local/cuda/compat")
"""Where CUDA images have a libcuda for older drivers, which knows of no limits."""

SOCKET_NAME: Final = "vcuda.sock"
CONFIG_NAME: Final = "config"
BOOKS_NAME: Final = "books"

VCORE_SOCKET: Final = "vcore.sock"
VMEMORY_SOCKET: Final = "vmemory.sock"
KUBELET_SOCKET: Final = "kubelet.sock"
KUBELET_CHECKPOINT: Final = "kubelet_internal_checkpoint"

DEVICE_PLUGIN_PATH: Final = "/var/lib/kubelet/device-plugins"
POD_RESOURCES_SOCKET: Final = "/var/lib/kubelet/pod-resources/kubelet.sock"
