"""What the driver reads from the API server: this node's claims, and which pods use them.

Two informers cache both, so that Prepare does not wait for the API server. A watch may be behind
the kubelet, which learns of a pod as soon as it is bound. So the cache is used only if it cannot be
stale: the claim has a pod that is known and has not ended, and was not unprepared since. Example of
a stale entry: a claim that was deallocated with its last pod and got another GPU for the next one.
Everything else is read from the API server once.
"""

import asyncio
import logging
from collections.abc import Collection, Mapping
from http import HTTPStatus
from typing import Any

from gpumanager.grants.grant import Claimant
from gpumanager.grants.refusals import RetryLater
from gpumanager.ids import PodUID
from gpumanager.kube.claims import (
    ALL,
    AllocatedDevice,
    NotAClaim,
    PodClaims,
    ResourceClaim,
    list_devices,
    read_claim,
    read_pod_claims,
)
from gpumanager.kube.client import KubeClient
from gpumanager.kube.errors import NOT_UNDERSTOOD, ApiRefused, ApiUnavailable
from gpumanager.kube.informer import Informer, ObjectStore, full_name

log = logging.getLogger(__name__)


def uid_of_object(item: Any) -> str:
    return str(item["metadata"]["uid"])


class ClaimCluster:
    """One node's claims and pods at one API server."""

    def __init__(self, api: KubeClient, node: str) -> None:
        self._api = api
        self._node = node
        claims = "/apis/resource.k8s.io/v1/resourceclaims"
        self.claims = ObjectStore(claims, self._allocated_here, key=uid_of_object)
        self.pods = ObjectStore("/api/v1/pods", _with_claims, key=uid_of_object)
        self._unprepared: dict[str, ResourceClaim] = {}
        """Claims as they were known when the kubelet unprepared them, by UID."""
        self._informers = (
            Informer(api, self.claims, cached=True),
            Informer(api, self.pods, fields=f"spec.nodeName={node}", cached=True),
        )

    def _allocated_here(self, item: Any) -> ResourceClaim | None:
        try:
            here = any(one.pool == self._node for one in list_devices(item))
            return read_claim(item) if here else None
        except NotAClaim as error:  # `claim` reads it again, and raises the same
            log.debug("claim %s is not understood: %s", full_name(item), error)
            return None

    def devices(self) -> frozenset[str]:
        """Return the names of devices that claims hold. One with admin access holds none."""
        of_claims = (one for claim in self.claims.known.values() for one in claim.devices)
        return frozenset(o.name for o in of_claims if o.pool == self._node and not o.admin)

    @property
    def current(self) -> bool:
        """Return whether both are complete and no outage is known."""
        return all(informer.current for informer in self._informers)

    async def run(self) -> None:
        """Follow both, for as long as the task lives."""
        async with asyncio.TaskGroup() as group:
            for informer in self._informers:
                group.create_task(informer.run())

    def users(self, claim: str) -> frozenset[PodUID]:
        """Return the pods that may use it, as far as the watch has shown."""
        known = self.claims.known.get(claim)
        return frozenset(one.uid for one in (known.reserved_for if known else ()))

    def containers(
        self, uid: str, name: str, requests: Collection[str] = ()
    ) -> tuple[Claimant, ...]:
        """Return the containers that may use these requests of a claim, or any of its requests, as
        far as the watch has shown."""
        known = self.claims.known.get(uid)
        pods = [self.pods.known.get(one.uid) for one in known.reserved_for] if known else ()
        found = (
            Claimant(pod.uid, pod.namespace, pod.name, use.container)
            for pod in filter(None, pods)
            for use in pod.uses
            if use.claim == name and (not requests or use.request in (ALL, *requests))
        )
        return tuple(dict.fromkeys(found))

    def requests(self) -> Mapping[tuple[str, str], tuple[str, ...]]:
        """Return the requests of the claims allocated on this node, by namespace and name."""
        return {
            (one.namespace, one.name): tuple(one.requests) for one in self.claims.known.values()
        }

    def unprepared(self, uid: str) -> None:
        """Distrust what is cached of it: its next pod may come before the watch shows what happened
        in between."""
        asked = {**self._unprepared, uid: self.claims.known.get(uid)}
        self._unprepared = {
            of: one for of, one in asked.items() if one and one is self.claims.known.get(of)
        }

    async def claim(self, namespace: str, name: str, uid: str) -> ResourceClaim:
        """Return a claim. Raises NotAClaim, and RetryLater where the API server does not answer."""
        known = self.claims.known.get(uid)
        if known is not None and known is not self._unprepared.get(uid) and self.current:
            pods = (self.pods.known.get(one.uid) for one in known.reserved_for)
            if any(pod is not None and not pod.ended for pod in pods):
                return known
        item = await self._get_claim(namespace, name)
        if item is None:
            raise NotAClaim(f"claim {namespace}/{name} is gone")
        found = read_claim(item)
        if found.uid != uid:
            raise NotAClaim(f"claim {namespace}/{name} now has the UID {found.uid}, not {uid}")
        return found

    def allocated(self, uid: str) -> tuple[AllocatedDevice, ...] | None:
        """Return its devices by the watch; None where that has no such claim, or is behind."""
        known = self.claims.known.get(uid)
        return known.devices if known and self.current else None

    async def reread(self, namespace: str, name: str, uid: str) -> tuple[AllocatedDevice, ...]:
        """Return its devices on this node, as the API server has them; none where the claim is
        gone, is another one, or is not allocated here. Raises RetryLater, also while a watch is
        behind."""
        if not self.current:
            raise RetryLater("claims and pods are not listed yet, or the API server is away")
        try:
            item = await self._get_claim(namespace, name)
            if item is None or item["metadata"]["uid"] != uid:
                return ()
            return tuple(one for one in read_claim(item).devices if one.pool == self._node)
        except NOT_UNDERSTOOD as error:
            raise RetryLater(f"claim {namespace}/{name} is not understood: {error!r}") from error

    async def named_by_pod(self, namespace: str, name: str) -> bool:
        """Return whether a claim of this name does not exist, and a pod of this node that has not
        ended names it. Raises RetryLater."""
        named = any(
            pod.namespace == namespace and not pod.finished and use.claim == name
            for pod in self.pods.known.values()
            for use in pod.uses
        )
        return named and await self._get_claim(namespace, name) is None

    async def pod(self, namespace: str, name: str, uid: PodUID) -> PodClaims | None:
        """Return what a pod uses; None for one that is gone. Raises RetryLater."""
        if known := self.pods.known.get(uid):
            return known
        item = await self._get(f"/api/v1/namespaces/{namespace}/pods/{name}")
        try:
            found = read_pod_claims(item) if item is not None else None
        except NOT_UNDERSTOOD as error:
            raise RetryLater(f"pod {namespace}/{name} is not understood: {error!r}") from error
        return found if found and found.uid == uid else None

    async def _get_claim(self, namespace: str, name: str) -> Any:
        return await self._get(
            f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/{name}"
        )

    async def _get(self, path: str) -> Any:
        """Return the object; None where there is none. Raises RetryLater."""
        try:
            return await self._api.get(path)
        except ApiRefused as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return None
            raise RetryLater(str(error)) from error
        except ApiUnavailable as error:
            raise RetryLater(str(error)) from error


def _with_claims(item: Any) -> PodClaims | None:
    pod = read_pod_claims(item)
    return pod if pod.uses else None
