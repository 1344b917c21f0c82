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
from typing import Any, Final, NamedTuple

from gpumanager.errors import InputError
from gpumanager.kube.pod import ContainerKind
from gpumanager.kube.quantity import whole_number
from gpumanager.names import VCORE, VMEMORY, WHOLE_GPU
from gpumanager.sim.manifest import claims, workloads
from gpumanager.sim.manifest.expansion import verbatim
from gpumanager.sim.manifest.schema import MODELS, read_fields
from gpumanager.sim.manifest.volumes import (
    CONFIG_KINDS,
    ConfigData,
    PodVolume,
    VolumeMount,
    absolute,
    find_config,
    read_config,
    read_mounts,
    read_volumes,
)
from gpumanager.sim.manifest.yaml_text import (
    LABEL,
    Fields,
    Mark,
    documents,
    name_of,
    read_names,
    read_text,
    typed,
)

RESOURCES: Final = (VCORE, VMEMORY, WHOLE_GPU)

_NATIVE: Final = re.compile(r"cpu|memory|ephemeral-storage|hugepages-.*")
"""What every node has, and a simulated one does not count."""

LARGEST_AMOUNT: Final = (1 << 63) - 1
"""Kubernetes counts in 64 bits."""
NODE: Final = "simulated"
"""The name of a node where the pod does not name it."""
API_VERSIONS: Final[Mapping[str, str]] = {
    "Pod": "v1",
    **dict.fromkeys(CONFIG_KINDS, "v1"),
    **dict.fromkeys(workloads.KINDS, "apps/v1"),
    **dict.fromkeys(("CronJob", "Job"), "batch/v1"),
    **dict.fromkeys(claims.RESOURCES, claims.API_VERSION),
}
"""Of the kinds that are read here."""


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


@dataclass(frozen=True, slots=True)
class Pod:
    """containers: in the order of admission, init containers and sidecars first."""

    namespace: str
    name: str
    containers: tuple[ContainerManifest, ...]
    annotations: Mapping[str, str] = field(default_factory=dict)
    uid: str = field(default_factory=lambda: str(uuid.uuid4()))
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
    data: ConfigData = field(default_factory=dict)


def read_manifest(paths: Sequence[Path]) -> Manifest:
    """Return all of all files, `-` for standard input; raises InputError."""
    return _manifest([(read_text(path), name_of(path)) for path in paths], {})


def parse_pods(text: str, source: str, data: ConfigData | None = None) -> tuple[Pod, ...]:
    """Return the pods of one text; raises InputError, which names `source`. data: beside its
    own."""
    return _manifest([(text, source)], data or {}).pods


def _manifest(texts: Sequence[tuple[str, str]], data: ConfigData) -> Manifest:
    objects: list[tuple[str, Fields]] = []
    for text, source in texts:
        if not (found := [one for row in documents(text, source) for one in _listed(row)]):
            raise InputError(source, "no pod in it")
        objects += found
    given = {
        (kind, *read_names(fields)): read_config(kind, fields)
        for kind, fields in objects
        if kind in CONFIG_KINDS
    }
    data = {**data, **given}
    named: dict[str, Pod | ApiObject] = {}
    notes: list[str] = []
    for kind, fields in objects:
        for one in _objects(kind, fields, data, notes):
            name = f"pod {one.full_name}" if isinstance(one, Pod) else one.name
            if name in named:
                raise fields.error(f"a second {name}")
            named[name] = one
    if not named and notes:
        raise InputError(texts[0][1], f"no pod in it: {notes[0]}")
    return Manifest(
        tuple(one for one in named.values() if isinstance(one, Pod)),
        tuple(one for one in named.values() if isinstance(one, ApiObject)),
        tuple(notes),
        data,
    )


def _objects(
    kind: str, fields: Fields, data: ConfigData, notes: list[str]
) -> Iterator[Pod | ApiObject]:
    """Yield what one object gives, with each pod that makes claims the object that the API server
    has of it; of what gives nothing, add a note."""
    if kind in claims.RESOURCES:
        yield ApiObject(claims.RESOURCES[kind], claims.read_object(kind, fields))
    elif kind in {"Pod", *workloads.KINDS}:
        template, names, note = fields, [workloads.TemplatePod(*read_names(fields))], ""
        if kind != "Pod":
            template, names, note = workloads.read_workload(kind, fields)
        if note:
            notes.append(f"{fields.place}: {kind} {note}")
        for made in names:
            yield (pod := _pod(template, data, made))
            if pod.claims or any(WHOLE_GPU in one.asks for one in pod.containers):
                same = {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid}
                metadata = {**template.below("metadata"), **same}
                yield ApiObject("pods", {**template, "metadata": metadata})
    elif kind not in CONFIG_KINDS:
        notes.append(f"{fields.place}: {kind} left out: a simulated node has no use for it")


def _listed(fields: Fields) -> Iterator[tuple[str, Fields]]:
    """Yield kind and fields of one document, or of all that is in a List."""
    kind, version = (
        typed(fields.get(name, ""), "str", fields.places.get(name, fields.place))
        for name in ("kind", "apiVersion")
    )
    if kind in ("List", "PodList") and version == "v1":
        items = typed(fields.required("items"), "list", fields.places["items"])
        for item, place in zip(items, items.places, strict=True):
            yield from _listed(typed(item, "dict", place))
        return
    expected = API_VERSIONS.get(kind)
    if not kind or not version or (expected is not None and version != expected):
        found = f"{version or 'no apiVersion'}, {kind or 'no kind'}"
        known = kind if expected else "Pod"
        raise fields.error(
            f"expected apiVersion {API_VERSIONS[known]}, kind {known}, found {found}"
        )
    close = difflib.get_close_matches(kind[:100], API_VERSIONS, 1, cutoff=0.85)
    if expected is None and close:
        raise fields.error(f"no kind {kind}; did you mean {close[0]}?", "kind")
    if expected is not None:
        read_fields(fields, MODELS[kind])
    yield kind, fields


class _PodContext(NamedTuple):
    """What the containers of one pod may refer to. fields: of the pod, by their path."""

    namespace: str
    data: ConfigData
    volumes: Mapping[str, PodVolume]
    fields: Mapping[str, str]
    added: tuple[tuple[str, str], ...]


def _pod(fields: Fields, data: ConfigData, made: workloads.TemplatePod) -> Pod:
    """Read one pod. made: its name, and what a controller adds to the template `fields`."""
    namespace, name, added = made
    meta, spec, status = fields.below("metadata"), fields.required("spec"), fields.below("status")
    uid = meta.get("uid") or str(uuid.uuid4())
    volumes = read_volumes(spec.get("volumes", ()), namespace, data)
    pod_claims = list(_pod_claims(spec, status))
    # What a variable may have of the pod, by its path. Its address is this machine's, because
    # containers share the network of the host.
    downward = {
        "metadata.name": name,
        "metadata.namespace": namespace,
        "metadata.uid": uid,
        "spec.nodeName": spec.get("nodeName", NODE),
        "spec.serviceAccountName": spec.get("serviceAccountName", "default"),
        **{f"status.{path}": "127.0.0.1" for path in ("hostIP", "hostIPs", "podIP", "podIPs")},
    }
    for key in ("labels", "annotations"):
        downward |= {f"metadata.{key}['{n}']": text for n, text in meta.below(key).items()}
    by_name = {one.name: one for one in volumes}
    context = _PodContext(namespace, data, by_name, downward, added)
    containers: dict[str, ContainerManifest] = {}
    apps = spec.get("containers", ())
    if not apps:
        raise spec.error(f"pod {name} has no containers")
    for kind, rows in (
        (ContainerKind.INIT, spec.get("initContainers", ())),
        (ContainerKind.APP, apps),
    ):
        for row in rows:
            container = _container(row, kind, context)
            if container.name in containers:
                raise row.error(f"pod {name} has a second container {container.name}")
            if unknown := {one.claim for one in container.claims} - {
                one.name for one in pod_claims
            }:
                raise row.error(f"spec.resourceClaims has no {min(unknown)}")
            containers[container.name] = container
    if extended := status.below("extendedResourceClaimStatus"):
        pod_claims.append(PodClaim(EXTENDED, extended.required("resourceClaimName")))
        for mapping in extended.get("requestMappings", ()):
            # No device plugin is asked for what the scheduler made a request for.
            one = containers[mapping["containerName"]]
            asks = {name: n for name, n in one.asks.items() if name != mapping["resourceName"]}
            request = ContainerClaim(EXTENDED, mapping["requestName"])
            containers[one.name] = replace(one, asks=asks, claims=(*one.claims, request))
    return Pod(
        namespace=namespace,
        name=name,
        containers=tuple(containers.values()),
        annotations=dict(meta.below("annotations")),
        uid=uid,
        claims=tuple(pod_claims),
        volumes=volumes,
    )


def _pod_claims(spec: Fields, status: Fields) -> Iterator[PodClaim]:
    """Read spec.resourceClaims; the status says which claim was made from a template."""
    statuses = status.get("resourceClaimStatuses", ())
    made = {row["name"]: row.get("resourceClaimName", "") for row in statuses}
    for fields in spec.get("resourceClaims", ()):
        name = fields.name("name", LABEL)
        claim, template = fields.get("resourceClaimName"), fields.get("resourceClaimTemplateName")
        if bool(claim) == bool(template):
            raise fields.error(
                "needs exactly one of resourceClaimName and resourceClaimTemplateName"
            )
        yield PodClaim(name, claim or made.get(name, ""), bool(template))


def _container(fields: Fields, kind: ContainerKind, context: _PodContext) -> ContainerManifest:
    name = fields.name("name", LABEL)
    policy = fields.get("restartPolicy")
    if policy and kind is ContainerKind.INIT:
        kind = ContainerKind.SIDECAR
        if policy != "Always":
            raise fields.error(f"expected Always, found {policy!r}", "restartPolicy")
    resources = fields.below("resources")
    if "command" not in fields:
        # There is no image, whose program args alone could be meant for.
        raise fields.error(
            "command is missing: a simulated node has no images, so write what the container is to "
            "run, such as command: [sleep, '60']"
        )
    words = [*fields["command"], *fields.get("args", ())]
    if not fields["command"] or not words[0]:
        raise fields.error("names no program", "command")
    places = [one for key in ("command", "args") if key in fields for one in fields[key].places]
    for word, place in zip(words, places, strict=True):
        _check_word(word, place)
    return ContainerManifest(
        name=name,
        kind=kind,
        command=tuple(words),
        environment=tuple(_environment(fields, context)),
        directory=absolute(fields, "workingDir") if "workingDir" in fields else None,
        asks=_asks(resources),
        claims=tuple(
            ContainerClaim(row.required("name"), row.get("request", ""))
            for row in resources.get("claims", ())
        ),
        mounts=read_mounts(fields.get("volumeMounts", ()), context.volumes),
    )


def _check_word(word: str, place: Mark) -> None:
    if "\0" in word:
        raise place.error("has a NUL character")
    if any("\ud800" <= letter <= "\udfff" for letter in word):
        raise place.error("has half of a surrogate pair, which is no character")


def _environment(fields: Fields, context: _PodContext) -> Iterator[tuple[str, str]]:
    """Yield envFrom, what the controller adds, env: of a name given twice the last one counts."""
    for row in fields.get("envFrom", ()):
        for field_name, kind in (("configMapRef", "ConfigMap"), ("secretRef", "Secret")):
            if field_name in row:
                of = row[field_name]
                for key, data in find_config(context.data, kind, context.namespace, of).items():
                    yield row.get("prefix", "") + key, _variable_text(data, of.place)
    yield from context.added
    for variable in fields.get("env", ()):
        name, value = variable.required("name"), variable.get("value", "")
        _check_word(name, variable.places["name"])
        if not name or "=" in name:
            raise variable.error(f"{name!r} is not a name of a variable", "name")
        if "valueFrom" in variable:
            value = _value_from(variable["valueFrom"], context)
        else:
            _check_word(value, variable.places.get("value", variable.place))
        if value is not None:
            yield name, value


def _value_from(source: Fields, context: _PodContext) -> str | None:
    """Return the text; None where it comes from a key that is not there and need not be."""
    if "fieldRef" in source:
        path = source["fieldRef"].required("fieldPath")
        labelled = path.startswith(("metadata.labels['", "metadata.annotations['"))
        if path not in context.fields and not labelled:
            cause = f"a simulated node does not know {path} of a pod"
            raise source["fieldRef"].error(cause, "fieldPath")
        return verbatim(context.fields.get(path, ""))
    for field_name, kind in (("configMapKeyRef", "ConfigMap"), ("secretKeyRef", "Secret")):
        if field_name in source:
            of = source[field_name]
            data, key = find_config(context.data, kind, context.namespace, of), of.required("key")
            if key in data:
                return _variable_text(data[key], of.places["key"])
            if of.get("optional"):
                return None
            raise of.error(f"no key {key} in it", "key")
    raise source.error(
        "a simulated node has no config maps, secrets or fields but those of fieldRef, "
        f"configMapKeyRef and secretKeyRef; found {', '.join(source) or 'nothing'}"
    )


def _variable_text(data: bytes, of: Mark) -> str:
    if b"\0" in data:
        raise of.error("has a NUL character, which no variable can have")
    return verbatim(data.decode(errors="surrogateescape"))


def _asks(resources: Fields) -> dict[str, int]:
    """Return the limits of our resources; requests, where given, have to be the same."""
    limits, requests = _amounts(resources.below("limits")), resources.below("requests")
    for resource, amount in _amounts(requests).items():
        if resource not in limits:
            cause = "a limit must be set too: this resource cannot be overcommitted"
            raise requests.error(cause, resource)
        if limits[resource] != amount:
            cause = f"is {amount}, the limit {limits[resource]}: they must be equal"
            raise requests.error(cause, resource)
    return {name: limits[name] for name in RESOURCES if limits.get(name)}


def _amounts(fields: Fields) -> dict[str, int]:
    found = {}
    for name, value in fields.items():
        if _NATIVE.fullmatch(name):
            continue
        if name not in RESOURCES:
            whole = f"; a whole GPU is {VCORE}: 100" if name == "nvidia.com/gpu" else ""
            cause = f"a simulated node has no such resource, only {', '.join(RESOURCES)}{whole}"
            raise fields.error(cause, name)
        number = whole_number(value.strip())
        if number is None or number < 0:
            cause = f"{value.strip()[:40]!r} is not a whole number of 0 or more"
            raise fields.error(cause, name)
        if number > LARGEST_AMOUNT:
            raise fields.error(f"{value.strip()[:40]} is too large", name)
        found[name] = number
    return found
