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

ANNOTATIONS_OURS: Final = "tencent.com/"
"""What annotations and labels that concern us begin with."""

ANNOTATION_PREDICATE_TIME: Final = "tencent.com/predicate-time"
ANNOTATION_PREDICATE_GPU_INDEX: Final = "tencent.com/predicate-gpu-idx-"
ANNOTATION_PREDICATE_NODE: Final = "tencent.com/predicate-node"
ANNOTATION_PLAN: Final = "tencent.com/vcuda-plan"
"""Pod annotation by our scheduler, new: JSON, the UUIDs of the GPUs of each container."""

ANNOTATION_GPU_ASSIGNED: Final = "tencent.com/gpu-assigned"

ANNOTATION_ROOM_FOUND: Final = "tencent.com/gpu-room-found"
"""Pod annotation by our scheduler, new: when a pod that waits would have fitted, so that
kube-scheduler looks at it again."""

ANNOTATION_MODEL_WANTED: Final = "tencent.com/include-gpu-model"
"""Pod annotation by the user, new: words of which a GPU's product has one, `A100,H100`."""
ANNOTATION_MODEL_EXCLUDED: Final = "tencent.com/exclude-gpu-model"
ANNOTATION_UUID_WANTED: Final = "tencent.com/include-gpu-uuid"
"""Pod annotation by the user, new: the only GPUs that will do, by UUID."""
ANNOTATION_UUID_EXCLUDED: Final = "tencent.com/exclude-gpu-uuid"

ANNOTATION_POLICY: Final = "tencent.com/vcuda-policy"
"""Pod annotation by the user, new: how its node is chosen, `least-waste=0.7,topology=0.3`."""
ANNOTATION_GPU_POLICY: Final = "tencent.com/vcuda-gpu-policy"
"""Pod annotation by the user, new: how a GPU of the node is chosen for a share, `binpack`."""

CLAIM_DRIVER: Final = "gpu.tencent.com"
"""Of ResourceSlices and ResourceClaims, new: what serves the GPUs of a node as claims."""
CLAIM_REGISTRATIONS: Final = f"{CLAIM_DRIVER}-*-reg.sock"
"""Sockets by which instances of the driver register with the kubelet."""
DEVICE_PLUGINS: Final = "device-plugin"
CLAIMS: Final = "claims"
"""The interfaces by which the kubelet asks for GPUs: extended resources, and ResourceClaims."""
CLAIM_DEVICE_CLASS: Final = CLAIM_DRIVER
"""The DeviceClass of all GPUs of this driver."""
CLAIM_WHOLE_CLASS: Final = f"whole.{CLAIM_DRIVER}"
"""The DeviceClass of the extended resource."""
CAPACITY_CORES: Final = "cores"
CAPACITY_MEMORY: Final = "memory"
"""Capacities of a device: percent of the GPU, and bytes."""
WHOLE_GPU: Final = "tencent.com/gpu"
"""Extended resource, new: so many whole GPUs, of nodes that offer theirs as claims."""
ANNOTATION_CLAIM: Final = "tencent.com/vcuda-claim"
"""Pod annotation by our webhook, new: what the template of its claim is made of, as JSON."""
LABEL_CLAIM_TEMPLATE: Final = "tencent.com/vcuda-claim-template"
"""Pod label by our webhook, new: the template of its claim."""
MANAGED_BY_LABEL: Final = "app.kubernetes.io/managed-by"
MANAGED_BY_US: Final = "gpu-manager"

ANNOTATION_CORDON: Final = "tencent.com/gpu-cordon"
"""Node annotation by operators, new: UUIDs of GPUs on which nothing new is placed; `*`: all."""

LABEL_MODEL: Final = "gaia.tencent.com/gpu-model"
"""Node label, written where --node-labels names it: the model of GPU 0."""

LABEL_PRODUCT: Final = "tencent.com/gpu-product"
"""Node label, new: the GPUs' product, `NVIDIA-A100-SXM4-80GB`, or `mixed`."""
LABEL_MEMORY: Final = "tencent.com/gpu-memory"
"""Node label, new: MiB of the GPU with the least."""
LABEL_COUNT: Final = "tencent.com/gpu-count"
LABEL_DRIVER: Final = "tencent.com/gpu-driver-version"
LABEL_CUDA: Final = "tencent.com/gpu-cuda-version"

LABEL_ROLE: Final = "tencent.com/extender-role"
"""Pod label of the extender's replicas, new: `leader` or `standby`."""

ANNOTATION_INVENTORY: Final = "tencent.com/gpu-inventory"
"""Node annotation, new: its GPUs and how they are connected, as JSON."""

ANNOTATION_CLAIMS_GPUS: Final = "tencent.com/claims-gpus"
"""Node annotation by operators, new: how many of its GPUs claims have, with --interface=both."""

LABEL_QUOTA_MODEL: Final = "tkestack.io/gpu-model"
"""Node label by operators, of gpu-admission's quota: the model its keys name."""
LABEL_QUOTA_POOL: Final = "tkestack.io/gpu-pool"
"""Node label by operators, of gpu-admission's quota: the one pool a node is in."""

CONTAINER_VCUDA: Final = PurePosixPath("/etc/vcuda")
"""Where a container finds its allocation: the socket, the configuration, the books."""

CONTAINER_TURNS: Final = CONTAINER_VCUDA / "turns"
"""Where a container that takes turns finds the words of its turns, and the ring."""

CONTAINER_DRIVER: Final = PurePosixPath("/usr/local/nvidia")
"""Where a container finds the driver's libraries and programs."""

CONTAINER_COMPAT: Final = PurePosixPath("/usr/local/cuda/compat")
"""Where CUDA images have a libcuda for older drivers, which knows of no limits."""

DRIVER_NAME: Final = "driver"
"""In the directory of an allocation that shares a GPU: the link to its driver directory."""

SOCKET_NAME: Final = "vcuda.sock"
CONFIG_NAME: Final = "config"
BOOKS_NAME: Final = "books"
WORDS_NAME: Final = "words"
RING_NAME: Final = "ring"

TURNS_PATH: Final = "/run/gpu-manager/turns"
"""On a tmpfs: the words of containers that take turns."""

VCORE_SOCKET: Final = "vcore.sock"
VMEMORY_SOCKET: Final = "vmemory.sock"
KUBELET_SOCKET: Final = "kubelet.sock"
KUBELET_CHECKPOINT: Final = "kubelet_internal_checkpoint"

DEVICE_PLUGIN_PATH: Final = "/var/lib/kubelet/device-plugins"
POD_RESOURCES_SOCKET: Final = "/var/lib/kubelet/pod-resources/kubelet.sock"
PODS_API_SOCKET: Final = "/var/lib/kubelet/pods-api/pods-api.sock"
PLUGINS_PATH: Final = "/var/lib/kubelet/plugins"
PLUGINS_REGISTRY_PATH: Final = "/var/lib/kubelet/plugins_registry"
CDI_PATH: Final = "/var/run/cdi"
"""Where runtimes look for CDI files that do not outlive the machine's run."""
