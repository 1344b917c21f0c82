"""The roles of the chart are what the code calls: no rule is missing, and none is too many.

`CALLS` says for each module that speaks with an API server, and each of its verbs, which rights
that takes of whom. Where the code calls is read from it: a call that is new, or gone, is found, and
with the table the roles in all goldens.
"""

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.chart import goldens

PACKAGE: Final = Path(__file__).parents[2] / "gpumanager"
VERBS: Final = {"get", "list", "watch", "create", "patch", "delete"}
APIS: Final = {"api", "_api"}
KUBELET: Final = "kubelet"
"""The verb of a module that reads from the kubelet, which asks the API server who may."""


@dataclass(frozen=True, slots=True)
class Right:
    """One verb on one resource. names: the only objects; where: `cluster`, or whose namespace."""

    part: str
    group: str
    resource: str
    verb: str
    named: bool = False
    where: str = "cluster"


Arguments = list[str]
When = Callable[[Arguments], bool]


def always(_: Arguments) -> bool:
    return True


def has(word: str) -> When:
    return lambda arguments: any(one.startswith(word) for one in arguments)


def no_quota(arguments: Arguments) -> bool:
    return "--quota-configmap=none" in arguments


def quota(arguments: Arguments) -> bool:
    return not no_quota(arguments)


def alone(arguments: Arguments) -> bool:
    return "--allow-other-managers=true" not in arguments


own_certificate: Final = has("--secret=")


def agent(resource: str, verb: str, when: When = always) -> tuple[Right, When]:
    return Right("agent", "", resource, verb), when


def extender(resource: str, verb: str) -> tuple[Right, When]:
    return Right("extender", "", resource, verb), always


def budgets(verb: str) -> tuple[Right, When]:
    return Right("extender", "policy", "poddisruptionbudgets", verb), always


def lease(verb: str, *, named: bool) -> tuple[Right, When]:
    group = "coordination.k8s.io"
    return Right("extender", group, "leases", verb, named=named, where="own"), always


def quotas(verb: str) -> tuple[tuple[Right, When], ...]:
    rights = (
        Right(part, "", "configmaps", verb, named=True, where="quota")
        for part in ("extender", "webhook")
    )
    return tuple((one, quota) for one in rights)


def quota_event(verb: str) -> tuple[Right, When]:
    return Right("extender", "", "events", verb, where="quota"), quota


def secret(verb: str, *, named: bool) -> tuple[Right, When]:
    return Right("webhook", "", "secrets", verb, named=named, where="own"), own_certificate


def configurations(verb: str) -> tuple[tuple[Right, When], ...]:
    group = "admissionregistration.k8s.io"
    return tuple(
        (Right("webhook", group, f"{kind}webhookconfigurations", verb, named=True), own_certificate)
        for kind in ("mutating", "validating")
    )


def claims(resource: str, verb: str) -> tuple[Right, When]:
    group = "resource.k8s.io" if resource == "resourceclaimtemplates" else ""
    return Right("webhook", group, resource, verb), has("--claims")


def scored_by_claims(verb: str) -> tuple[tuple[Right, When], ...]:
    kinds = "resourceclaims", "resourceslices", "deviceclasses"
    rights = (Right("extender", "resource.k8s.io", kind, verb) for kind in kinds)
    return tuple((one, has("--claims")) for one in rights)


def driver(resource: str, verb: str) -> tuple[Right, When]:
    group = "" if resource == "pods" else "resource.k8s.io"
    return Right("agent", group, resource, verb), has("--plugins-path=")


def managers(group: str, resource: str, verb: str) -> tuple[Right, When]:
    """Where the agent looks for other managers of its GPUs."""
    return Right("agent", group, resource, verb), alone


def followed_for_claims(verb: str) -> tuple[tuple[Right, When], ...]:
    return tuple(claims(one, verb) for one in ("pods", "resourcequotas", "resourceclaimtemplates"))


CALLS: Final[dict[tuple[str, str], tuple[tuple[Right, When], ...]]] = {
    ("cli/support/claim_inputs.py", "create"): (),  # everybody may ask what they may
    ("cli/support/claim_inputs.py", "get"): (driver("deviceclasses", "get"),),
    ("cli/support/claim_inputs.py", "list"): (
        driver("resourceclaims", "list"),
        driver("resourceslices", "list"),
    ),
    ("cli/support/inputs.py", "get"): (agent("nodes", "get"),),
    ("cli/support/inputs.py", "list"): (
        agent("pods", "list"),
        managers("resource.k8s.io", "resourceslices", "list"),
    ),
    ("node_status/service.py", "patch"): (
        agent("nodes", "patch"),
        agent("nodes/status", "patch"),
    ),
    ("dra/cluster.py", "get"): (driver("resourceclaims", "get"), driver("pods", "get")),
    ("dra/publisher.py", "get"): (agent("nodes", "get"),),
    ("dra/publisher.py", "create"): (driver("resourceslices", "create"),),
    ("dra/publisher.py", "patch"): (driver("resourceslices", "patch"),),
    ("kube/events.py", "create"): (agent("events", "create"), quota_event("create")),
    ("kube/events.py", "get"): (agent("events", "get"), quota_event("get")),
    ("kube/events.py", "patch"): (agent("events", "patch"), quota_event("patch")),
    ("node_status/pod_reconciler.py", "delete"): (
        agent("pods", "delete", has("--recycle-failed-pods=true")),
    ),
    ("node_status/pod_reconciler.py", "patch"): (agent("pods", "patch"),),
    ("kubelet/pods.py", KUBELET): (agent("kubelet's pods", "get"), agent("nodes/metrics", "get")),
    ("scheduler/extender/bind.py", "create"): (extender("pods/binding", "create"),),
    ("scheduler/extender/bind.py", "get"): (extender("pods", "get"),),
    ("scheduler/extender/bind.py", "patch"): (extender("pods", "patch"),),
    ("scheduler/certificates/own_ca.py", "get"): (
        secret("get", named=True),
        *configurations("get"),
    ),
    ("scheduler/certificates/own_ca.py", "create"): (secret("create", named=False),),
    ("scheduler/certificates/own_ca.py", "patch"): (
        secret("patch", named=True),
        *configurations("patch"),
    ),
    ("kube/lease.py", "create"): (lease("create", named=False),),
    ("kube/lease.py", "get"): (lease("get", named=True),),
    ("kube/lease.py", "patch"): (lease("patch", named=True),),
    ("scheduler/extender/requeue.py", "patch"): (extender("pods", "patch"),),
    ("scheduler/extender/role.py", "patch"): (extender("pods", "patch"),),
    ("kube/informer.py", "list"): (
        agent("pods", "list"),
        extender("nodes", "list"),
        extender("pods", "list"),
        budgets("list"),
        *quotas("list"),
        *followed_for_claims("list"),
        *scored_by_claims("list"),
        driver("resourceclaims", "list"),
        driver("resourceslices", "list"),
        agent("nodes", "list"),
        managers("resource.k8s.io", "resourceslices", "list"),
    ),
    ("kube/informer.py", "watch"): (
        agent("pods", "watch"),
        extender("nodes", "watch"),
        extender("pods", "watch"),
        budgets("watch"),
        *quotas("watch"),
        *followed_for_claims("watch"),
        *scored_by_claims("watch"),
        driver("resourceclaims", "watch"),
        driver("resourceslices", "watch"),
        agent("nodes", "watch"),
        managers("resource.k8s.io", "resourceslices", "watch"),
    ),
    ("scheduler/claims/keeper.py", "create"): (claims("resourceclaimtemplates", "create"),),
    ("scheduler/claims/keeper.py", "delete"): (claims("resourceclaimtemplates", "delete"),),
    ("scheduler/webhook/nodes.py", "list"): ((Right("webhook", "", "nodes", "list"), always),),
}


def called(package: Path) -> set[tuple[str, str]]:
    """Modules and the verbs by which they speak with an API server, or with the kubelet."""
    return {
        (str(path.relative_to(package)), verb)
        for path in package.rglob("*.py")
        if "sim" not in path.relative_to(package).parts
        for verb in _verbs(ast.parse(path.read_text()))
    }


def _verbs(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute):
            continue
        owner = node.value
        name = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
        verb = "get" if node.attr == "find" else node.attr
        if verb in VERBS and name in APIS:
            yield verb
        if (name, node.attr) == ("kubelet", "get"):
            yield KUBELET


def test_the_table_has_all_calls_of_the_code_and_no_others() -> None:
    assert called(PACKAGE) == CALLS.keys()


def test_a_new_call_is_found(tmp_path: Path) -> None:
    (tmp_path / "new.py").write_text("async def f(self): await self._api.delete('/api/v1/nodes')\n")

    assert called(tmp_path) == {("new.py", "delete")}


@pytest.mark.parametrize("case", goldens.WITH_RAW)
def test_the_roles_allow_what_is_called_and_no_more(case: str) -> None:
    commands = goldens.commands(case)
    wanted = {
        right
        for rights in CALLS.values()
        for right, when in rights
        if right.part in commands and when(commands[right.part])
    }

    assert set(allowed(case)) == wanted


def allowed(case: str) -> Iterator[Right]:
    """What the roles of our parts allow, by the bindings that give them."""
    bound = {
        (one["roleRef"]["kind"], one["metadata"].get("namespace"), one["roleRef"]["name"])
        for one in goldens.of_kind(case, "ClusterRoleBinding", "RoleBinding")
    }
    for role in goldens.of_kind(case, "ClusterRole", "Role"):
        metadata, part = role["metadata"], goldens.part(role)
        if part not in goldens.OURS:
            continue
        assert (role["kind"], metadata.get("namespace"), metadata["name"]) in bound
        where = "quota" if metadata["name"].endswith("-quota") else "own"
        for rule in role["rules"]:
            assert rule.keys() <= {"apiGroups", "resources", "resourceNames", "verbs"}
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    for verb in rule["verbs"]:
                        yield Right(
                            part,
                            group,
                            KUBELETS.get(resource, resource),
                            verb,
                            named="resourceNames" in rule,
                            where="cluster" if role["kind"] == "ClusterRole" else where,
                        )


KUBELETS: Final = dict.fromkeys(("nodes/proxy", "nodes/pods"), "kubelet's pods")


@pytest.mark.parametrize("case", goldens.WITH_RAW)
def test_names_in_the_roles_are_those_of_the_flags(case: str) -> None:
    words = {
        word
        for _, arguments in goldens.commands(case).items()
        for one in arguments
        for word in one.partition("=")[2].split("/")
    }
    for role in goldens.of_kind(case, "ClusterRole", "Role"):
        if goldens.part(role) in goldens.OURS:
            names = {name for rule in role["rules"] for name in rule.get("resourceNames", ())}
            assert names <= words
