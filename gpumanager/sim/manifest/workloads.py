"""Deployments, Jobs and the like: the pods that their controllers would make, by the pod template.

As many as would run at the same time on one node that has room for all. Names are shaped as the
controllers shape them; what is random there is derived from the workload's name here, so that two
runs show the same names.
"""

import hashlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from gpumanager.sim.manifest.yaml_text import Fields, Value, name_and_namespace

KINDS: Final = ("CronJob", "DaemonSet", "Deployment", "Job", "ReplicaSet", "StatefulSet")
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
    namespace: str
    environment: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class PodsByTemplate:
    """note: what a reader should know about the number of its pods; empty for nothing."""

    template: Value
    pods: tuple[TemplatePod, ...]
    note: str = ""


def read_workload(kind: str, value: Value) -> PodsByTemplate:
    """Read a Deployment or the like; raises InputError."""
    fields = value.fields()
    name, namespace = name_and_namespace(fields)
    spec = fields.required("spec").fields()
    if kind == "CronJob":
        kind, name = "Job", f"{name}-{int(time.time()) // 60}"
        spec = spec.required("jobTemplate").fields().required("spec").fields()
    template = spec.required("template")
    count, note = _count(kind, spec)
    if count > MOST_PODS:
        raise spec.of.error(f"{count} pods: a simulated node takes at most {MOST_PODS}")
    made = (TemplatePod(one, namespace, added) for one, added in _pods(kind, name, spec, count))
    return PodsByTemplate(template, tuple(made), note)


def _count(kind: str, spec: Fields) -> tuple[int, str]:
    """Return how many pods run at once, and the note. A DaemonSet has one pod on a node."""
    if kind != "Job":
        replicas = spec.optional("replicas")
        return max(0, replicas.integer()) if replicas else 1, ""
    if spec.flag("suspend"):
        return 0, "is suspended: none of its pods runs"
    parallel, wanted = spec.optional("parallelism"), spec.optional("completions")
    at_once = max(0, parallel.integer()) if parallel else 1
    if wanted is None or wanted.integer() <= at_once:
        return at_once if wanted is None else max(0, wanted.integer()), ""
    return at_once, (
        f"runs {at_once} of its {wanted.integer()} completions: as many as run at the same time"
    )


def _pods(
    kind: str, name: str, spec: Fields, count: int
) -> Iterator[tuple[str, tuple[tuple[str, str], ...]]]:
    """Yield names and variables; those of an Indexed Job are numbered, as a StatefulSet's are."""
    if kind == "StatefulSet":
        start = spec.below("ordinals").optional("start")
        first = start.integer() if start else 0
        yield from ((f"{name}-{first + index}", ()) for index in range(count))
        return
    if kind == "Deployment":
        name = f"{name}-{_letters(name, _HASH)}"
    indexed = spec.text("completionMode") == "Indexed"
    for index in range(count):
        base = f"{name}-{index}" if indexed else name
        variables = (("JOB_COMPLETION_INDEX", str(index)),) if indexed else ()
        yield f"{base}-{_letters(f'{name}/{index}', _SUFFIX)}", variables


def _letters(text: str, count: int) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return "".join(_LETTERS[byte % len(_LETTERS)] for byte in digest[:count])
