"""Pods from the YAML people write for a cluster, as far as a simulated node runs them.

What the API server would refuse is refused here with the file, the line and the cause: the fields
are read strictly (a string is a string), the names are checked, the amounts of extended resources
have to be whole and equal in requests and limits.
"""

import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from gpumanager.errors import InputError
from gpumanager.kube.pod import ContainerKind
from gpumanager.names import VCORE, VMEMORY, WHOLE_GPU
from gpumanager.sim.manifest import claims, pod_fields
from gpumanager.sim.manifest.yaml_text import Value, documents, read_text
from gpumanager.sim.names import LABEL, RULES, SUBDOMAIN

RESOURCES: Final = (VCORE, VMEMORY, WHOLE_GPU)

_NATIVE: Final = re.compile(r"cpu|memory|ephemeral-storage|hugepages-.*")
"""What every node has, and a simulated one does not count."""

_QUANTITY: Final = re.compile(r"\+?([0-9]{1,12})(k|M|G|Ki|Mi|Gi)?")
_SUFFIXES: Final = {
    "": 1,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "Ki": 1 << 10,
    "Mi": 1 << 20,
    "Gi": 1 << 30,
}


NO_SOURCES: Final = "a simulated node has no config maps, secrets or fields"


@dataclass(frozen=True, slots=True)
class ContainerClaim:
    """A row of a container's `resources.claims`. request: of the claim; empty for all of them."""

    claim: str
    request: str = ""


@dataclass(frozen=True, slots=True)
class PodClaim:
    """A row of `spec.resourceClaims`. claim: the ResourceClaim; empty while it is not made yet.

    template: the claim is made for this pod alone.
    """

    name: str
    claim: str = ""
    template: bool = False


EXTENDED: Final = ""
"""Name of the row for the claim that a scheduler makes for extended resources; no user's has it."""


@dataclass(frozen=True, slots=True)
class ContainerManifest:
    """command: command and args as one. asks: amount by extended resource; absent for none."""

    name: str
    kind: ContainerKind
    command: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()
    directory: str | None = None
    asks: Mapping[str, int] = field(default_factory=dict)
    claims: tuple[ContainerClaim, ...] = ()

    @property
    def cores(self) -> int:
        return self.asks.get(VCORE, 0)

    @property
    def blocks(self) -> int:
        return self.asks.get(VMEMORY, 0)


def _new_uid() -> str:
    return str(uuid.uuid4())


@dataclass(frozen=True, slots=True)
class Pod:
    """containers: in the order of admission, init containers and sidecars first."""

    namespace: str
    name: str
    containers: tuple[ContainerManifest, ...]
    annotations: Mapping[str, str] = field(default_factory=dict)
    uid: str = field(default_factory=_new_uid)
    claims: tuple[PodClaim, ...] = ()

    @property
    def full_name(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class ApiObject:
    """An object as the API server has it. resource: `pods`, `resourceclaims` and so on."""

    resource: str
    item: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Among all of all kinds."""
        metadata = self.item["metadata"]
        return f"{self.resource} {metadata.get('namespace', '')}/{metadata['name']}"


@dataclass(frozen=True, slots=True)
class Manifest:
    """pods: in their order. objects: claims, templates, classes, and the pods that use claims."""

    pods: tuple[Pod, ...]
    objects: tuple[ApiObject, ...] = ()


def read_manifest(paths: Sequence[Path]) -> Manifest:
    """All of all files; raises InputError."""
    found: dict[str, Pod | ApiObject] = {}
    for path in paths:
        for one, where in _objects_of(read_text(path), str(path)):
            name = f"pod {one.full_name}" if isinstance(one, Pod) else one.name
            if name in found:
                raise where.error(f"a second {name}")
            found[name] = one
    pods = tuple(one for one in found.values() if isinstance(one, Pod))
    return Manifest(pods, tuple(one for one in found.values() if isinstance(one, ApiObject)))


def read_pods(paths: Sequence[Path]) -> tuple[Pod, ...]:
    """All pods of all files, in their order; raises InputError."""
    return read_manifest(paths).pods


def parse_pods(text: str, source: str) -> tuple[Pod, ...]:
    """The pods of one text; raises InputError, which names `source`."""
    return tuple(one for one, _ in _objects_of(text, source) if isinstance(one, Pod))


def _objects_of(text: str, source: str) -> Iterator[tuple[Pod | ApiObject, Value]]:
    values = documents(text, source)
    if not values:
        raise InputError(source, "no pod in it")
    for value in values:
        yield from _objects(value)


def _objects(value: Value) -> Iterator[tuple[Pod | ApiObject, Value]]:
    """What one document describes: one object, or a List of such."""
    fields = value.fields()
    kind = fields["kind"].text() if "kind" in fields else None
    version = fields["apiVersion"].text() if "apiVersion" in fields else None
    if kind in ("List", "PodList") and version == "v1":
        for item in _required(fields, "items", value).items():
            yield from _objects(item)
    elif kind == "Pod" and version == "v1":
        pod = _pod(value.known_fields(pod_fields.POD), value)
        yield pod, value
        if "resourceClaims" in fields["spec"].fields() or any(
            WHOLE_GPU in one.asks for one in pod.containers
        ):
            yield ApiObject("pods", _as_api_object(pod, value)), value
    elif kind in claims.RESOURCES and version == claims.API_VERSION:
        yield ApiObject(claims.RESOURCES[kind], claims.read_object(kind, value)), value
    else:
        found = f"{version or 'no apiVersion'}, {kind or 'no kind'}"
        raise value.error(f"expected apiVersion v1, kind Pod, found {found}")


def _as_api_object(pod: Pod, value: Value) -> Mapping[str, Any]:
    item = claims.plain(value)
    same = {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid}
    return {**item, "metadata": {**item["metadata"], **same}}


def _required(fields: Mapping[str, Value], name: str, of: Value) -> Value:
    if name not in fields or fields[name].empty:
        raise of.error(f"{name} is missing")
    return fields[name]


def _optional(fields: Mapping[str, Value], name: str) -> Value | None:
    value = fields.get(name)
    return None if value is None or value.empty else value


def _pod(fields: Mapping[str, Value], value: Value) -> Pod:
    metadata = _required(fields, "metadata", value)
    meta = metadata.known_fields(pod_fields.METADATA)
    name = _name(_required(meta, "name", metadata), SUBDOMAIN)
    namespace = _optional(meta, "namespace")
    specification = _required(fields, "spec", value)
    status = _optional(fields, "status")
    told = status.fields() if status else {}
    extended = _optional(told, "extendedResourceClaimStatus")
    claims = (*_pod_claims(specification, told), *_extended_claim(extended))
    containers = _containers(specification, name)
    return Pod(
        namespace=_name(namespace, LABEL) if namespace else "default",
        name=name,
        containers=tuple(_with_extended(one, extended) for one in containers),
        annotations=_texts(_optional(meta, "annotations")),
        uid=uid.text() if (uid := _optional(meta, "uid")) else _new_uid(),
        claims=claims,
    )


def _pod_claims(specification: Value, status: Mapping[str, Value]) -> Iterator[PodClaim]:
    """spec.resourceClaims; the status says which claim was made from a template."""
    made = {
        row["name"].text(): row["resourceClaimName"].text()
        for row in map(Value.fields, _items(_optional(status, "resourceClaimStatuses")))
        if "resourceClaimName" in row
    }
    for value in _items(_optional(specification.fields(), "resourceClaims")):
        fields = value.known_fields(pod_fields.POD_CLAIM)
        name = _name(_required(fields, "name", value), LABEL)
        claim, template = (
            _optional(fields, field) for field in ("resourceClaimName", "resourceClaimTemplateName")
        )
        if (claim is None) == (template is None):
            raise value.error("names one of resourceClaimName and resourceClaimTemplateName")
        yield PodClaim(name, claim.text() if claim else made.get(name, ""), template is not None)


def _extended_claim(extended: Value | None) -> Iterator[PodClaim]:
    if extended is not None:
        claim = _required(extended.fields(), "resourceClaimName", extended)
        yield PodClaim(EXTENDED, claim.text())


def _with_extended(container: ContainerManifest, extended: Value | None) -> ContainerManifest:
    """With the requests that the scheduler made for this container's extended resources, which no
    device plugin is asked for then."""
    rows = _optional(extended.fields(), "requestMappings") if extended else None
    mine = [
        row
        for row in map(Value.fields, _items(rows))
        if row["containerName"].text() == container.name
    ]
    claims = [ContainerClaim(EXTENDED, row["requestName"].text()) for row in mine]
    claimed = {row["resourceName"].text() for row in mine}
    asks = {name: amount for name, amount in container.asks.items() if name not in claimed}
    return replace(container, asks=asks, claims=(*container.claims, *claims))


def _items(value: Value | None) -> list[Value]:
    return value.items() if value else []


def _name(value: Value, rule: re.Pattern[str]) -> str:
    name = value.text()
    if not rule.fullmatch(name):
        raise value.error(f"{name[:80]!r} is not a name: {RULES[rule]}")
    return name


def _texts(value: Value | None) -> dict[str, str]:
    return {} if value is None else {key: text.text() for key, text in value.fields().items()}


def _containers(specification: Value, pod: str) -> tuple[ContainerManifest, ...]:
    fields = specification.known_fields(pod_fields.SPEC)
    apps = _optional(fields, "containers")
    if apps is None or not apps.items():
        raise specification.error(f"pod {pod} has no containers")
    first = _optional(fields, "initContainers")
    values = [*(first.items() if first else ()), *apps.items()]
    claims = {row.name for row in _pod_claims(specification, {})}
    found: dict[str, ContainerManifest] = {}
    for value in values:
        container = _container(value, is_app=value.path.startswith(apps.path))
        if container.name in found:
            raise value.error(f"pod {pod} has a second container {container.name}")
        if unknown := {row.claim for row in container.claims} - claims:
            raise value.error(f"spec.resourceClaims has no {min(unknown)}")
        found[container.name] = container
    return tuple(found.values())


def _container(value: Value, *, is_app: bool) -> ContainerManifest:
    fields = value.known_fields(pod_fields.CONTAINER)
    if "envFrom" in fields:
        raise fields["envFrom"].error(NO_SOURCES)
    directory = _optional(fields, "workingDir")
    resources = _optional(fields, "resources")
    return ContainerManifest(
        name=_name(_required(fields, "name", value), LABEL),
        kind=ContainerKind.APP if is_app else _init_kind(fields),
        command=_command(fields, value),
        environment=_environment(_optional(fields, "env")),
        directory=_absolute(directory) if directory else None,
        asks=_asks(resources),
        claims=tuple(_container_claims(resources)),
    )


def _container_claims(resources: Value | None) -> Iterator[ContainerClaim]:
    for value in _items(_optional(resources.fields(), "claims") if resources else None):
        fields = value.known_fields(pod_fields.RESOURCE_CLAIM)
        request = _optional(fields, "request")
        claim = _required(fields, "name", value).text()
        yield ContainerClaim(claim, request.text() if request else "")


def _init_kind(fields: Mapping[str, Value]) -> ContainerKind:
    policy = _optional(fields, "restartPolicy")
    if policy is None:
        return ContainerKind.INIT
    if policy.text() != "Always":
        raise policy.error(f"expected Always, found {policy.text()!r}")
    return ContainerKind.SIDECAR


def _absolute(value: Value) -> str:
    if not value.text().startswith("/"):
        raise value.error(f"{value.text()!r} is not an absolute path")
    return value.text()


def _command(fields: Mapping[str, Value], of: Value) -> tuple[str, ...]:
    """There is no image here, hence no program of its own that args could be meant for."""
    command = _required(fields, "command", of)
    words = [_word(item) for item in command.items()]
    if not words or not words[0]:
        raise command.error("names no program")
    arguments = _optional(fields, "args")
    return (*words, *(_word(item) for item in (arguments.items() if arguments else ())))


def _word(value: Value) -> str:
    if "\0" in value.text():
        raise value.error("has a NUL character")
    if any("\ud800" <= letter <= "\udfff" for letter in value.text()):
        raise value.error("has half of a surrogate pair, which is no character")
    return value.text()


def _environment(value: Value | None) -> tuple[tuple[str, str], ...]:
    return tuple(_variable(item) for item in (value.items() if value else ()))


def _variable(item: Value) -> tuple[str, str]:
    fields = item.known_fields(pod_fields.VARIABLE)
    if "valueFrom" in fields:
        raise fields["valueFrom"].error(NO_SOURCES)
    name = _required(fields, "name", item)
    if not _word(name) or "=" in name.text():
        raise name.error(f"{name.text()!r} is not a name of a variable")
    value = _optional(fields, "value")
    return name.text(), _word(value) if value else ""


def _asks(value: Value | None) -> dict[str, int]:
    """Limits of our two resources; requests, where given, have to say the same."""
    fields = value.known_fields(pod_fields.RESOURCES) if value else {}
    limits = _amounts(_optional(fields, "limits"))
    for resource, (amount, where) in _amounts(_optional(fields, "requests")).items():
        if resource not in limits:
            raise where.error("a limit must be set too: this resource cannot be overcommitted")
        if limits[resource][0] != amount:
            raise where.error(f"is {amount}, the limit {limits[resource][0]}: they must be equal")
    return {resource: amount for resource, (amount, _) in limits.items() if amount}


def _amounts(value: Value | None) -> dict[str, tuple[int, Value]]:
    fields = value.fields() if value else {}
    for name, amount in fields.items():
        if name not in RESOURCES and not _NATIVE.fullmatch(name):
            raise amount.error(
                f"a simulated node has no such resource, only {', '.join(RESOURCES)}"
            )
    return {name: (_amount(fields[name]), fields[name]) for name in RESOURCES if name in fields}


def _amount(value: Value) -> int:
    written = value.scalar().strip()
    match = _QUANTITY.fullmatch(written)
    if match is None:
        raise value.error(f"{written[:40]!r} is not a whole number of 0 or more")
    return int(match[1]) * _SUFFIXES[match[2] or ""]
