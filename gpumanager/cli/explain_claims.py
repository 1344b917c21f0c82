"""What the API server knows of a pod's claims, and of a claim, for `gpumanager explain`.

Whoever asks may not be allowed to list claims of all namespaces. Then why no node has room is not
told; everything else is.
"""

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from gpumanager.dra.unallocated import ClusterGpus, NodesWithout, offered_gpus, why_not_allocated
from gpumanager.kube.claims import (
    OfferedGpu,
    is_allocated,
    list_devices,
    list_requests,
    list_results,
    list_selectors,
    list_users,
    read_slice,
    requested,
)
from gpumanager.kube.client import KubeClient
from gpumanager.kube.errors import NOT_UNDERSTOOD, ApiRefused, Object
from gpumanager.kube.pod import claim_names
from gpumanager.kube.selectors import SelectorFailed, SelectorNotKnown, selects
from gpumanager.names import CLAIM_DRIVER
from gpumanager.units import count_of
from gpumanager.view.node import printable

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
        status, objects = pod.get("status") or {}, f"{API}/namespaces/{namespace}"
        entries = [*((pod.get("spec") or {}).get("resourceClaims") or ())]
        # The claim that the scheduler made for extended resources.
        if name := (status.get("extendedResourceClaimStatus") or {}).get("resourceClaimName"):
            entries.append({"name": "extended resources", "resourceClaimName": name})
        names, claims, missing, unmade = dict[str, str](), list[Object](), list[str](), False
        for entry in entries:
            template = entry.get("resourceClaimTemplateName")
            name = claim_names({"resourceClaims": [entry]}, status).get(entry["name"], "")
            names[entry["name"]] = name or f"of template {template}"
            claim = await self._client.find(f"{objects}/resourceclaims/{name}") if name else None
            if claim is not None:
                claims.append(claim)
            elif template and await self._client.find(
                f"{objects}/resourceclaimtemplates/{template}"
            ):
                missing.append(
                    f"No claim was made of template {template} yet: kube-controller-manager makes "
                    "it; events of the pod say what keeps it from that, such as a quota."
                )
            else:
                what = f"Template {template}" if template else f" {name}"
                missing.append(
                    f"ResourceClaim{what} does not exist in the pod's namespace: the pod waits "
                    "until somebody creates it."
                )
            unmade |= bool(template and claim is None)
        found = tuple([await self._answer(claim) for claim in claims])
        if unmade:
            quotas: tuple[Object, ...] = ()
            with contextlib.suppress(ApiRefused):
                quotas = await self._list(f"/api/v1/namespaces/{namespace}/resourcequotas")
            for one in quotas:
                used_up = (one.get("status") or {}).get("used") or {}
                missing += [
                    f"ResourceQuota {one['metadata']['name']} is used up: {key} {most} of {most}."
                    for key, most in ((one.get("status") or {}).get("hard") or {}).items()
                    if ("resourceclaim" in key or "deviceclass" in key) and used_up.get(key) == most
                ]
        sentences = (*claims_of_pod(pod, names), *map(printable, missing))
        return PodAnswer(sentences, found, bool(entries))

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


SELECTOR_LETTERS: Final = 100
"""Letters of a selector that are shown."""


def claims_of_pod(pod: Object, names: Mapping[str, str]) -> tuple[str, ...]:
    """Return which container uses which claim, and devices that are ill. names: of the claims, by
    those that the pod has for them."""
    lines, spec = [], pod.get("spec") or {}
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        for used in (container.get("resources") or {}).get("claims") or ():
            request = f"request {used['request']}" if used.get("request") else "all its requests"
            claim = names.get(used["name"], used["name"])
            lines.append(f"Container {container['name']} uses claim {claim} ({request}).")
    lines += [
        f"Container {container['name']}: {resource['name']} is {health}"
        + (f": {device['message']}." if device.get("message") else ".")
        for container in (pod.get("status") or {}).get("containerStatuses") or ()
        for resource in container.get("allocatedResourcesStatus") or ()
        for device in resource.get("resources") or ()
        if (health := device.get("health", "Unknown")) != "Healthy"
    ]
    return tuple(map(printable, lines))


def claim_sentences(claim: Object, slices: Sequence[Object]) -> tuple[str, ...]:
    """Return what was asked and allocated. slices: where its devices are described, if at hand."""
    lines = []
    if (claim.get("metadata") or {}).get("deletionTimestamp"):
        lines.append("It is being deleted, and goes when no pod uses it any more.")
    for name, alternatives in list_requests(claim).items():
        asked = []
        for one in alternatives:
            # `2 devices of class gpu: cores 10, memory 1Gi, where … (alternative)`
            count = "all devices" if one.count is None else count_of(one.count, "device")
            access = "admin access to " if one.admin else ""
            what = f"{access}{count} of class {one.device_class}: "
            what += _listed(one.amounts, "all of each")
            for expression in (" ".join(selector.split()) for selector in one.selectors):
                cut = "…" if len(expression) > SELECTOR_LETTERS else ""
                what += f", where {expression[:SELECTOR_LETTERS]}{cut}"
            alternative = one.name.partition("/")[2]
            asked.append(f"{what} ({alternative})" if alternative else what)
        lines.append(f"Request {name} asks for {'; else '.join(asked)}.")
    for rule in requested(claim).get("constraints") or ():
        same = "the same" if rule.get("matchAttribute") else "different"
        attribute = rule.get("matchAttribute") or rule.get("distinctAttribute")
        among = ", ".join(rule.get("requests") or ()) or "all requests"
        lines.append(f"The devices of {among} must have {same} {attribute}.")
    if not is_allocated(claim):
        lines.append(
            "It is not allocated: kube-scheduler does that for the first pod that uses it."
        )
        return tuple(map(printable, lines))
    offered = (gpu for one in map(read_slice, slices) if one for gpu in one.gpus)
    described = {(CLAIM_DRIVER, one.node, one.name): one for one in offered}
    for result in list_results(claim):
        # `gpu-1a2b (Tesla T4, GPU-…) of pool n1: cores 30, memory 2Gi`
        gpu = described.get((result["driver"], result["pool"], result["device"]))
        known = ", ".join(filter(None, (gpu.model, gpu.uuid))) if gpu else ""
        much = _listed((result.get("consumedCapacity") or {}).items(), "all of it")
        much = "admin access" if result.get("adminAccess") else much
        device = f"{result['device']} ({known})" if known else result["device"]
        what = f"{device} of pool {result['pool']}: {much}"
        lines.append(f"Request {result['request']} was allocated {what}.")
        if gpu and gpu.taints:
            names = ", ".join(f"{each.get('key')}:{each.get('effect')}" for each in gpu.taints)
            lines.append(f"{gpu.name} is tainted: {names}.")
    pods = ", ".join(one.name for one in list_users(claim))
    lines.append(f"It is in use by {pods}." if pods else "No pod uses it now.")
    return tuple(map(printable, lines))


def _listed(amounts: Iterable[tuple[str, str]], otherwise: str) -> str:
    return ", ".join(f"{name} {amount}" for name, amount in amounts) or otherwise
