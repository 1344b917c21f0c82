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
from gpumanager.sim.manifest import claims, sources, workloads
from gpumanager.sim.manifest.expansion import verbatim
from gpumanager.sim.manifest.known_fields import MODELS, check_fields
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
    Fields,
    Value,
    checked_name,
    documents,
    name_and_namespace,
    name_of,
    read_text,
)
from gpumanager.sim.names import LABEL

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
    **dict.fromkeys(sources.KINDS, "v1"),
    **dict.fromkeys(workloads.KINDS, "apps/v1"),
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
    given = dict(read_source(kind, one) for kind, one in values if kind in sources.KINDS)
    found_data = ConfigData({**data.data, **given})
    named: dict[str, Pod | ApiObject] = {}
    notes: list[str] = []
    for kind, value in values:
        for one in _objects(kind, value, found_data, notes):
            name = f"pod {one.full_name}" if isinstance(one, Pod) else one.name
            if name in named:
                raise value.error(f"a second {name}")
            named[name] = one
    pods = tuple(one for one in named.values() if isinstance(one, Pod))
    objects = tuple(one for one in named.values() if isinstance(one, ApiObject))
    if not named and notes:
        raise InputError(texts[0][1], f"no pod in it: {notes[0]}")
    return Manifest(pods, objects, tuple(notes), found_data)


def _listed(value: Value) -> Iterator[tuple[str, Value]]:
    """Yield kind and value of one document, or of all that is in a List."""
    fields = value.fields()
    kind, version = fields.text("kind"), fields.text("apiVersion")
    if kind in ("List", "PodList") and version == "v1":
        for item in fields.required("items").items():
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
    if expected is not None:
        check_fields(value, MODELS[kind])
    yield kind, value


def _objects(
    kind: str, value: Value, data: ConfigData, notes: list[str]
) -> Iterator[Pod | ApiObject]:
    """Yield what one object gives; of what gives nothing, add a note."""
    if kind == "Pod":
        yield from _with_claims(_pod(value, data), value)
    elif kind in workloads.KINDS:
        workload = read_workload(kind, value)
        if workload.note:
            notes.append(f"{value.place}: {kind} {workload.note}")
        for made in workload.pods:
            yield from _with_claims(_pod(workload.template, data, made), workload.template)
    elif kind in claims.RESOURCES:
        yield ApiObject(claims.RESOURCES[kind], claims.read_object(kind, value))
    elif kind not in sources.KINDS:
        notes.append(f"{value.place}: {kind} left out: a simulated node has no use for it")


def _with_claims(pod: Pod, value: Value) -> Iterator[Pod | ApiObject]:
    """Yield the pod, and the object that the API server has of it where claims are made by it."""
    yield pod
    if pod.claims or any(WHOLE_GPU in one.asks for one in pod.containers):
        item = claims.plain(value)
        same = {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid}
        yield ApiObject("pods", {**item, "metadata": {**item.get("metadata", {}), **same}})


@dataclass(frozen=True, slots=True)
class _PodContext:
    """What the containers of one pod may refer to. fields: of the pod, by their path."""

    namespace: str
    data: ConfigData
    volumes: Mapping[str, PodVolume]
    claims: Sequence[PodClaim]
    fields: Mapping[str, str]
    added: tuple[tuple[str, str], ...] = ()


def _pod(value: Value, data: ConfigData, made: TemplatePod | None = None) -> Pod:
    """Read one pod. made: by a controller, by the template `value`."""
    fields = value.fields()
    name, namespace = (made.name, made.namespace) if made else name_and_namespace(fields)
    meta, status = fields.below("metadata"), fields.below("status")
    spec = fields.required("spec").fields()
    uid = meta.text("uid") or _new_uid()
    volumes = read_volumes(spec.rows("volumes"), namespace, data)
    pod_claims = list(_pod_claims(spec, status))
    context = _PodContext(
        namespace,
        data,
        {one.name: one for one in volumes},
        tuple(pod_claims),
        dict(_downward(meta, spec, {"name": name, "namespace": namespace, "uid": uid})),
        made.environment if made else (),
    )
    containers = _containers(spec, name, context)
    if extended := status.below("extendedResourceClaimStatus"):
        pod_claims.append(PodClaim(EXTENDED, extended.required("resourceClaimName").text()))
        mappings = [row.fields() for row in extended.rows("requestMappings")]
        containers = [_with_extended(one, mappings) for one in containers]
    return Pod(
        namespace=namespace,
        name=name,
        containers=tuple(containers),
        annotations=_texts(meta.below("annotations")),
        uid=uid,
        claims=tuple(pod_claims),
        volumes=volumes,
    )


def _downward(meta: Fields, spec: Fields, names: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the fields of a pod that a variable may have, by their path. Its address is this
    machine's, because containers share the network of the host."""
    for key, text in names.items():
        yield f"metadata.{key}", text
    for key in ("labels", "annotations"):
        for name, text in _texts(meta.below(key)).items():
            yield f"metadata.{key}['{name}']", text
    yield "spec.nodeName", spec.text("nodeName", NODE)
    yield "spec.serviceAccountName", spec.text("serviceAccountName", "default")
    for path in ("hostIP", "hostIPs", "podIP", "podIPs"):
        yield f"status.{path}", "127.0.0.1"


def _pod_claims(spec: Fields, status: Fields) -> Iterator[PodClaim]:
    """Read spec.resourceClaims; the status says which claim was made from a template."""
    made = {
        row["name"].text(): row.text("resourceClaimName")
        for row in map(Value.fields, status.rows("resourceClaimStatuses"))
    }
    for fields in map(Value.fields, spec.rows("resourceClaims")):
        name = checked_name(fields.required("name").text(), fields["name"], LABEL)
        claim, template = fields.text("resourceClaimName"), fields.text("resourceClaimTemplateName")
        if bool(claim) == bool(template):
            raise fields.of.error(
                "needs exactly one of resourceClaimName and resourceClaimTemplateName"
            )
        yield PodClaim(name, claim or made.get(name, ""), bool(template))


def _with_extended(container: ContainerManifest, mappings: Sequence[Fields]) -> ContainerManifest:
    """Return it with the requests that the scheduler made for its extended resources, which no
    device plugin is asked for then."""
    mine = [row for row in mappings if row["containerName"].text() == container.name]
    requests = [ContainerClaim(EXTENDED, row["requestName"].text()) for row in mine]
    claimed = {row["resourceName"].text() for row in mine}
    asks = {name: amount for name, amount in container.asks.items() if name not in claimed}
    return replace(container, asks=asks, claims=(*container.claims, *requests))


def _texts(fields: Fields) -> dict[str, str]:
    return {key: text.text() for key, text in fields.items()}


def _containers(spec: Fields, pod: str, context: _PodContext) -> list[ContainerManifest]:
    apps = spec.rows("containers")
    if not apps:
        raise spec.of.error(f"pod {pod} has no containers")
    found: dict[str, ContainerManifest] = {}
    for value in (*spec.rows("initContainers"), *apps):
        container = _container(value.fields(), context, is_app=value in apps)
        if container.name in found:
            raise value.error(f"pod {pod} has a second container {container.name}")
        claims = {row.name for row in context.claims}
        if unknown := {row.claim for row in container.claims} - claims:
            raise value.error(f"spec.resourceClaims has no {min(unknown)}")
        found[container.name] = container
    return list(found.values())


def _container(fields: Fields, context: _PodContext, *, is_app: bool) -> ContainerManifest:
    name = fields.required("name")
    directory = fields.optional("workingDir")
    resources = fields.below("resources")
    kind, policy = ContainerKind.APP, fields.optional("restartPolicy")
    if not is_app:
        kind = ContainerKind.SIDECAR if policy else ContainerKind.INIT
        if policy and policy.text() != "Always":
            raise policy.error(f"expected Always, found {policy.text()!r}")
    rows = map(Value.fields, resources.rows("claims"))
    return ContainerManifest(
        name=checked_name(name.text(), name, LABEL),
        kind=kind,
        command=_command(fields),
        environment=tuple(_environment(fields, context)),
        directory=absolute(directory) if directory else None,
        asks=_asks(resources),
        claims=tuple(ContainerClaim(r.required("name").text(), r.text("request")) for r in rows),
        mounts=read_mounts(fields.rows("volumeMounts"), context.volumes),
    )


def _command(fields: Fields) -> tuple[str, ...]:
    """Return command and args. There is no image, whose program args alone could be meant for."""
    command = fields.optional("command")
    if command is None:
        raise fields.of.error(NO_COMMAND)
    words = [_word(item) for item in command.items()]
    if not words or not words[0]:
        raise command.error("names no program")
    return (*words, *map(_word, fields.rows("args")))


def _word(value: Value) -> str:
    if "\0" in value.text():
        raise value.error("has a NUL character")
    if any("\ud800" <= letter <= "\udfff" for letter in value.text()):
        raise value.error("has half of a surrogate pair, which is no character")
    return value.text()


def _environment(fields: Fields, context: _PodContext) -> Iterator[tuple[str, str]]:
    """Yield envFrom, what the controller adds, env: of a name given twice the last one counts."""
    for row in map(Value.fields, fields.rows("envFrom")):
        for field_name, kind in (("configMapRef", "ConfigMap"), ("secretRef", "Secret")):
            if row.optional(field_name) is not None:
                of = row.below(field_name)
                found = context.data.find(kind, context.namespace, of) or {}
                for key, data in found.items():
                    yield row.text("prefix") + key, _variable_text(data, of.of)
    yield from context.added
    for variable in map(Value.fields, fields.rows("env")):
        name = variable.required("name")
        if not _word(name) or "=" in name.text():
            raise name.error(f"{name.text()!r} is not a name of a variable")
        if source := variable.get("valueFrom"):
            if (text := _value_from(source, context)) is not None:
                yield name.text(), text
        else:
            value = variable.optional("value")
            yield name.text(), _word(value) if value else ""


def _value_from(source: Value, context: _PodContext) -> str | None:
    """Return the text; None where it comes from a key that is not there and need not be."""
    fields = source.fields()
    if fields.optional("fieldRef") is not None:
        path = fields.below("fieldRef").required("fieldPath")
        labelled = path.text().startswith(("metadata.labels['", "metadata.annotations['"))
        if path.text() not in context.fields and not labelled:
            raise path.error(f"a simulated node does not know {path.text()} of a pod")
        return verbatim(context.fields.get(path.text(), ""))
    for field_name, kind in (("configMapKeyRef", "ConfigMap"), ("secretKeyRef", "Secret")):
        if fields.optional(field_name) is not None:
            of = fields.below(field_name)
            data = context.data.find_key(kind, context.namespace, of)
            return None if data is None else _variable_text(data, of["key"])
    raise source.error(
        "a simulated node has no config maps, secrets or fields but those of fieldRef, "
        f"configMapKeyRef and secretKeyRef; found {', '.join(fields) or 'nothing'}"
    )


def _variable_text(data: bytes, of: Value) -> str:
    if b"\0" in data:
        raise of.error("has a NUL character, which no variable can have")
    return verbatim(data.decode(errors="surrogateescape"))


def _asks(resources: Fields) -> dict[str, int]:
    """Return the limits of our resources; requests, where given, have to be the same."""
    limits = _amounts(resources.below("limits"))
    for resource, amount in _amounts(resources.below("requests")).items():
        where = resources["requests"].fields()[resource]
        if resource not in limits:
            raise where.error("a limit must be set too: this resource cannot be overcommitted")
        if limits[resource] != amount:
            raise where.error(f"is {amount}, the limit {limits[resource]}: they must be equal")
    return {name: limits[name] for name in RESOURCES if limits.get(name)}


def _amounts(fields: Fields) -> dict[str, int]:
    found = {}
    for name, value in fields.items():
        if _NATIVE.fullmatch(name):
            continue
        if name not in RESOURCES:
            whole = f"; a whole GPU is {VCORE}: 100" if name == NVIDIAS else ""
            raise value.error(
                f"a simulated node has no such resource, only {', '.join(RESOURCES)}{whole}"
            )
        written = value.scalar().strip()
        number = whole_number(written)
        if number is None or number < 0:
            raise value.error(f"{written[:40]!r} is not a whole number of 0 or more")
        if number > LARGEST_AMOUNT:
            raise value.error(f"{written[:40]} is too large")
        found[name] = number
    return found
