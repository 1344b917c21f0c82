"""Deployments, Jobs and the like: the pods that their controllers would make, by the pod template.

As many as would run at the same time on one node that has room for all. Names are shaped as the
controllers shape them; what is random there is derived from the workload's name here, so that two
runs show the same names.
"""

import hashlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from gpumanager.sim.manifest import pod_fields
from gpumanager.sim.manifest.yaml_text import Value, checked_name, optional, required
from gpumanager.sim.names import LABEL, SUBDOMAIN

MOST_PODS: Final = 1000
_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
"""Of generated names, as Kubernetes has them: no vowels, so no words."""
_SUFFIX: Final = 5
_HASH: Final = 10
"""Letters of a Deployment's pod-template-hash."""


@dataclass(frozen=True, slots=True)
class TemplatePod:
    """environment: variables that the controller adds to every container."""

    name: str
    environment: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class PodsByTemplate:
    """note: what a reader should know about the number of its pods; empty for nothing."""

    namespace: str
    template: Value
    pods: tuple[TemplatePod, ...]
    note: str = ""


def read_workload(kind: str, value: Value) -> PodsByTemplate:
    """Read a Deployment or the like; raises InputError."""
    fields = value.known_fields(pod_fields.POD)
    metadata = required(fields, "metadata", value)
    meta = metadata.known_fields(pod_fields.METADATA)
    written = required(meta, "name", metadata)
    name = checked_name(written.text(), written, SUBDOMAIN)
    place = optional(meta, "namespace")
    namespace = checked_name(place.text(), place, LABEL) if place else "default"
    specification = required(fields, "spec", value)
    spec = specification.known_fields(pod_fields.WORKLOADS[kind])
    if kind == "CronJob":
        name = f"{name}-{int(time.time()) // 60}"
        job = required(spec, "jobTemplate", specification)
        specification = required(job.known_fields(("metadata", "spec")), "spec", job)
        kind, spec = "Job", specification.known_fields(pod_fields.WORKLOADS["Job"])
    template = required(spec, "template", specification)
    template.known_fields(("metadata", "spec"))
    count, note = _count(kind, spec)
    if count > MOST_PODS:
        raise specification.error(f"{count} pods: a simulated node takes at most {MOST_PODS}")
    return PodsByTemplate(namespace, template, tuple(_pods(kind, name, spec, count)), note)


def _count(kind: str, spec: Mapping[str, Value]) -> tuple[int, str]:
    """Return how many pods run at once, and the note. A DaemonSet has one pod on a node."""
    if kind != "Job":
        replicas = optional(spec, "replicas")
        return max(0, replicas.integer()) if replicas else 1, ""
    if (suspended := optional(spec, "suspend")) and suspended.boolean():
        return 0, "is suspended: none of its pods runs"
    parallel, wanted = (
        row.integer() if (row := optional(spec, name)) else None
        for name in ("parallelism", "completions")
    )
    at_once = 1 if parallel is None else max(0, parallel)
    if wanted is None or wanted <= at_once:
        return at_once if wanted is None else max(0, wanted), ""
    return at_once, f"runs {at_once} of its {wanted} completions: as many as run at the same time"


def _pods(kind: str, name: str, spec: Mapping[str, Value], count: int) -> Iterator[TemplatePod]:
    """Yield the pods; those of an Indexed Job are numbered, as a StatefulSet's are."""
    if kind == "StatefulSet":
        ordinals = optional(spec, "ordinals")
        start = optional(ordinals.fields(), "start") if ordinals else None
        first = start.integer() if start else 0
        yield from (TemplatePod(f"{name}-{first + index}") for index in range(count))
        return
    if kind == "Deployment":
        name = f"{name}-{_letters(name, _HASH)}"
    mode = optional(spec, "completionMode")
    indexed = mode is not None and mode.text() == "Indexed"
    for index in range(count):
        base = f"{name}-{index}" if indexed else name
        variables = (("JOB_COMPLETION_INDEX", str(index)),) if indexed else ()
        yield TemplatePod(f"{base}-{_letters(f'{name}/{index}', _SUFFIX)}", variables)


def _letters(text: str, count: int) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return "".join(_LETTERS[byte % len(_LETTERS)] for byte in digest[:count])
