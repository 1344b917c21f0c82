"""What the API server knows of a pod's claims, and of a claim, for `gpumanager explain`.

Whoever asks may not be allowed to list claims of all namespaces. Then why no node has room is not
told; everything else is.
"""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from http import HTTPStatus
from typing import Any, Final

from gpumanager.cli.output.claim_sentences import UsedClaim, claim_sentences, claims_of_pod
from gpumanager.dra.unallocated import ClusterGpus, NodesWithout, offered_gpus, why_not_allocated
from gpumanager.kube.claims import OfferedGpu, is_allocated, list_devices, list_selectors
from gpumanager.kube.client import KubeClient
from gpumanager.kube.errors import NOT_UNDERSTOOD, ApiRefused, Object
from gpumanager.kube.pod import claim_names
from gpumanager.kube.selectors import SelectorFailed, SelectorNotKnown, selects
from gpumanager.names import CLAIM_DRIVER

API: Final = "/apis/resource.k8s.io/v1"


@dataclass(frozen=True, slots=True)
class ClaimAnswer:
    """pool: where it is allocated, the node's name; empty where it is not. reasons: why not."""

    name: str
    sentences: tuple[str, ...]
    pool: str = ""
    reasons: tuple[NodesWithout, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return {
            "claim": self.name,
            "node": self.pool or None,
            "sentences": list(self.sentences),
            "reasons": [asdict(one) for one in self.reasons],
        }


@dataclass(frozen=True, slots=True)
class PodAnswer:
    """claims: those of the pod that there are."""

    sentences: tuple[str, ...] = ()
    claims: tuple[ClaimAnswer, ...] = ()
    uses_claims: bool = False


class ClusterClaims:
    """One question. Lists are read once, and only where they are needed."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._lists: dict[str, tuple[Object, ...]] = {}

    async def of_pod(self, pod: Object) -> PodAnswer:
        """Return sentences about the pod, and an answer for each of its claims that exists."""
        namespace = (pod.get("metadata") or {}).get("namespace", "")
        entries = [*((pod.get("spec") or {}).get("resourceClaims") or ())]
        # The claim that the scheduler made for extended resources.
        extended = (pod.get("status") or {}).get("extendedResourceClaimStatus") or {}
        if name := extended.get("resourceClaimName"):
            entries.append({"name": "extended resources", "resourceClaimName": name})
        used, objects = [], f"{API}/namespaces/{namespace}"
        for entry in entries:
            template = entry.get("resourceClaimTemplateName") or ""
            names = claim_names({"resourceClaims": [entry]}, pod.get("status") or {})
            name = names.get(entry["name"], "")
            claim = await self._get(f"{objects}/resourceclaims/{name}") if name else None
            path = f"{objects}/resourceclaimtemplates/{template}"
            exists = not template or claim is not None or await self._get(path) is not None
            used.append(UsedClaim(entry["name"], claim, name, template, exists))
        found = tuple([await self._answer(one.claim) for one in used if one.claim is not None])
        sentences = claims_of_pod(pod, used)
        if any(one.claim is None and one.template for one in used):
            quotas: tuple[Object, ...] = ()
            with contextlib.suppress(ApiRefused):
                quotas = await self._list(f"/api/v1/namespaces/{namespace}/resourcequotas")
            for one in quotas:
                status = one.get("status") or {}
                used_up = status.get("used") or {}
                sentences += tuple(
                    f"ResourceQuota {one['metadata']['name']} is used up: {key} {most} of {most}."
                    for key, most in (status.get("hard") or {}).items()
                    if ("resourceclaim" in key or "deviceclass" in key) and used_up.get(key) == most
                )
        return PodAnswer(sentences, found, bool(used))

    async def of_claim(self, namespace: str, name: str) -> ClaimAnswer:
        """Return the answer for a claim. Raises ApiRefused, ApiUnavailable."""
        path = f"{API}/namespaces/{namespace}/resourceclaims/{name}"
        return await self._answer(await self._client.get(path))

    async def _answer(self, claim: Object) -> ClaimAnswer:
        metadata = claim["metadata"]
        name = f"{metadata['namespace']}/{metadata['name']}"
        try:
            slices = await self._list(f"{API}/resourceslices", f"spec.driver={CLAIM_DRIVER}")
            sentences = claim_sentences(claim, slices)
            if is_allocated(claim):
                pools = (one.pool for one in list_devices(claim))
                return ClaimAnswer(name, sentences, next(pools, ""))
            claims = await self._list(f"{API}/resourceclaims")
            classes = await self._list(f"{API}/deviceclasses")
            cluster = ClusterGpus(
                offered_gpus(slices, claims),
                {one["metadata"]["name"]: list_selectors(one.get("spec") or {}) for one in classes},
                selectors(slices),
            )
            if not cluster.gpus:
                none = "No node offers GPUs to claims: agents do that with --interface=claims."
                return ClaimAnswer(name, (*sentences, none))
            return ClaimAnswer(name, sentences, reasons=why_not_allocated(claim, cluster))
        except ApiRefused as error:
            unknown = f"Why no node has room is not told: {error}"
            return ClaimAnswer(name, (*claim_sentences(claim, ()), unknown))

    async def _get(self, path: str) -> Any:
        try:
            return await self._client.get(path)
        except ApiRefused as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return None
            raise

    async def _list(self, path: str, fields: str = "") -> tuple[Object, ...]:
        if path not in self._lists:
            found: list[Object] = []
            selected = {"fieldSelector": fields} if fields else {}
            await self._client.list(path, found.append, **selected)
            self._lists[path] = tuple(found)
        return self._lists[path]


def selectors(slices: Sequence[Object]) -> Callable[[str, OfferedGpu], bool | None]:
    devices = {
        (one["spec"].get("nodeName"), device["name"]): device
        for one in slices
        for device in one["spec"].get("devices") or ()
    }

    def evaluate(expression: str, gpu: OfferedGpu) -> bool | None:
        try:
            return selects(expression, CLAIM_DRIVER, devices[gpu.node, gpu.name])
        except (SelectorFailed, SelectorNotKnown, *NOT_UNDERSTOOD):
            return None

    return evaluate
