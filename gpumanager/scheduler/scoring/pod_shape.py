"""What a pod requests of GPUs, read from its object. Pure.

Kubernetes counts a pod as the larger of two: what its containers and sidecars need together, and
what each init container needs beside the sidecars started before it. So the order and kinds of
containers are kept. Their names are not, so that equal pods have one shape and share all verdicts.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from gpumanager.gpu.values import Gpu
from gpumanager.kube.pod import LARGEST_AMOUNT, ContainerKind, ContainerView, PodView
from gpumanager.names import (
    ANNOTATION_GPU_POLICY,
    ANNOTATION_MODEL_EXCLUDED,
    ANNOTATION_MODEL_WANTED,
    ANNOTATION_POLICY,
    ANNOTATION_UUID_EXCLUDED,
    ANNOTATION_UUID_WANTED,
)
from gpumanager.placement.preference import Preference, read_gpu_policy, read_preference
from gpumanager.placement.values import PodRequest, Reason, Refusal, Request, check

MOST_CONTAINERS: Final = 32
"""With GPUs, of one pod; more would be a mistake, and each node that is unlike the others takes
milliseconds for so many, while all requests wait."""
MOST_CORES: Final = 100 * 64
SHAPES_SHARED: Final = 4096
LONGEST_WISH: Final = 4096
MOST_WORDS: Final = 64
"""Of a pod's annotations about the GPUs that it wants. More is no wish, and is kept of no pod."""
NO_PREFERENCE: Final = Preference()
WISHES: Final = frozenset(
    (
        ANNOTATION_MODEL_WANTED,
        ANNOTATION_MODEL_EXCLUDED,
        ANNOTATION_UUID_WANTED,
        ANNOTATION_UUID_EXCLUDED,
    )
)
READ: Final = (*sorted(WISHES), ANNOTATION_POLICY, ANNOTATION_GPU_POLICY)
"""All annotations of which a pod's place depends."""


@dataclass(frozen=True, slots=True)
class HostResources:
    """CPU and memory of a node, or of those who use it. kube-scheduler decides whether that fits;
    here it only changes scores, because a GPU is useless if its node has no CPU left."""

    cpu_milli: int = 0
    memory_mib: int = 0

    def __add__(self, other: "HostResources") -> "HostResources":
        return HostResources(self.cpu_milli + other.cpu_milli, self.memory_mib + other.memory_mib)

    def __sub__(self, other: "HostResources") -> "HostResources":
        return HostResources(self.cpu_milli - other.cpu_milli, self.memory_mib - other.memory_mib)


NO_RESOURCES: Final = HostResources()
BOUNDLESS: Final = HostResources(LARGEST_AMOUNT, LARGEST_AMOUNT)
"""Of a node that does not say what it has."""


@dataclass(frozen=True, slots=True)
class PodWish:
    """Which GPUs will do. models: parts of the product's name, in small letters; empty: any."""

    models: frozenset[str] = frozenset()
    not_models: frozenset[str] = frozenset()
    uuids: frozenset[str] = frozenset()
    not_uuids: frozenset[str] = frozenset()

    def takes(self, gpu: Gpu) -> bool:
        return self is ANY or (
            self._takes_model(gpu.model.lower())
            and (not self.uuids or gpu.uuid in self.uuids)
            and gpu.uuid not in self.not_uuids
        )

    def of_models(self, known: frozenset[str]) -> frozenset[str]:
        """Return the products that will do of those that there are; empty where all do."""
        if not self.models and not self.not_models:
            return frozenset()
        return frozenset(one for one in known if self._takes_model(one.lower())) or self.models

    def _takes_model(self, model: str) -> bool:
        return (not self.models or any(word in model for word in self.models)) and not any(
            word in model for word in self.not_models
        )


ANY: Final = PodWish()


@dataclass(frozen=True, slots=True)
class PodShape:
    """The GPUs a pod asks for: pods with equal asks are one shape.

    requests, kinds: of its containers with GPUs, in the order of admission. host: what it asks of
    its node beside them. preference: where it wants to be. claimed: its GPUs come from claims.
    """

    requests: tuple[Request, ...]
    kinds: tuple[ContainerKind, ...]
    wish: PodWish = ANY
    host: HostResources = NO_RESOURCES
    preference: Preference = NO_PREFERENCE
    claimed: bool = False

    @property
    def inits(self) -> tuple[int, ...]:
        """Return which containers run before the others, one after another."""
        return tuple([n for n, kind in enumerate(self.kinds) if kind is ContainerKind.INIT])

    @property
    def together(self) -> tuple[int, ...]:
        """Return which containers run at the same time."""
        return tuple(n for n in range(len(self.kinds)) if n not in self.inits)

    def pod_request(self, models: frozenset[str] = frozenset()) -> PodRequest:
        """Return it as policies have it: what runs at the same time. models: all there are."""
        requests = tuple([self.requests[place] for place in self.together])
        host, named = self.host, self.wish.of_models(models)
        return PodRequest(requests, host.cpu_milli, host.memory_mib, named)


def asking(pod: PodView) -> Iterator[ContainerView]:
    """Return the containers that ask for GPUs, in the order of admission."""
    return (one for one in pod.containers if one.cores != 0 or one.blocks != 0)


def asked_by(annotations: Mapping[str, str]) -> dict[str, str]:
    """Return a waiting pod's annotations that are read here, cut one letter over the most."""
    found = ((key, annotations[key]) for key in READ if key in annotations)
    return {key: text[: LONGEST_WISH + 1] for key, text in found}


def pod_shape_of(pod: PodView, default: Preference = NO_PREFERENCE) -> PodShape | Refusal | None:
    """Return None for a pod without GPUs; a Refusal for one that no node could ever run.

    default: what the cluster prefers where the pod has no annotation.
    """
    if not pod.asks:
        return None
    if long := next((key for key in READ if _is_long(pod.annotations.get(key, ""))), None):
        most = f"{LONGEST_WISH} bytes and {MOST_WORDS} words"
        return _refusal(f"annotation {long}: the most is {most}")
    preference = preference_of(pod.annotations)
    if isinstance(preference, Refusal):
        return preference
    return needs_of(pod, preference.over(default))


def claim_shape_of(
    pod: PodView, requests: tuple[Request, ...], default: Preference = NO_PREFERENCE
) -> PodShape:
    """Return the shape of a pod whose GPUs come from claims that ask for this. An unknown
    preference counts as none: the pod has been let in."""
    preference = preference_of(pod.annotations)
    own = NO_PREFERENCE if isinstance(preference, Refusal) else preference
    requests = requests[:MOST_CONTAINERS]
    kinds = (ContainerKind.APP,) * len(requests)
    host = HostResources(pod.cpu_milli, pod.memory_mib)
    return PodShape(requests, kinds, _wish(pod.annotations), host, own.over(default), claimed=True)


def needs_of(pod: PodView, preference: Preference = NO_PREFERENCE) -> PodShape | Refusal | None:
    """Return the same without what its annotations prefer, which does not matter once it has its
    place. A wish that is too long is none: the pod counts all the same."""
    containers = tuple(asking(pod))
    if len(containers) > MOST_CONTAINERS:
        found = f"{len(containers)} containers with GPUs"
        return _refusal(f"{found}; the most is {MOST_CONTAINERS}")
    host = HostResources(pod.cpu_milli, pod.memory_mib)
    wish = _wish(pod.annotations) if pod.annotations else ANY
    return _shape(containers, wish, host, preference)


@lru_cache(maxsize=SHAPES_SHARED)
def _shape(
    containers: tuple[ContainerView, ...], wish: PodWish, host: HostResources, wants: Preference
) -> PodShape | Refusal | None:
    """Return the value that pods of a kind share."""
    requests = []
    for one in containers:
        if one.cores is None or one.blocks is None:
            return _refusal(f"container {one.name}: its GPU resources are no whole numbers")
        request = Request(one.cores, one.blocks)
        refused = check(request)
        if request.cores > MOST_CORES:
            detail = f"{request.cores} cores asked; no node has more than {MOST_CORES}"
            refused = Refusal(request, Reason.TOO_LARGE, detail)
        if refused:
            return replace(refused, detail=f"container {one.name}: {refused.detail}")
        requests.append(request)
    kinds = tuple([one.kind for one in containers])
    return PodShape(tuple(requests), kinds, wish, host, wants) if requests else None


def _refusal(detail: str) -> Refusal:
    return Refusal(Request(0), Reason.NOT_A_REQUEST, detail)


def _wish(said: Mapping[str, str]) -> PodWish:
    if WISHES.isdisjoint(said) or any(_is_long(said.get(key, "")) for key in WISHES):
        return ANY
    wish = PodWish(
        _words(said.get(ANNOTATION_MODEL_WANTED, "").lower()),
        _words(said.get(ANNOTATION_MODEL_EXCLUDED, "").lower()),
        _words(said.get(ANNOTATION_UUID_WANTED, "")),
        _words(said.get(ANNOTATION_UUID_EXCLUDED, "")),
    )
    return ANY if wish == ANY else wish


def preference_of(annotations: Mapping[str, str]) -> Preference | Refusal:
    """Return where a pod wants to be by its annotations; a Refusal for an unknown word."""
    if not annotations:
        return NO_PREFERENCE
    name = ANNOTATION_POLICY
    try:
        found = read_preference(annotations.get(name, ""))
        name = ANNOTATION_GPU_POLICY
        return replace(found, gpus=read_gpu_policy(annotations.get(name, "")))
    except ValueError as error:
        return _refusal(f"annotation {name}: {error}")


def _is_long(text: str) -> bool:
    return len(text) > LONGEST_WISH or text.count(",") >= MOST_WORDS


def _words(text: str) -> frozenset[str]:
    return frozenset(word.strip() for word in text.split(",") if word.strip())
