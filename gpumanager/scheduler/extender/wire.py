"""The extender protocol's JSON (k8s.io/kube-scheduler/extender/v1), read and written. Pure.

msgspec checks the types of a request. Go's decoder ignores the case of field names, so they are
first changed to the case of the struct's fields. Pods and nodes have no struct here: their readers
take what they need from the JSON object.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, TypeVar

import msgspec

from gpumanager.ids import PodUID
from gpumanager.kube.pod import PodView, read_pod
from gpumanager.scheduler.extender.bind import BindRequest
from gpumanager.scheduler.node import read_node
from gpumanager.scheduler.scoring.pod_shape import asked_by
from gpumanager.scheduler.scoring.verdicts import Filtered, Scores

LONGEST_NAME: Final = 253
"""Letters, which the API server holds objects to."""
MOST_CONTAINERS: Final = 1024
"""Of a pod, with and without GPUs."""
MOST_NODES: Final = 100_000
LETTERS: Final = b"abcdefghijklmnopqrstuvwxyz0123456789.-"
"""Of names: nothing in them has to be escaped, or could lead a path elsewhere."""

T = TypeVar("T", bound=msgspec.Struct)


class BadRequest(ValueError):
    """What was sent cannot be understood: what is wrong with it, and where."""


class ExtenderArgs(msgspec.Struct):
    """Of filter and prioritize: node names, or whole nodes."""

    Pod: Any = None
    Nodes: Any = None
    NodeNames: list[str] | None = None


class Victim(msgspec.Struct):
    """A MetaPod, or a whole pod."""

    UID: str = ""
    metadata: dict[str, Any] | None = None


class MetaVictims(msgspec.Struct):
    Pods: list[Victim] | None = None
    NumPDBViolations: int | None = None


class ExtenderPreemptionArgs(msgspec.Struct):
    Pod: Any = None
    NodeNameToMetaVictims: dict[str, MetaVictims | None] | None = None
    NodeNameToVictims: dict[str, MetaVictims | None] | None = None


def read_arguments(body: bytes) -> tuple[PodView, list[str], Mapping[str, Any] | None]:
    """Read filter's or prioritize's body: the pod, the names of the nodes, and their objects by
    name if they were sent whole. Raises BadRequest."""
    sent = _read(body, ExtenderArgs)
    pod, nodes = _pod(sent.Pod), sent.Nodes
    if sent.NodeNames is not None:
        return pod, _checked(sent.NodeNames), None
    if nodes is None:
        raise BadRequest("Nodes and NodeNames are both missing")
    try:
        by_name = {read_node(item).name: item for item in nodes.get("items") or ()}
    except (KeyError, TypeError, AttributeError) as error:
        raise BadRequest(f"Nodes: not a list of nodes ({error!r})") from None
    return pod, _checked(list(by_name), "Nodes"), by_name


def read_preempt(
    body: bytes,
) -> tuple[PodView, Mapping[str, tuple[PodUID, ...]], Mapping[str, int]]:
    """Read preempt's body: the pod, the victims by node, and how many disruption budgets are
    violated by node. Raises BadRequest."""
    sent = _read(body, ExtenderPreemptionArgs)
    pod, given = _pod(sent.Pod), sent.NodeNameToMetaVictims
    if given is None:
        given = sent.NodeNameToVictims
    if given is None:
        raise BadRequest("NodeNameToMetaVictims: missing")
    victims = {
        node: tuple(
            PodUID(gone.UID or str((gone.metadata or {}).get("uid", "")))
            for gone in (one and one.Pods) or ()
        )
        for node, one in given.items()
    }
    if not all(map(all, victims.values())):
        raise BadRequest("a victim: UID: missing")
    return pod, victims, {node: (one and one.NumPDBViolations) or 0 for node, one in given.items()}


def read_bind(body: bytes) -> BindRequest:
    """Read bind's body; raises BadRequest."""
    request = _read(body, BindRequest)
    for name, said in zip(request.__struct_fields__, request.__struct_encode_fields__, strict=True):
        if not (value := getattr(request, name)):
            raise BadRequest(f"{said}: missing")
        _checked([value], said)
    return request


def write_filter(found: Filtered, nodes: Mapping[str, Any] | None) -> bytes:
    """Write ExtenderFilterResult, in the kind of the request: names, or whole nodes."""
    items = None if nodes is None else [nodes[name] for name in found.fitting]
    failed: tuple[dict[str, str], dict[str, str]] = {}, {}
    for one in found.left:
        failed[one.why.final].update(dict.fromkeys(one.names, one.why.phrase))
    return msgspec.json.encode(
        {
            "Nodes": None if items is None else {"metadata": {}, "items": items},
            "NodeNames": found.fitting if nodes is None else None,
            "FailedNodes": failed[False],
            "FailedAndUnresolvableNodes": failed[True],
            "Error": "",
        }
    )


def write_error(message: str) -> bytes:
    """Write ExtenderFilterResult, or ExtenderBindingResult."""
    return msgspec.json.encode({"Error": message})


def write_scores(scores: Scores) -> bytes:
    """Write HostPriorityList: thousands of rows, in names that need no escaping, so joined."""
    rows = []
    for score, names in scores:
        end = f'","Score":{score}}}'
        rows.append('{"Host":"' + f'{end},{{"Host":"'.join(names) + end)
    return f"[{','.join(rows)}]".encode()


def write_victims(
    victims: Mapping[str, tuple[PodUID, ...]], violations: Mapping[str, int]
) -> bytes:
    """Write ExtenderPreemptionResult."""
    kept = {
        name: {"Pods": [{"UID": uid} for uid in uids], "NumPDBViolations": violations[name]}
        for name, uids in victims.items()
    }
    return msgspec.json.encode({"NodeNameToMetaVictims": kept})


def _read(body: bytes, kind: type[T]) -> T:
    try:
        content = msgspec.json.decode(body)
        if not isinstance(content, dict):
            raise BadRequest(f"the request: expected an object, found {str(content)[:60]!r}")
        names = {name.lower(): name for name in kind.__struct_encode_fields__}
        return msgspec.convert({names.get(n.lower(), n): one for n, one in content.items()}, kind)
    except RecursionError:
        raise BadRequest("nested too deeply") from None
    except msgspec.ValidationError as error:
        raise BadRequest(str(error)[:LONGEST_NAME]) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRequest(f"not JSON: {error}") from None


def _pod(item: Any) -> PodView:
    """Read it, and refuse what an API server would not have let in: read_pod takes what it finds,
    any client may have sent it, and it may be kept."""
    if item is None:
        raise BadRequest("Pod: missing")
    try:
        pod = read_pod(item)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise BadRequest(f"Pod: not a pod ({type(error).__name__}: {error})") from None
    if len(pod.containers) > MOST_CONTAINERS:
        found = len(pod.containers)
        raise BadRequest(f"Pod: {found} containers; the most is {MOST_CONTAINERS}")
    names = pod.uid, pod.namespace, pod.name, pod.phase, *pod.claims, pod.scheduler
    names += tuple(one.name for one in pod.containers)
    if not all(isinstance(text, str) for text in (*names, *pod.annotations.values())):
        raise BadRequest("Pod: a name or an annotation that is no text")
    if any(len(name) > LONGEST_NAME for name in names):
        raise BadRequest(f"Pod: a name of more than {LONGEST_NAME} letters")
    return replace(pod, annotations=asked_by(pod.annotations)) if pod.annotations else pod


def _checked(names: list[str], field: str = "NodeNames") -> list[str]:
    """Check all at once: one by one would take longer than the decision about them."""
    if len(names) > MOST_NODES:
        raise BadRequest(f"{field}: {len(names)} names; the most is {MOST_NODES}")
    if max(map(len, names), default=0) > LONGEST_NAME or _others("".join(names)):
        wrong = next(one for one in names if len(one) > LONGEST_NAME or _others(one))
        raise BadRequest(f"{field}: {wrong[:60]!r} is no name")
    return names


def _others(text: str) -> bytes:
    """Return what is not of LETTERS."""
    return text.encode("utf-8", "replace").translate(None, LETTERS)
