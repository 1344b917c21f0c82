"""Look-alike strings that name things, each a type of its own.

They stand below everything else, so that a grant can name its pod without the client of an API
server, and its directory without what serves it. A GPU's UUID is in `gpu.values`.
"""

from typing import NewType

PodUID = NewType("PodUID", str)
"""A pod's `metadata.uid`. Of a static pod the kubelet makes it from the manifest's hash."""

ContainerID = NewType("ContainerID", str)
"""The container runtime's name of one run of a container, without its scheme: 64 hexadecimal
digits."""

AllocationID = NewType("AllocationID", str)
"""The opaque name of one admission of one container: a fresh nonce, the name of its directory."""
