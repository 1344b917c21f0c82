"""The kubelet's Pods API, v1alpha1.Pods, as 1.37 serves it: pods whole, in bytes, by UID."""

from collections.abc import Callable
from typing import Any, Final

import grpc

from gpumanager.kube.pod import ContainerKind
from gpumanager.kubelet import wire
from gpumanager.kubelet.api import pods_v1alpha1_pb2 as pb
from gpumanager.limits.socket.bounds import TokenBucket
from gpumanager.sim.kubelet.podresources import take_token
from gpumanager.sim.kubelet.pods import SimulatedPodList, SimulatedPodStatus
from gpumanager.sim.kubelet.versions import KubeletVersion
from gpumanager.sim.manifest.pods import ContainerManifest

APP: Final = ContainerKind.APP
INITIALIZING: Final = "Kubelet is initializing"


class PodsApiServer:
    """Answers with what `pods` returns at that moment.

    ready: cleared, not all sources of pods have reported yet. lists: how many it
    answered.
    """

    def __init__(self, pods: Callable[[], SimulatedPodList], version: KubeletVersion) -> None:
        self._pods = pods
        self._bucket = TokenBucket(version.calls, version.burst)
        self._made: dict[str, tuple[SimulatedPodStatus, bytes]] = {}
        self.ready = True
        self.lists = 0

    def handler(self) -> "grpc.GenericRpcHandler[Any, Any]":
        return wire.pods_handler(self.list)

    async def list(self, _request: pb.ListPodsRequest, context: Any) -> pb.ListPodsResponse:
        await take_token(self._bucket, context)
        if not self.ready:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, INITIALIZING)
        self.lists += 1
        return pb.ListPodsResponse(
            pods=[self._bytes(status) for _, status in sorted(self._pods().statuses.items())]
        )

    def _bytes(self, status: SimulatedPodStatus) -> bytes:
        """Return a pod, made once a state: a real kubelet's compiled code takes no longer."""
        pod = status.pod
        before, made = self._made.get(pod.uid, (None, b""))
        if before is not status:
            made = pb.Pod(
                metadata=pb.ObjectMeta(
                    name=pod.name,
                    namespace=pod.namespace,
                    uid=pod.uid,
                    annotations=pod.annotations,
                ),
                spec=pb.PodSpec(
                    initContainers=[_container(c) for c in pod.containers if c.kind is not APP],
                    containers=[_container(c) for c in pod.containers if c.kind is APP],
                ),
                status=pb.PodStatus(phase=status.phase.value),
            ).SerializeToString()
            self._made[pod.uid] = status, made
        return made


def _container(container: ContainerManifest) -> pb.Container:
    limits = {name: pb.Quantity(string=str(n)) for name, n in container.asks.items()}
    policy = "Always" if container.kind is ContainerKind.SIDECAR else ""
    resources = pb.ResourceRequirements(limits=limits)
    env = [pb.EnvVar(name=name, value=value) for name, value in container.environment]
    return pb.Container(name=container.name, env=env, resources=resources, restartPolicy=policy)
