"""In what kubelets differ, as a device plugin or a DRA driver meets them.

Three are known in detail, all of them measured and read: 1.20.2, 1.36.2 and 1.37.2. When each
behaviour changed between them is not said here.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from gpumanager.dra.wire import HEALTH_SERVICES
from gpumanager.kubelet.wire import ALLOCATABLE, GET, LIST, Method


class EndpointKey(Enum):
    """By what a device manager keeps the endpoints of plugins, which decides what ends with one.

    NEWEST: one for each resource, the newest; an older one that ends changes nothing.
    RESOURCE: the same, but whichever stream of the resource ends, the newest ends with it.
    PATH: one for each socket path of a resource. A path that is connected is refused; when one
    ends, another takes its place.
    """

    NEWEST = "newest"
    RESOURCE = "resource"
    PATH = "path"


@dataclass(frozen=True, slots=True)
class KubeletVersion:
    """Of one kubelet; by default what the newest does.

    dials_back: asks a plugin for its options before Register returns; else takes them from the
        request, and dials afterwards.
    endpoint_key: by what its device manager keeps plugins.
    clears_files: deletes other files than sockets, too, at its start.
    methods: of PodResources v1. calls, burst: how many a second it answers; 0 for any number. The
        same of its Pods API.
    entry_per_device: PodResources has one entry for each device and NUMA node.
    lists_ended: PodResources v1 lists pods that ended or were rejected, until they are deleted.
    node_of_none: the NUMA node by which its checkpoint has a device that names none.
    asks_health_again: a pod that holds devices and does not run is admitted again only if these
        are healthy.
    sidecars: knows init containers that stay.
    pods_api: serves v1alpha1.Pods.
    dra_health: services of DRA drivers' health that it can watch, the most wanted first; none: it
        knows no claims.
    replaces_devices: a driver's answer replaces what an earlier one had; else the devices of a
        second preparation stand beside those of the first.
    guards_unpreparing: a claim that is being unprepared gets no new pod.
    only_own: the end of a pod whose claims were refused before they were prepared touches nothing;
        else it unprepares a claim that one other pod has.
    """

    number: str = "1.37.2"
    dials_back: bool = True
    endpoint_key: EndpointKey = EndpointKey.PATH
    clears_files: bool = False
    methods: tuple[Method[Any, Any], ...] = (LIST, GET, ALLOCATABLE)
    calls: float = 100
    burst: int = 10
    entry_per_device: bool = True
    lists_ended: bool = False
    node_of_none: int = -1
    asks_health_again: bool = True
    sidecars: bool = True
    pods_api: bool = True
    dra_health: tuple[str, ...] = tuple(HEALTH_SERVICES)
    replaces_devices: bool = True
    guards_unpreparing: bool = True
    only_own: bool = True


KUBELET_1_20: Final = KubeletVersion(
    number="1.20.2",
    dials_back=False,
    endpoint_key=EndpointKey.NEWEST,
    clears_files=True,
    methods=(LIST,),
    calls=0,
    burst=0,
    entry_per_device=False,
    lists_ended=True,
    node_of_none=0,
    asks_health_again=False,
    sidecars=False,
    pods_api=False,
    dra_health=(),
)
KUBELET_1_36: Final = KubeletVersion(
    number="1.36.2",
    endpoint_key=EndpointKey.RESOURCE,
    pods_api=False,
    dra_health=("v1alpha1.DRAResourceHealth",),
    replaces_devices=False,
    guards_unpreparing=False,
    only_own=False,
)
KUBELET_1_37: Final = KubeletVersion()
