"""The kubelet's Pods API: the pods of this node over a local socket, without a token.

Served by default from Kubernetes 1.37 on (gate PodsAPI), from the same list as `/pods`, so it has
the pod under admission before a device plugin is called. Its phases are the kubelet's own, where
`/pods` has those of the API server. WatchPods is not used: it tells of a pod only when its status
changes, which is after admission (decision 0146).
"""

import asyncio
import hashlib
import logging
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from gpumanager import grpc_wire
from gpumanager.kube.pod import PodView, read_pod
from gpumanager.kubelet import wire
from gpumanager.kubelet.api import pods_v1alpha1_pb2 as pb
from gpumanager.kubelet.pods import PodsSource, PodsUnavailable

logger = logging.getLogger(__name__)

LARGEST_LIST: Final = 64 << 20
"""Bytes of a list; what is larger is read from `/pods`, pod by pod."""
KEPT_POD_BYTES: Final = 16 << 10
"""Bytes of a pod that are kept as they are: of 512 pods no more than 8 MiB."""


class PodsApi:
    """Asks the socket. deadline: seconds for each call.

    A pod that has the bytes it had in the last list is not read again.
    """

    def __init__(self, socket: Path, deadline: float = 0.5) -> None:
        self._socket = socket
        self._deadline = deadline
        self._channel: grpc.aio.Channel | None = None
        self._known: dict[bytes, PodView] = {}
        self._leaving: set[asyncio.Task[None]] = set()

    @property
    def exists(self) -> bool:
        """Return whether there is a socket."""
        return self._socket.is_socket()

    async def pods(self) -> tuple[PodView, ...]:
        """List all pods of the node. Raises PodsUnavailable."""
        if self._channel is None:
            if not self.exists:
                raise PodsUnavailable(str(self._socket), "no Pods API (Kubernetes 1.37 has it)")
            self._channel = wire.dial(self._socket, LARGEST_LIST)
        channel, request = self._channel, pb.ListPodsRequest()
        try:
            answer = await grpc_wire.call(
                channel, wire.PODS, wire.LIST_PODS, request, self._deadline
            )
        except grpc.aio.AioRpcError as error:
            # gRPC would pause, longer each time, but a kubelet starts at once. The channel is
            # closed after the calls of others on it: one of them may be for a pod in admission.
            if self._channel is channel:
                self._channel = None
            task = asyncio.create_task(channel.close(2 * self._deadline))
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)
            cause = error.details() or error.code().name
            raise PodsUnavailable(str(self._socket), cause) from error
        found = dict[bytes, PodView]()
        for body in answer.pods:
            # A pod is known again by its bytes, or by a digest where a tenant has made many of
            # them. A digest of each of 256 pods of 4 KiB takes 1 ms, half of what a list takes.
            key = body if len(body) <= KEPT_POD_BYTES else hashlib.blake2b(body).digest()
            found[key] = self._known.get(key) or self._parse(body)
        self._known = found
        return tuple(found.values())

    async def close(self) -> None:
        """Close the channel, if there is one; the next call connects again."""
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close(None)

    def _parse(self, body: bytes) -> PodView:
        try:
            return read_pod(_as_json(pb.Pod.FromString(body)))
        except DecodeError as error:
            raise PodsUnavailable(str(self._socket), f"not a pod ({error})") from error


class PreferredPods:
    """The Pods API where the kubelet answers it, otherwise `/pods`. Says once which it is."""

    def __init__(self, api: PodsApi, http: PodsSource) -> None:
        self._api = api
        self._http = http
        self._by_api: bool | None = None

    async def pods(self) -> tuple[PodView, ...]:
        """List all pods of the node. Raises PodsUnavailable where neither answers."""
        try:
            found = await self._api.pods()
        except PodsUnavailable as error:
            why = str(error) if self._api.exists else "the kubelet has no Pods API (1.37 has one)"
            told = self._by_api is False
            logger.log(logging.DEBUG if told else logging.INFO, "%s; /pods is read instead", why)
            self._by_api = False
            return await self._http.pods()
        if not self._by_api:
            logger.info("reading pods from the kubelet's Pods API")
        self._by_api = True
        return found


def _as_json(pod: pb.Pod) -> dict[str, Any]:
    """Return it as `/pods` and the API server have it, so that one reader reads all three."""
    metadata = pod.metadata
    return {
        "metadata": {
            "uid": metadata.uid,
            "namespace": metadata.namespace,
            "name": metadata.name,
            "deletionTimestamp": metadata.HasField("deletionTimestamp"),
            "annotations": metadata.annotations,
        },
        "spec": {
            "initContainers": [_container(one) for one in pod.spec.initContainers],
            "containers": [_container(one) for one in pod.spec.containers],
        },
        "status": {"phase": pod.status.phase or "Pending"},
    }


def _container(one: pb.Container) -> dict[str, Any]:
    limits = {name: amount.string for name, amount in one.resources.limits.items()}
    return {
        "name": one.name,
        "env": [
            {"name": variable.name, "value": variable.value}
            | ({"valueFrom": {}} if variable.HasField("valueFrom") else {})
            for variable in one.env
        ],
        "resources": {"limits": limits},
        "restartPolicy": one.restartPolicy,
    }
