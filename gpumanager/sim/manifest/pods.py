"""Pods from the YAML people write for a cluster, as far as a simulated node runs them.

What the API server would refuse is refused here with the file, the line and the cause: the fields
are read strictly (a string is a string), the names are checked, the amounts of extended resources
have to be whole and equal in requests and limits.
"""

import difflib
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from gpumanager.errors import InputError
from gpumanager.kube.pod import ContainerKind
from gpumanager.kube.quantity import whole_number
from gpumanager.names import VCORE, VMEMORY, WHOLE_GPU
from gpumanager.sim.manifest import claims, pod_fields
from gpumanager.sim.manifest.expansion import verbatim
from gpumanager.sim.manifest.sources import KINDS as SOURCES
from gpumanager.sim.manifest.sources import ConfigData, read_source
from gpumanager.sim.manifest.volumes import (
    PodVolume,
    VolumeMount,
    absolute,
    read_mounts,
    read_volumes,
)
from gpumanager.sim.manifest.workloads import TemplatePod, read_workload
from gpumanager.sim.manifest.yaml_text import (
    Value,
    checked_name,
    documents,
    name_of,
    optional,
    read_text,
    required,
    rows,
)
from gpumanager.sim.names import LABEL, SUBDOMAIN

RESOURCES: Final = (VCORE, VMEMORY, WHOLE_GPU)

NVIDIAS: Final = "nvidia.com/gpu"
NO_COMMAND: Final = (
    "command is missing: a simulated node has no images, so write what the container is to run, "
    "such as command: [sleep, '60']"
)

_NATIVE: Final = re.compile(r"cpu|memory|ephemeral-storage|hugepages-.*")
"""What every node has, and a simulated one does not count."""

LARGEST_AMOUNT: Final = (1 << 63) - 1
"""Kubernetes counts in 64 bits."""
NODE: Final = "simulated"
"""The name of a node where the pod does not name it."""
API_VERSIONS: Final[Mapping[str, str]] = {
    "Pod": "v1",
    **dict.fromkeys(SOURCES, "v1"),
    **dict.fromkeys(pod_fields.WORKLOADS, "apps/v1"),
    **dict.fromkeys(("CronJob", "Job"), "batch/v1"),
    **dict.fromkeys(claims.RESOURCES, claims.API_VERSION),
}
"""Of the kinds that are read here."""
LONGEST_KIND: Final = 100


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
    """command: command and args as one. asks: amount by extended resource; absent for none.

    In command and environment `$(NAME)` is not expanded yet.
    """

    name: str
    kind: ContainerKind
    command: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()
    directory: str | None = None
    asks: Mapping[str, int] = field(default_factory=dict)
    claims: tuple[ContainerClaim, ...] = ()
    mounts: tuple[VolumeMount, ...] = ()

    @property
    def cores(self) -> int:
        return self.asks.get(VCORE, 0)

    @property
    def blocks(self) -> int:
        return self.asks.get(VMEMORY, 0)


NO_DATA: Final = ConfigData()


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
    volumes: tuple[PodVolume, ...] = ()

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
        """Return its name among all objects of all kinds."""
        metadata = self.item["metadata"]
        return f"{self.resource} {metadata.get('namespace', '')}/{metadata['name']}"


@dataclass(frozen=True, slots=True)
class Manifest:
    """pods: in their order. objects: claims, templates, classes, and the pods that use claims.

    notes: what was left out, in words for who wrote it. data: ConfigMaps and Secrets.
    """

    pods: tuple[Pod, ...]
    objects: tuple[ApiObject, ...] = ()
    notes: tuple[str, ...] = ()
    data: ConfigData = field(default_factory=ConfigData)


def read_manifest(paths: Sequence[Path]) -> Manifest:
    """Return all of all files, `-` for standard input; raises InputError."""
    return _manifest([(read_text(path), name_of(path)) for path in paths])


def read_pods(paths: Sequence[Path]) -> tuple[Pod, ...]:
    """Return all pods of all files, in their order; raises InputError."""
    return read_manifest(paths).pods


def parse_pods(text: str, source: str, data: ConfigData = NO_DATA) -> tuple[Pod, ...]:
    """Return the pods of one text; raises InputError, which names `source`. data: beside its
    own."""
    return _manifest([(text, source)], data).pods


def _manifest(texts: Sequence[tuple[str, str]], data: ConfigData = NO_DATA) -> Manifest:
    values: list[tuple[str, Value]] = []
    for text, source in texts:
        if not (found := [one for row in documents(text, source) for one in _listed(row)]):
            raise InputError(source, "no pod in it")
        values += found
    given = dict(read_source(kind, one) for kind, one in values if kind in SOURCES)
    sources = ConfigData({**data.data, **given})
    named: dict[str, Pod | ApiObject] = {}
    notes: list[str] = []
    for kind, value in values:
        for one in _objects(kind, value, sources, notes):
            name = f"pod {one.full_name}" if isinstance(one, Pod) else one.name
            if name in named:
                raise value.error(f"a second {name}")
            named[name] = one
    pods = tuple(one for one in named.values() if isinstance(one, Pod))
    objects = tuple(one for one in named.values() if isinstance(one, ApiObject))
    if not named and notes:
        raise InputError(texts[0][1], f"no pod in it: {notes[0]}")
    return Manifest(pods, objects, tuple(notes), sources)


def _listed(value: Value) -> Iterator[tuple[str, Value]]:
    """Yield kind and value of one document, or of all that is in a List."""
    fields = value.fields()
    kind = fields["kind"].text() if "kind" in fields else ""
    version = fields["apiVersion"].text() if "apiVersion" in fields else ""
    if kind in ("List", "PodList") and version == "v1":
        for item in required(fields, "items", value).items():
            yield from _listed(item)
        return
    expected = API_VERSIONS.get(kind)
    if not kind or not version or (expected is not None and version != expected):
        found = f"{version or 'no apiVersion'}, {kind or 'no kind'}"
        known = kind if expected else "Pod"
        raise value.error(f"expected apiVersion {API_VERSIONS[known]}, kind {known}, found {found}")
    close = difflib.get_close_matches(kind[:LONGEST_KIND], API_VERSIONS, 1, cutoff=0.85)
    if expected is None and close:
        raise fields["kind"].error(f"no kind {kind}; did you mean {close[0]}?")
    yield kind, value


def _objects(
    kind: str, value: Value, sources: ConfigData, notes: list[str]
) -> Iterator[Pod | ApiObject]:
    """Yield what one object gives; of what gives nothing, add a note."""
    if kind == "Pod":
        yield from _with_claims(_pod(value.known_fields(pod_fields.POD), value, sources), value)
    elif kind in pod_fields.WORKLOADS:
        workload = read_workload(kind, value)
        if workload.note:
            notes.append(f"{value.place}: {kind} {workload.note}")
        fields = workload.template.fields()
        for made in workload.pods:
            pod = _pod(fields, workload.template, sources, made, workload.namespace)
            yield from _with_claims(pod, workload.template)
    elif kind in claims.RESOURCES:
        yield ApiObject(claims.RESOURCES[kind], claims.read_object(kind, value))
    elif kind not in SOURCES:
        notes.append(f"{value.place}: {kind} left out: a simulated node has no use for it")


def _with_claims(pod: Pod, value: Value) -> Iterator[Pod | ApiObject]:
    """Yield the pod, and the object that the API server has of it where claims are made by it."""
    yield pod
    if pod.claims or any(WHOLE_GPU in one.asks for one in pod.containers):
        item = claims.plain(value)
        same = {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid}
        yield ApiObject("pods", {**item, "metadata": {**item.get("metadata", {}), **same}})


def _pod(
    fields: Mapping[str, Value],
    value: Value,
    sources: ConfigData,
    made: TemplatePod | None = None,
    namespace: str = "",
) -> Pod:
    """Read one pod. made, namespace: of a pod that a controller makes by the template `value`."""
    metadata = optional(fields, "metadata") if made else required(fields, "metadata", value)
    meta = metadata.known_fields(pod_fields.METADATA) if metadata else {}
    if made is None:
        written = required(meta, "name", fields["metadata"])
        name = checked_name(written.text(), written, SUBDOMAIN)
        place = optional(meta, "namespace")
        namespace = checked_name(place.text(), place, LABEL) if place else "default"
    else:
        name = made.name
    specification = required(fields, "spec", value)
    status = optional(fields, "status")
    told = status.fields() if status else {}
    extended = optional(told, "extendedResourceClaimStatus")
    given = optional(meta, "uid")
    uid = given.text() if given else _new_uid()
    spec = specification.known_fields(pod_fields.SPEC)
    volumes = read_volumes(optional(spec, "volumes"), namespace, sources)
    context = _PodContext(
        namespace,
        sources,
        {one.name: one for one in volumes},
        dict(_downward(meta, spec, {"name": name, "namespace": namespace, "uid": uid})),
        made.environment if made else (),
    )
    containers = _containers(specification, name, context)
    pod_claims = list(_pod_claims(specification, told))
    if extended is not None:
        claim = required(extended.fields(), "resourceClaimName", extended)
        pod_claims.append(PodClaim(EXTENDED, claim.text()))
    return Pod(
        namespace=namespace,
        name=name,
        containers=tuple(_with_extended(one, extended) for one in containers),
        annotations=_texts(optional(meta, "annotations")),
        uid=uid,
        claims=tuple(pod_claims),
        volumes=volumes,
    )


@dataclass(frozen=True, slots=True)
class _PodContext:
    """What the containers of one pod may refer to. fields: of the pod, by their path."""

    namespace: str
    sources: ConfigData
    volumes: Mapping[str, PodVolume]
    fields: Mapping[str, str]
    added: tuple[tuple[str, str], ...] = ()


def _downward(
    meta: Mapping[str, Value], spec: Mapping[str, Value], names: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """Yield the fields of a pod that a variable may have, by their path. Its address is this
    machine's, because containers share the network of the host."""
    for key, text in names.items():
        yield f"metadata.{key}", text
    for key in ("labels", "annotations"):
        for name, text in _texts(optional(meta, key)).items():
            yield f"metadata.{key}['{name}']", text
    node, account = optional(spec, "nodeName"), optional(spec, "serviceAccountName")
    yield "spec.nodeName", node.text() if node else NODE
    yield "spec.serviceAccountName", account.text() if account else "default"
    for path in ("hostIP", "hostIPs", "podIP", "podIPs"):
        yield f"status.{path}", "127.0.0.1"


def _pod_claims(specification: Value, status: Mapping[str, Value]) -> Iterator[PodClaim]:
    """Read spec.resourceClaims; the status says which claim was made from a template."""
    made = {
        row["name"].text(): row["resourceClaimName"].text()
        for row in map(Value.fields, rows(optional(status, "resourceClaimStatuses")))
        if "resourceClaimName" in row
    }
    for value in rows(optional(specification.fields(), "resourceClaims")):
        fields = value.known_fields(pod_fields.POD_CLAIM)
        written = required(fields, "name", value)
        name = checked_name(written.text(), written, LABEL)
        claim, template = (
            optional(fields, field) for field in ("resourceClaimName", "resourceClaimTemplateName")
        )
        if (claim is None) == (template is None):
            raise value.error(
                "needs exactly one of resourceClaimName and resourceClaimTemplateName"
            )
        yield PodClaim(name, claim.text() if claim else made.get(name, ""), template is not None)


def _with_extended(container: ContainerManifest, extended: Value | None) -> ContainerManifest:
    """Return it with the requests that the scheduler made for its extended resources, which no
    device plugin is asked for then."""
    mappings = optional(extended.fields(), "requestMappings") if extended else None
    mine = [
        row
        for row in map(Value.fields, rows(mappings))
        if row["containerName"].text() == container.name
    ]
    claims = [ContainerClaim(EXTENDED, row["requestName"].text()) for row in mine]
    claimed = {row["resourceName"].text() for row in mine}
    asks = {name: amount for name, amount in container.asks.items() if name not in claimed}
    return replace(container, asks=asks, claims=(*container.claims, *claims))


def _texts(value: Value | None) -> dict[str, str]:
    return {} if value is None else {key: text.text() for key, text in value.fields().items()}


def _containers(
    specification: Value, pod: str, context: _PodContext
) -> tuple[ContainerManifest, ...]:
    fields = specification.known_fields(pod_fields.SPEC)
    apps = optional(fields, "containers")
    if apps is None or not apps.items():
        raise specification.error(f"pod {pod} has no containers")
    first = optional(fields, "initContainers")
    values = [*(first.items() if first else ()), *apps.items()]
    claims = {row.name for row in _pod_claims(specification, {})}
    found: dict[str, ContainerManifest] = {}
    for value in values:
        container = _container(value, context, is_app=value.path.startswith(apps.path))
        if container.name in found:
            raise value.error(f"pod {pod} has a second container {container.name}")
        if unknown := {row.claim for row in container.claims} - claims:
            raise value.error(f"spec.resourceClaims has no {min(unknown)}")
        found[container.name] = container
    return tuple(found.values())


def _container(value: Value, context: _PodContext, *, is_app: bool) -> ContainerManifest:
    fields = value.known_fields(pod_fields.CONTAINER)
    name = required(fields, "name", value)
    directory = optional(fields, "workingDir")
    resources = optional(fields, "resources")
    kind, policy = ContainerKind.APP, optional(fields, "restartPolicy")
    if not is_app:
        kind = ContainerKind.SIDECAR if policy else ContainerKind.INIT
        if policy and policy.text() != "Always":
            raise policy.error(f"expected Always, found {policy.text()!r}")
    container_claims = []
    for row in rows(optional(resources.fields(), "claims") if resources else None):
        claim = row.known_fields(pod_fields.RESOURCE_CLAIM)
        request = optional(claim, "request")
        named = required(claim, "name", row).text()
        container_claims.append(ContainerClaim(named, request.text() if request else ""))
    return ContainerManifest(
        name=checked_name(name.text(), name, LABEL),
        kind=kind,
        command=_command(fields, value),
        environment=tuple(_environment(fields, context)),
        directory=absolute(directory) if directory else None,
        asks=_asks(resources),
        claims=tuple(container_claims),
        mounts=read_mounts(optional(fields, "volumeMounts"), context.volumes),
    )


def _command(fields: Mapping[str, Value], of: Value) -> tuple[str, ...]:
    """Return command and args. There is no image, whose program args alone could be meant for."""
    if "command" not in fields or fields["command"].empty:
        raise of.error(NO_COMMAND)
    command = fields["command"]
    words = [_word(item) for item in command.items()]
    if not words or not words[0]:
        raise command.error("names no program")
    arguments = optional(fields, "args")
    return (*words, *(_word(item) for item in (arguments.items() if arguments else ())))


def _word(value: Value) -> str:
    if "\0" in value.text():
        raise value.error("has a NUL character")
    if any("\ud800" <= letter <= "\udfff" for letter in value.text()):
        raise value.error("has half of a surrogate pair, which is no character")
    return value.text()


def _environment(fields: Mapping[str, Value], context: _PodContext) -> Iterator[tuple[str, str]]:
    """Yield envFrom, what the controller adds, env: of a name given twice the last one counts."""
    for item in rows(optional(fields, "envFrom")):
        row = item.known_fields(pod_fields.ENV_FROM)
        prefix = optional(row, "prefix")
        for field_name, kind in (("configMapRef", "ConfigMap"), ("secretRef", "Secret")):
            if (of := optional(row, field_name)) is None:
                continue
            found = context.sources.find(kind, context.namespace, of, optional(of.fields(), "name"))
            for key, data in (found or {}).items():
                yield (prefix.text() if prefix else "") + key, _variable_text(data, of)
    yield from context.added
    for item in rows(optional(fields, "env")):
        variable = item.known_fields(pod_fields.VARIABLE)
        name = required(variable, "name", item)
        if not _word(name) or "=" in name.text():
            raise name.error(f"{name.text()!r} is not a name of a variable")
        value, source = optional(variable, "value"), variable.get("valueFrom")
        if source is None:
            yield name.text(), _word(value) if value else ""
        elif (text := _value_from(source, context)) is not None:
            yield name.text(), text


def _value_from(source: Value, context: _PodContext) -> str | None:
    """Return the text; None where it comes from a key that is not there and need not be."""
    fields = source.fields()
    if field_ref := optional(fields, "fieldRef"):
        path = required(field_ref.known_fields(pod_fields.FIELD), "fieldPath", field_ref)
        labelled = path.text().startswith(("metadata.labels['", "metadata.annotations['"))
        if path.text() not in context.fields and not labelled:
            raise path.error(f"a simulated node does not know {path.text()} of a pod")
        return verbatim(context.fields.get(path.text(), ""))
    for field_name, kind in (("configMapKeyRef", "ConfigMap"), ("secretKeyRef", "Secret")):
        if (of := optional(fields, field_name)) is None:
            continue
        row = of.known_fields(pod_fields.KEY)
        key = required(row, "key", of)
        found = context.sources.find(kind, context.namespace, of, optional(row, "name"))
        if found is None:
            return None
        if key.text() not in found:
            if "optional" in row and row["optional"].boolean():
                return None
            raise key.error(f"no key {key.text()} in it")
        return _variable_text(found[key.text()], key)
    raise source.error(
        "a simulated node has no config maps, secrets or fields but those of fieldRef, "
        f"configMapKeyRef and secretKeyRef; found {', '.join(fields) or 'nothing'}"
    )


def _variable_text(data: bytes, of: Value) -> str:
    if b"\0" in data:
        raise of.error("has a NUL character, which no variable can have")
    return verbatim(data.decode(errors="surrogateescape"))


def _asks(value: Value | None) -> dict[str, int]:
    """Return the limits of our resources; requests, where given, have to be the same."""
    fields = value.known_fields(pod_fields.RESOURCES) if value else {}
    limits = _amounts(optional(fields, "limits"))
    for resource, (amount, where) in _amounts(optional(fields, "requests")).items():
        if resource not in limits:
            raise where.error("a limit must be set too: this resource cannot be overcommitted")
        if limits[resource][0] != amount:
            raise where.error(f"is {amount}, the limit {limits[resource][0]}: they must be equal")
    return {resource: amount for resource, (amount, _) in limits.items() if amount}


def _amounts(value: Value | None) -> dict[str, tuple[int, Value]]:
    fields = value.fields() if value else {}
    for name, amount in fields.items():
        if name not in RESOURCES and not _NATIVE.fullmatch(name):
            whole = f"; a whole GPU is {VCORE}: 100" if name == NVIDIAS else ""
            raise amount.error(
                f"a simulated node has no such resource, only {', '.join(RESOURCES)}{whole}"
            )
    found = {}
    for name in RESOURCES:
        if name not in fields:
            continue
        written = fields[name].scalar().strip()
        number = whole_number(written)
        if number is None or number < 0:
            raise fields[name].error(f"{written[:40]!r} is not a whole number of 0 or more")
        if number > LARGEST_AMOUNT:
            raise fields[name].error(f"{written[:40]} is too large")
        found[name] = number, fields[name]
    return found
