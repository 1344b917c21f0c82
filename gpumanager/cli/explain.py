"""`gpumanager explain NAMESPACE/POD`: why a pod waits, or why it is where it is, and what happened.
`gpumanager explain claim NAMESPACE/NAME`: the same of a ResourceClaim.

Three know something: the extender its last verdict, the agent of the pod's node what happened at
admission and since, the API server the pod's events. Whoever answers is put in words; only where
none of them knows the pod is that an error.
"""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import click

from gpumanager.cli.explain_claims import NOT_ASKED, ClaimAnswer, ClusterClaims, PodAnswer
from gpumanager.cli.flags import authority_option, extender_option
from gpumanager.cli.http_query import BROKEN, cause, check, get
from gpumanager.cli.node_agents import DEFAULT as DEFAULT_AGENT
from gpumanager.cli.node_agents import AgentAway, document, picture
from gpumanager.cli.output.explain_report import print_told
from gpumanager.errors import GpuManagerError
from gpumanager.kube.access import Access, read_kubeconfig
from gpumanager.kube.client import KubeClient
from gpumanager.view import story
from gpumanager.view.placement import Placement, read_placement
from gpumanager.view.pod_story import pod_story
from gpumanager.view.values import NodeView

ANSWER_SECONDS: Final = 10.0
KINDS: Final = ("pod", "claim")
EXPECTED: Final = {"pod", "time", "policy", "nodes", "fitting", "reasons", "best", "bound", "gpus"}


class NoAnswer(GpuManagerError):
    """The extender could not be asked: where, and why not."""

    exit_status = 2

    def __init__(self, url: str, cause: str) -> None:
        super().__init__(f"{url}: {cause}")


@dataclass(frozen=True, slots=True)
class AgentAnswers:
    """What is known of a pod. extender: its record, or why there is none. placement: of its node.

    admission: sentences; empty where nobody said anything. cluster: what the API server says.
    by_claims: it has its GPUs by claims, so that the extender may never have been asked.
    """

    extender: Mapping[str, Any] | GpuManagerError
    placement: Placement | None = None
    admission: tuple[str, ...] = ()
    cluster: PodAnswer = NOT_ASKED
    by_claims: bool = False


class Unknown(GpuManagerError):
    """Neither the extender nor the agent that was named knows the pod."""

    def __init__(self, pod: str, told: AgentAnswers) -> None:
        node = told.placement.node if told.placement else "its node"
        super().__init__(
            f"{pod}: the agent of {node} knows nothing of it: it is on another node, has ended, or "
            f"was never admitted; and the extender does not say: {told.extender}"
        )


@click.command("explain")
@click.argument("words", metavar="[claim] [NAMESPACE/]NAME", nargs=-1, required=True)
@extender_option
@authority_option
@click.option(
    "--agent",
    metavar="URL",
    envvar="GPUMANAGER_AGENT",
    show_envvar=True,
    help=f"URL of the agent on the pod's node; by default {DEFAULT_AGENT} is tried.",
)
@click.option(
    "--kubeconfig",
    type=Path,
    envvar="KUBECONFIG",
    show_envvar=True,
    help="Ask the API server too, for the pod and its events.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    words: Sequence[str],
    extender: str,
    authority: Path | None,
    agent: str | None,
    kubeconfig: Path | None,
    *,
    as_json: bool,
) -> None:
    """Explain why a pod waits for a GPU, or why it got its GPU and what happened to it there.

    \b
    Examples:
      gpumanager explain research/train-7
      gpumanager explain claim research/budget --kubeconfig ~/.kube/config
    """
    kind, pod = words if len(words) == 2 else ("pod", words[0])  # noqa: PLR2004 - a kind, a name
    namespace, slash, name = pod.rpartition("/")
    if len(words) > 2 or kind not in KINDS:  # noqa: PLR2004
        raise click.UsageError("name one pod, or one claim: explain claim NAMESPACE/NAME")
    if not name or "/" in namespace or (slash and not namespace):
        raise click.BadParameter(f"{pod!r}: write NAMESPACE/{kind.upper()}", param_hint="NAME")
    namespace = namespace or "default"
    if kind == "claim":
        _explain_claim(namespace, name, agent, kubeconfig, as_json=as_json)
        return
    path = f"/explain/{quote(namespace)}/{quote(name)}"
    answer = asked(extender, path, authority)
    told_by = partial(story.story, f"{namespace}/{name}")
    placement, admission = admitted(told_by, agent)
    cluster = in_cluster(namespace, name, kubeconfig)
    grants = placement.grants if placement else ()
    by_claims = any(one.claim and one.is_for(f"{namespace}/{name}") for one in grants)
    told = AgentAnswers(
        answer, placement, admission, cluster, by_claims=by_claims or cluster.uses_claims
    )
    if isinstance(answer, GpuManagerError) and not (told.admission or told.cluster.sentences):
        raise answer if agent is None else Unknown(f"{namespace}/{name}", told)
    _print(f"{namespace}/{name}", told, as_json=as_json)


def _print(pod: str, told: AgentAnswers, *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(_record(pod, told)))
    else:
        claims = told.cluster.claims
        rows = [(one.name, _with_node(one, told.placement), one.reasons) for one in claims]
        silent = isinstance(told.extender, GpuManagerError) and told.by_claims
        extender = None if silent else told.extender
        print_told(pod, extender, told.admission, told.cluster.sentences, rows)


def _explain_claim(
    namespace: str, name: str, agent: str | None, kubeconfig: Path | None, *, as_json: bool
) -> None:
    claim = f"{namespace}/{name}"
    placement, admission = admitted(partial(story.claim_story, claim), agent)
    found = claim_in_cluster(namespace, name, kubeconfig)
    if found is None and not admission:
        node = placement.node if placement else "this node"
        raise GpuManagerError(
            f"claim {claim}: the agent of {node} has not prepared it; name --kubeconfig, so that "
            "the API server is asked"
        )
    found = found or ClaimAnswer(claim, ())
    sentences = _with_node(found, placement)
    if as_json:
        record = replace(found, sentences=sentences).as_json()
        click.echo(json.dumps({**record, "admission": list(admission)}))
        return
    print_told("", None, admission, (), [(claim, sentences, found.reasons)])


def _with_node(claim: ClaimAnswer, placement: Placement | None) -> tuple[str, ...]:
    """With what the agent's books say, where it is the agent of the claim's node."""
    if placement is None or claim.pool != placement.node:
        return claim.sentences
    prepared = any(one.claim == claim.name for one in placement.grants)
    said = "It is prepared" if prepared else "It is not prepared"
    return (*claim.sentences, f"{said} on node {placement.node}.")


def _record(pod: str, told: AgentAnswers) -> dict[str, Any]:
    """As the extender has it, and beside that what the agent and the cluster say."""
    if isinstance(told.extender, GpuManagerError):
        record: dict[str, Any] = {"pod": pod, "extender_error": str(told.extender)}
    else:
        record = dict(told.extender)
    if told.placement is not None and told.admission:
        record["admission"] = {
            **story.as_json(pod, told.placement),
            "sentences": list(told.admission),
        }
    if told.cluster.sentences:
        record["cluster"] = list(told.cluster.sentences)
    if told.cluster.claims:
        record["claims"] = [one.as_json() for one in told.cluster.claims]
    return record


def asked(url: str, path: str, authority: Path | None) -> Mapping[str, Any] | GpuManagerError:
    """What the extender says, or why it does not; raises InputError for a URL that is none."""
    check(url, "--extender")
    try:
        return ask(url, path, authority)
    except GpuManagerError as error:
        return error


def ask(url: str, path: str, authority: Path | None = None) -> Mapping[str, Any]:
    """What an extender answers; raises NoAnswer, GpuManagerError."""
    try:
        status, body = get(url, path, seconds=ANSWER_SECONDS, authority=authority)
    except TimeoutError as error:
        raise NoAnswer(url, cause(error, ANSWER_SECONDS)) from error
    except BROKEN as error:
        raise NoAnswer(url, f"cannot ask the extender: {cause(error, ANSWER_SECONDS)}") from error
    return _read(url, status, body)


def _read(url: str, status: int, body: bytes) -> Mapping[str, Any]:
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict):
        raise NoAnswer(url, f"answered {status}, but not as an extender does")
    if status != HTTPStatus.OK:
        raise GpuManagerError(str(said.get("Error") or f"the extender answered {status}"))
    if EXPECTED - said.keys():
        raise NoAnswer(url, "answers, but not as this version's extender does")
    return said


def admitted(
    tell: Callable[[Placement, NodeView | None], tuple[str, ...]], agent: str | None
) -> tuple[Placement | None, tuple[str, ...]]:
    """What the agent says, as `tell` puts it; raises InputError, AgentAway where it was named.

    The one on this machine is tried unasked, and is not expected to know anything.
    """
    url = check(agent or DEFAULT_AGENT, "--agent")
    try:
        placement = read_placement(document(url, "/api/placement"))
        sentences = tell(placement, picture(url))
    except GpuManagerError as error:
        if agent is None:
            return None, ()
        raise AgentAway(url, str(error)) from error
    return placement, sentences


def in_cluster(namespace: str, name: str, kubeconfig: Path | None) -> PodAnswer:
    """What the API server says; raises InputError, ApiRefused, ApiUnavailable."""
    if kubeconfig is None:
        return NOT_ASKED
    return asyncio.run(_in_cluster(namespace, name, kubeconfig))


def claim_in_cluster(namespace: str, name: str, kubeconfig: Path | None) -> ClaimAnswer | None:
    """The same of a claim; None where no API server was named."""

    async def ask(access: Access) -> ClaimAnswer:
        async with KubeClient(access, agent="gpumanager-explain") as client:
            return await ClusterClaims(client).of_claim(namespace, name)

    return None if kubeconfig is None else asyncio.run(ask(read_kubeconfig(kubeconfig)))


async def _in_cluster(namespace: str, name: str, kubeconfig: Path) -> PodAnswer:
    pods = f"/api/v1/namespaces/{namespace}"
    about = {"fieldSelector": f"involvedObject.name={name}", "limit": 200}
    async with KubeClient(read_kubeconfig(kubeconfig), agent="gpumanager-explain") as client:
        found = await client.get(f"{pods}/pods/{name}")
        events = await client.get(f"{pods}/events", **about)
        answer = await ClusterClaims(client).of_pod(found)
    items = events.get("items") or ()
    told = pod_story(found, [one for one in items if isinstance(one, dict)])
    return replace(answer, sentences=(*answer.sentences, *told))
