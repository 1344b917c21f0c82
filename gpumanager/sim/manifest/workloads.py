"""Deployments, Jobs and the like: the pods that their controllers would make, by the pod template.

As many as would run at the same time on one node that has room for all. Names are shaped as the
controllers shape them; what is random there is derived from the workload's name here, so that two
runs show the same names.
"""

import hashlib
import time
from collections.abc import Iterator
from typing import Final, NamedTuple

from gpumanager.sim.manifest.yaml_text import Fields, read_names

KINDS: Final = ("CronJob", "DaemonSet", "Deployment", "Job", "ReplicaSet", "StatefulSet")
MOST_PODS: Final = 1000
_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
"""Of generated names, as Kubernetes has them: no vowels, so no words."""
_SUFFIX: Final = 5
_HASH: Final = 10
"""Letters of a Deployment's pod-template-hash."""


class TemplatePod(NamedTuple):
    """environment: variables that the controller adds to every container."""

    namespace: str
    name: str
    environment: tuple[tuple[str, str], ...] = ()


def read_workload(kind: str, fields: Fields) -> tuple[Fields, list[TemplatePod], str]:
    """Return the template of a Deployment or the like, its pods, and what a reader should know
    about their number, or nothing; raises InputError."""
    namespace, name = read_names(fields)
    spec = fields.required("spec")
    if kind == "CronJob":
        kind, name = "Job", f"{name}-{int(time.time()) // 60}"
        spec = spec.required("jobTemplate").required("spec")
    template = spec.required("template")
    count, note = max(0, spec.get("replicas", 1)), ""  # a DaemonSet has one pod on a node
    if kind == "Job":
        count = max(0, spec.get("parallelism", 1))
        wanted = max(0, spec.get("completions", count))
        if spec.get("suspend"):
            count, note = 0, "is suspended: none of its pods runs"
        elif wanted > count:
            note = f"runs {count} of its {wanted} completions: as many as run at the same time"
        else:
            count = wanted
    if count > MOST_PODS:
        raise spec.error(f"{count} pods: a simulated node takes at most {MOST_PODS}")
    pods = [TemplatePod(namespace, one, added) for one, added in _pods(kind, name, spec, count)]
    return template, pods, note


def _pods(
    kind: str, name: str, spec: Fields, count: int
) -> Iterator[tuple[str, tuple[tuple[str, str], ...]]]:
    """Yield names and variables; those of an Indexed Job are numbered, as a StatefulSet's are."""
    first = spec.below("ordinals").get("start", 0) if kind == "StatefulSet" else 0
    if kind == "Deployment":
        name = f"{name}-{_letters(name, _HASH)}"
    indexed = spec.get("completionMode") == "Indexed"
    for index in range(count):
        if kind == "StatefulSet":
            yield f"{name}-{first + index}", ()
            continue
        base = f"{name}-{index}" if indexed else name
        variables = (("JOB_COMPLETION_INDEX", str(index)),) if indexed else ()
        yield f"{base}-{_letters(f'{name}/{index}', _SUFFIX)}", variables


def _letters(text: str, count: int) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return "".join(_LETTERS[byte % len(_LETTERS)] for byte in digest[:count])
