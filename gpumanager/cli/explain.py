"""`gpumanager explain NAMESPACE/POD`: why a pod waits, or why it is where it is, and what happened.
`gpumanager explain claim NAMESPACE/NAME`: the same of a ResourceClaim.

Three know something: the extender its last verdict, the agent of the pod's node what happened at
admission and since, the API server the pod's events. Whoever answers is put in words; only where
none of them knows the pod is that an error.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import quote

import click
from rich.box import SIMPLE_HEAD
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from gpumanager.cli.explain_claims import ClaimAnswer, ClusterClaims, PodAnswer
from gpumanager.cli.flags import authority_option, extender_option
from gpumanager.cli.node_agents import DEFAULT as DEFAULT_AGENT
from gpumanager.cli.node_agents import AgentUnavailable, check, fetch_node, get, json_object
from gpumanager.cli.output.console import OutputConsole
from gpumanager.dra.unallocated import NodesWithout
from gpumanager.errors import GpuManagerError
from gpumanager.kube.access import read_kubeconfig
from gpumanager.kube.client import KubeClient
from gpumanager.units import count_of
from gpumanager.view.node import NodeView
from gpumanager.view.story import claim_story, pod_story, story, when

ANSWER_SECONDS: Final = 10.0
KINDS: Final = ("pod", "claim")
EXPECTED: Final = {"pod", "time", "policy", "nodes", "fitting", "reasons", "best", "bound", "gpus"}


Said = Mapping[str, Any]
T = TypeVar("T")


class NoAnswer(GpuManagerError):
    """The extender could not be asked."""

    exit_status = 2


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
    pod = f"{namespace}/{name}"
    answer = get_record(extender, f"/explain/{quote(namespace)}/{quote(name)}", authority)
    silent, node = isinstance(answer, GpuManagerError), find_node(agent)
    admission = story(pod, node) if node else ()
    read = partial(read_pod, namespace, name)
    cluster = asyncio.run(ask(kubeconfig, read)) if kubeconfig else PodAnswer()
    if isinstance(answer, GpuManagerError) and not (admission or cluster.sentences):
        if agent is None:
            raise answer
        where = node.node if node else "its node"
        raise GpuManagerError(
            f"{pod}: the agent of {where} knows nothing of it: it is on another node, has ended, "
            f"or was never admitted; and the extender does not say: {answer}"
        )
    if as_json:
        said: dict[str, Any] = {"pod": pod, "extender_error": str(answer)}
        said = said if isinstance(answer, GpuManagerError) else dict(answer)
        if node is not None and admission:
            said["admission"] = {"node": node.node, **_documents(pod, node)}
            said["admission"]["sentences"] = list(admission)
        said |= {"cluster": list(cluster.sentences)} if cluster.sentences else {}
        if cluster.claims:
            said["claims"] = [one.as_json() for one in cluster.claims]
        click.echo(json.dumps(said))
        return
    # The extender may never have been asked about a pod that has its GPUs by claims.
    grants = node.containers if node else ()
    by_claims = cluster.uses_claims or any(one.claim and one.is_for(pod) for one in grants)
    print_answers(
        pod,
        None if silent and by_claims else answer,
        [
            ("In the cluster", cluster.sentences, ()),
            *((f"Claim {one.name}", _with_node(one, node), one.reasons) for one in cluster.claims),
            ("On its node", admission, ()),
        ],
    )


def _explain_claim(
    namespace: str, name: str, agent: str | None, kubeconfig: Path | None, *, as_json: bool
) -> None:
    claim, found = f"{namespace}/{name}", None
    node = find_node(agent)
    admission = claim_story(claim, node) if node else ()
    if kubeconfig:
        question = partial(ClusterClaims.of_claim, namespace=namespace, name=name)
        found = asyncio.run(ask(kubeconfig, lambda client: question(ClusterClaims(client))))
    if found is None and not admission:
        where = node.node if node else "this node"
        raise GpuManagerError(
            f"claim {claim}: the agent of {where} has not prepared it; name --kubeconfig, so that "
            "the API server is asked"
        )
    found = found or ClaimAnswer(claim, ())
    found = replace(found, sentences=_with_node(found, node))
    if as_json:
        click.echo(json.dumps({**found.as_json(), "admission": list(admission)}))
        return
    told = (f"Claim {claim}", found.sentences, found.reasons)
    print_answers("", None, [told, ("On its node", admission, ())])


def _documents(pod: str, node: NodeView) -> dict[str, Any]:
    """Return what the node's document has of a pod, as it is there."""
    containers = zip(node.containers, node.document["containers"], strict=True)
    events = zip(node.events, node.document.get("events", ()), strict=True)
    return {
        "containers": [said for one, said in containers if one.is_for(pod)],
        "events": [said for one, said in events if one.subject.startswith(f"{pod}/")],
    }


def _with_node(claim: ClaimAnswer, node: NodeView | None) -> tuple[str, ...]:
    """Add what the agent's books have, where it is the agent of the claim's node."""
    if node is None or claim.pool != node.node:
        return claim.sentences
    prepared = any(one.claim_name == claim.name for one in node.containers)
    said = "It is prepared" if prepared else "It is not prepared"
    return (*claim.sentences, f"{said} on node {node.node}.")


def get_record(url: str, path: str, authority: Path | None) -> Said | GpuManagerError:
    """Return the extender's record, or why there is none; raises InputError for a bad URL."""
    check(url, "--extender")
    try:
        status, body = get(url, path, seconds=ANSWER_SECONDS, authority=authority)
    except GpuManagerError as error:
        return NoAnswer(f"{url}: cannot ask the extender: {error}")
    record = json_object(body)
    if record and status != HTTPStatus.OK:
        return GpuManagerError(str(record.get("Error") or f"the extender answered {status}"))
    if EXPECTED - record.keys():
        return NoAnswer(f"{url}: answers {status}, but not as this version's extender does")
    return record


def find_node(agent: str | None) -> NodeView | None:
    """Return what the agent has; raises InputError, and AgentUnavailable if it was named. The one
    on this machine is tried unasked."""
    url = check(agent or DEFAULT_AGENT, "--agent")
    try:
        return fetch_node(url)
    except GpuManagerError as error:
        if agent is None:
            return None
        raise AgentUnavailable(url, str(error)) from error


async def ask(kubeconfig: Path, question: Callable[[KubeClient], Awaitable[T]]) -> T:
    """Ask the API server; raises InputError, ApiRefused, ApiUnavailable."""
    async with KubeClient(read_kubeconfig(kubeconfig), agent="gpumanager-explain") as client:
        return await question(client)


async def read_pod(namespace: str, name: str, client: KubeClient) -> PodAnswer:
    """Return what the API server has about a pod."""
    pods = f"/api/v1/namespaces/{namespace}"
    about = {"fieldSelector": f"involvedObject.name={name}", "limit": 200}
    found = await client.get(f"{pods}/pods/{name}")
    events = await client.get(f"{pods}/events", **about)
    answer = await ClusterClaims(client).of_pod(found)
    items = [one for one in events.get("items") or () if isinstance(one, dict)]
    return replace(answer, sentences=(*answer.sentences, *pod_story(found, items)))


def print_answers(
    pod: str,
    extender: Said | GpuManagerError | None,
    sections: Sequence[tuple[str, Sequence[str], Sequence[NodesWithout]]] = (),
) -> None:
    """Print all of it. extender: its record, or why there is none; None where it is not asked for.
    sections: title, sentences, and why a claim is not allocated. pod: empty where claims alone are
    explained."""
    console = OutputConsole()
    if extender is None or isinstance(extender, GpuManagerError):
        if pod:
            console.print(Text(pod, style="bold"))
        if extender is not None:
            console.print(Text(f"The extender does not say: {extender}", style="dim"))
    else:
        print_explanation(console, extender)
    for title, sentences, reasons in sections:
        if sentences:
            console.print(Text(f"\n{title}", style="bold"))
        for line in sentences:
            console.print(Padding(Text(line), (0, 0, 0, 2), expand=False))
        if reasons:
            rows = [asdict(one) for one in reasons]
            for row in rows:
                if row["request"]:
                    row["reason"] = f"request {row['request']}: {row['reason']}"
            console.print(_reasons(rows))


def print_explanation(console: OutputConsole, said: Said) -> None:
    """Print what `/explain` answers."""
    states = (
        (said["bound"], f" is on {said['bound']}", "bold green"),
        (said.get("trouble"), " could not be bound", "bold red"),
        (said["fitting"], " fits and waits to be bound", "bold yellow"),
        (True, " is pending: no node fits", "bold red"),
    )
    state, style = next((text, style) for holds, text, style in states if holds)
    title = Text(str(said["pod"]), style="bold").append(state, style=style)
    console.print(title.append(f"   {when(said['time'])}", style="not bold dim"))
    for line in _story(said):
        console.print(Padding(Text(line), (0, 0, 0, 2), expand=False))
    if said["gpus"]:
        table = Table(box=SIMPLE_HEAD, pad_edge=False)
        for name in ("container", "GPU", "UUID"):
            table.add_column(name, overflow="fold", justify="right" if name == "GPU" else "left")
        for row in said["gpus"]:
            table.add_row(*(Text(str(row[name])) for name in ("container", "index", "uuid")))
        console.print(table)
    if said["reasons"]:
        console.print(_reasons(said["reasons"]))


def _story(said: Said) -> Iterator[str]:
    if trouble := said.get("trouble"):
        yield str(trouble)
    if said["nodes"]:
        yield f"{said['fitting']:,} of {count_of(said['nodes'], 'node')} fit."
    if said["policy"]:
        yield f"Policy: {said['policy']}."
    points, best = said.get("points"), said["best"]
    if said["bound"] and points is not None and best:
        # By the policy's points, which mean nothing to people: they may be negative.
        better = sum(one["nodes"] for one in best if one["points"] > points)
        alike = sum(one["nodes"] for one in best if one["points"] == points)
        fit = f"the {count_of(said['fitting'], 'node')} that fit"
        of = f"of {fit if said['fitting'] else 'all nodes'}"
        place = f"behind the best {better:,} {of}"
        if not better:
            place = f"the best {of}"
            if alike > 1:
                place = f"among the {alike:,} best {of}, with the same score"
        elif alike:
            place = f"number {better + 1:,} {of}"
        weighs = "; others were better, but kube-scheduler weighs other things too"
        yield f"{said['bound']} was {place}{weighs if better else ''}."
    if best:
        names = (
            str(one["node"])
            + (f" and {one['nodes'] - 1:,} more as good" if one["nodes"] > 1 else "")
            for one in best
        )
        yield f"The best: {'; '.join(names)}."
    elif said["fitting"] > 1:
        yield "All nodes that fit have the same score."


def _reasons(rows: Sequence[Said]) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("nodes", justify="right", no_wrap=True)
    table.add_column("why not, and one of them", overflow="fold")
    for row in rows:
        why = Text(str(row["reason"]))
        why.append(f"\n{row['example']}", style="dim")
        why.append(f": {row['detail']}" if row["detail"] else "", style="dim")
        table.add_row(f"{row['nodes']:,}", why)
    return table
