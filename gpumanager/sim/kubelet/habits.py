"""In what kubelets differ, as a device plugin meets them.

Two are known in detail, both measured and read: 1.20.2 and 1.36.2. When each habit changed between
them is not said here.
"""

from dataclasses import dataclass
from typing import Any, Final

from gpumanager.kubelet.wire import ALLOCATABLE, GET, LIST, Method


@dataclass(frozen=True, slots=True)
class Habits:
    """Of one kubelet.

    dials_back: asks a plugin for its options before Register returns; else takes them from the
        request, and dials afterwards.
    drops_by_name: a stream of devices that ends takes with it whoever has registered its resource
        since.
    clears_files: deletes other files than sockets, too, at its start.
    methods: of PodResources v1. calls, burst: how many a second it answers; 0 for any number.
    entry_per_device: PodResources has one entry for each device and NUMA node.
    lists_ended: PodResources v1 lists pods that ended or were rejected, until they are deleted.
    node_of_none: the NUMA node by which its checkpoint has a device that names none.
    asks_health_again: a pod that holds devices and does not run is admitted again only if these
        are healthy.
    sidecars: knows init containers that stay.
    """

    version: str
    dials_back: bool
    drops_by_name: bool
    clears_files: bool
    methods: tuple[Method[Any, Any], ...]
    calls: float
    burst: int
    entry_per_device: bool
    lists_ended: bool
    node_of_none: int
    asks_health_again: bool
    sidecars: bool


KUBELET_1_20: Final = Habits(
    version="1.20.2",
    dials_back=False,
    drops_by_name=False,
    clears_files=True,
    methods=(LIST,),
    calls=0,
    burst=0,
    entry_per_device=False,
    lists_ended=True,
    node_of_none=0,
    asks_health_again=False,
    sidecars=False,
)
KUBELET_1_36: Final = Habits(
    version="1.36.2",
    dials_back=True,
    drops_by_name=True,
    clears_files=False,
    methods=(LIST, GET, ALLOCATABLE),
    calls=100,
    burst=10,
    entry_per_device=True,
    lists_ended=False,
    node_of_none=-1,
    asks_health_again=True,
    sidecars=True,
)
