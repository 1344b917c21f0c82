"""What the API server knows of a pod's claims, and of a claim, for `gpumanager explain`.

Whoever asks may not be allowed to list claims of all namespaces. Then why no node has room is not
told; everything else is.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from http import HTTPStatus
from typing import Any, Final

from gpumanager.cli.output.claim_sentences import UsedClaim, claim_sentences, claims_of_pod
from gpumanager.dra.unallocated import ClusterGpus, NodesWithout, offered_gpus, why_not_allocated
from gpumanager.kube.claims import OfferedGpu, is_allocated, list_devices, list_selectors
from gpumanager.kube.client import KubeClient
from gpumanager.kube.errors import NOT_UNDERSTOOD, ApiRefused, Object
from gpumanager.kube.pod import claim_names
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


NOT_ASKED: Final = PodAnswer()


class ClusterClaims:
    """One question. Lists are read once, and only where they are needed."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._lists: dict[str, tuple[Object, ...]] = {}

    async def of_pod(self, pod: Object) -> PodAnswer:
        """Sentences about the pod, and an answer for each of its claims that there is."""
        namespace = (pod.get("metadata") or {}).get("namespace", "")
        used = [await self._used(pod, namespace, one) for one in _entries(pod)]
        found = tuple([await self._answer(one.claim) for one in used if one.claim is not None])
        sentences = claims_of_pod(pod, used)
        if any(one.claim is None and one.template for one in used):
            sentences += await self._quotas(namespace)
        return PodAnswer(sentences, found, bool(used))

    async def of_claim(self, namespace: str, name: str) -> ClaimAnswer:
        """Raises ApiRefused, ApiUnavailable."""
        path = f"{API}/namespaces/{namespace}/resourceclaims/{name}"
        return await self._answer(await self._client.get(path))

    async def _used(self, pod: Object, namespace: str, entry: Mapping[str, Any]) -> UsedClaim:
        template = entry.get("resourceClaimTemplateName") or ""
        names = claim_names({"resourceClaims": [entry]}, pod.get("status") or {})
        name = names.get(entry["name"], "")
        objects = f"{API}/namespaces/{namespace}"
        claim = await self._get(f"{objects}/resourceclaims/{name}") if name else None
        exists = not template or claim is not None
        if not exists:
            path = f"{objects}/resourceclaimtemplates/{template}"
            exists = await self._get(path) is not None
        return UsedClaim(entry["name"], claim, name, template, exists)

    async def _answer(self, claim: Object) -> ClaimAnswer:
        metadata = claim["metadata"]
        name = f"{metadata['namespace']}/{metadata['name']}"
        try:
            slices = await self._list(f"{API}/resourceslices", f"spec.driver={CLAIM_DRIVER}")
            sentences = claim_sentences(claim, slices)
            if is_allocated(claim):
                pools = (one.pool for one in list_devices(claim))
                return ClaimAnswer(name, sentences, next(pools, ""))
            return await self._unallocated(name, claim, sentences, slices)
        except ApiRefused as error:
            unknown = f"Why no node has room is not told: {error}"
            return ClaimAnswer(name, (*claim_sentences(claim, ()), unknown))

    async def _unallocated(
        self, name: str, claim: Object, sentences: tuple[str, ...], slices: Sequence[Object]
    ) -> ClaimAnswer:
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

    async def _quotas(self, namespace: str) -> tuple[str, ...]:
        """Those of claims and devices that are used up."""
        try:
            quotas = await self._list(f"/api/v1/namespaces/{namespace}/resourcequotas")
        except ApiRefused:
            return ()
        return tuple(
            f"ResourceQuota {one['metadata']['name']} is used up: {key} {used.get(key)} of {most}."
            for one in quotas
            if (used := (one.get("status") or {}).get("used") or {}) is not None
            for key, most in ((one.get("status") or {}).get("hard") or {}).items()
            if ("resourceclaim" in key or "deviceclass" in key) and used.get(key) == most
        )

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


def _entries(pod: Object) -> Sequence[Mapping[str, Any]]:
    """With the claim that the scheduler made for extended resources."""
    extended = (pod.get("status") or {}).get("extendedResourceClaimStatus") or {}
    name = extended.get("resourceClaimName")
    made = [{"name": "extended resources", "resourceClaimName": name}] if name else []
    return [*((pod.get("spec") or {}).get("resourceClaims") or ()), *made]


def selectors(slices: Sequence[Object]) -> Callable[[str, OfferedGpu], bool | None]:
    """Evaluates CEL by the simulator, which is imported for a claim that waits."""
    from gpumanager.sim.claims.selectors import SelectorFailed, matches
    from gpumanager.sim.claims.slices import read_slice

    devices = {
        (one.nodes.get("nodeName"), device.id.name): device
        for one in map(read_slice, slices)
        for device in one.devices
    }

    def selects(expression: str, gpu: OfferedGpu) -> bool | None:
        try:
            return matches(expression, devices[gpu.node, gpu.name])
        except (SelectorFailed, *NOT_UNDERSTOOD):
            return None

    return selects
