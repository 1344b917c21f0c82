"""The extender protocol's JSON (k8s.io/kube-scheduler/extender/v1), read and written. Pure.

Lists of ten thousand names are most of what is said; `name_lists` reads those where they stand, and
answers are copied from there, since nothing in a name has to be escaped.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from gpumanager.kube.pod import PodUID, PodView, read_pod
from gpumanager.scheduler.asks import asked_by
from gpumanager.scheduler.bind import BindRequest
from gpumanager.scheduler.decide import Filtered, Left, Scores
from gpumanager.scheduler.name_lists import LONGEST_NAME, BadRequest, Cut, NameLists, few, plain
from gpumanager.scheduler.named import Chosen, Names
from gpumanager.scheduler.node import read_node

MOST_CONTAINERS: Final = 1024
"""Of a pod, with and without GPUs."""
Text = bytes | memoryview
Texts = tuple[Text, ...]


@dataclass(frozen=True, slots=True)
class Arguments:
    """ExtenderArgs. names: of the nodes; nodes: their objects, by name, if they were sent whole."""

    pod: PodView
    names: Collection[str]
    nodes: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class PreemptArguments:
    """victims: UIDs by node. given: how many disruption budgets are violated, by node."""

    pod: PodView
    victims: Mapping[str, tuple[PodUID, ...]]
    violations: Mapping[str, int]


def read_arguments(body: bytes, lists: NameLists) -> Arguments:
    """Raises BadRequest."""
    cut = lists.cut(body)
    if cut is not None and (pod := _pod_beside(cut, lists)):
        return Arguments(pod, cut.names)
    content = _parse(body)
    pod, said = _pod(content), content.get("nodenames")
    if said is not None:
        return Arguments(pod, _names(said))
    if content.get("nodes") is None:
        raise BadRequest("Nodes and NodeNames are both missing")
    nodes = _nodes(content["nodes"])
    return Arguments(pod, tuple(nodes), nodes=nodes)


def _pod_beside(cut: Cut, lists: NameLists) -> PodView | None:
    """None where the list that was cut is not the request's own. Raises BadRequest."""
    known = lists.pods.get(cut.rest)
    if known is None:
        content = _parse(cut.rest)
        if content.get("nodenames") != lists.mark:
            return None
        known = _pod(content)
        lists.pods.put(cut.rest, known)
    return known


def read_preempt(body: bytes) -> PreemptArguments:
    """Raises BadRequest."""
    content = _parse(body)
    pod = _pod(content)
    given = content.get("nodenametometavictims")
    if given is None:
        given = content.get("nodenametovictims")
    if not isinstance(given, dict):
        raise BadRequest("NodeNameToMetaVictims: expected an object")
    victims, violations = {}, {}
    for node, said in given.items():
        fields = _object(said or {}, f"the victims on {node[:60]!r}")
        pods = fields.get("pods") or []
        if not isinstance(pods, list):
            raise BadRequest(f"the victims on {node[:60]!r}: Pods: expected a list")
        victims[node] = tuple(_uid(one) for one in pods)
        violations[node] = _number(fields.get("numpdbviolations"))
    return PreemptArguments(pod, victims, violations)


def read_bind(body: bytes) -> BindRequest:
    """Raises BadRequest."""
    content = _parse(body)
    words = {}
    for name in ("PodNamespace", "PodName", "PodUID", "Node"):
        word = content.get(name.lower())
        if not isinstance(word, str) or not plain(word):
            raise BadRequest(f"{name}: expected a name, found {_shown(word)}")
        words[name] = word
    return BindRequest(
        words["PodNamespace"], words["PodName"], PodUID(words["PodUID"]), words["Node"]
    )


def write_filter(arguments: Arguments, found: Filtered) -> bytes:
    """ExtenderFilterResult, in the kind of the request: names, or whole nodes."""
    nodes: Texts
    names: Texts
    if arguments.nodes is not None:
        items = [arguments.nodes[name] for name in found.fitting]
        nodes, names = (json.dumps({"metadata": {}, "items": items}).encode(),), (b"null",)
    else:
        nodes, names = (b"null",), (b"[", _listed(found.fitting), b"]")
    retry = _reasons(one for one in found.left if not one.why.final)
    never = _reasons(one for one in found.left if one.why.final)
    return b"".join(
        (
            *(b'{"Nodes":', *nodes, b',"NodeNames":', *names, b',"FailedNodes":{', *retry),
            *(b'},"FailedAndUnresolvableNodes":{', *never, b'},"Error":""}'),
        )
    )


def _listed(names: Collection[str]) -> Text:
    return names.text if isinstance(names, Names) else _rows(b"", names, b"")


def write_error(message: str) -> bytes:
    """ExtenderFilterResult, or ExtenderBindingResult."""
    return json.dumps({"Error": message}).encode()


def write_scores(scores: Scores) -> bytes:
    """HostPriorityList."""
    rows = (_rows(b'{"Host":', names, b',"Score":%d}' % score) for score, names in scores)
    return b"".join((b"[", *_parted(rows), b"]"))


def write_victims(
    nodes: Iterable[str], victims: Mapping[str, tuple[PodUID, ...]], violations: Mapping[str, int]
) -> bytes:
    """ExtenderPreemptionResult."""
    kept = {
        name: {
            "Pods": [{"UID": uid} for uid in victims[name]],
            "NumPDBViolations": violations[name],
        }
        for name in nodes
    }
    return json.dumps({"NodeNameToMetaVictims": kept}).encode()


def _reasons(left: Iterable[Left]) -> Iterator[Text]:
    """What stands in a FailedNodesMap."""
    return _parted(_rows(b"", one.names, f":{json.dumps(one.why.phrase)}".encode()) for one in left)


def _rows(before: bytes, names: Collection[str], after: bytes) -> Text:
    """The same about each of them, with commas between."""
    if isinstance(names, Chosen):
        return names.written(before, after + b",")[:-1]
    text = f'"{after.decode()},{before.decode()}"'.join(names)
    return b'%s"%s"%s' % (before, text.encode(), after) if names else b""


def _parted(texts: Iterable[Text]) -> Iterator[Text]:
    """With a comma after each but the last."""
    comma = b""
    for text in texts:
        yield comma
        yield text
        comma = b","


def _parse(body: bytes) -> dict[str, Any]:
    """The fields by their names in small letters: Go's decoder takes them in any."""
    try:
        content = json.loads(body)
    except RecursionError:
        raise BadRequest("nested too deeply") from None
    except ValueError as error:
        raise BadRequest(f"not JSON: {error}") from None
    return _object(content, "the request")


def _object(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadRequest(f"{what}: expected an object, found {_shown(value)}")
    return {name.lower(): field for name, field in value.items()}


def _pod(content: Mapping[str, Any]) -> PodView:
    item = content.get("pod")
    if item is None:
        raise BadRequest("Pod: missing")
    try:
        pod = read_pod(item)
        _check(pod)
        return replace(pod, annotations=asked_by(pod.annotations)) if pod.annotations else pod
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise BadRequest(f"Pod: not a pod ({type(error).__name__}: {error})") from None


def _check(pod: PodView) -> None:
    """read_pod takes what it finds; here nobody is trusted to have sent text, or no more of it than
    an API server would have let in: it may be kept."""
    if len(pod.containers) > MOST_CONTAINERS:
        raise ValueError(f"{len(pod.containers)} containers; the most is {MOST_CONTAINERS}")
    names = (pod.uid, pod.namespace, pod.name, pod.phase, *(one.name for one in pod.containers))
    if not all(isinstance(text, str) for text in (*names, *pod.annotations.values())):
        raise TypeError("a name or an annotation that is no text")
    if any(len(name) > LONGEST_NAME for name in (*names, pod.scheduler)):
        raise ValueError(f"a name of more than {LONGEST_NAME} letters")


def _names(names: Any) -> list[str]:
    if not isinstance(names, list):
        raise BadRequest(f"NodeNames: expected a list, found {_shown(names)}")
    for name in names:
        if not plain(name):
            raise BadRequest(f"NodeNames: {_shown(name)} is no name of a node")
    return few(names)


def _nodes(nodes: Any) -> dict[str, Any]:
    items = _object(nodes, "Nodes").get("items")
    if items is not None and not isinstance(items, list):
        raise BadRequest(f"Nodes: items: expected a list, found {_shown(items)}")
    found = {}
    for item in items or []:
        try:
            name = read_node(item).name
        except (KeyError, TypeError, AttributeError) as error:
            raise BadRequest(f"Nodes: not a node ({error!r})") from None
        if not plain(name):
            raise BadRequest(f"Nodes: {_shown(name)} is no name of a node")
        found[name] = item
    return found


def _uid(item: Any) -> PodUID:
    """Of a MetaPod, or of a whole pod."""
    fields = _object(item, "a victim")
    uid = fields.get("uid") or _object(fields.get("metadata") or {}, "a victim").get("uid")
    if not isinstance(uid, str):
        raise BadRequest(f"a victim: UID: expected text, found {_shown(uid)}")
    return PodUID(uid)


def _number(value: Any) -> int:
    if value is None:
        return 0
    if not isinstance(value, int) or isinstance(value, bool):
        raise BadRequest(f"NumPDBViolations: expected a number, found {_shown(value)}")
    return value


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"  # noqa: PLR2004
