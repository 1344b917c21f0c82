"""`VcudaConfig`: what a claim says of its share beyond cores and memory, as opaque parameters.

    apiVersion: gpu.tencent.com/v1alpha1
    kind: VcudaConfig
    coreLimit: 60          # the share it may burst up to, percent
    policy: binpack        # for whoever chooses the node

Pure. Each means what the pod's annotation of the same name means. A field that is not known is an
error, because what is misspelt would silently not hold. The webhook reads it by the same function,
so that it is said when the object is written and not only when a pod is to start.
"""

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from gpumanager.names import CLAIM_DRIVER
from gpumanager.placement.preference import read_preference
from gpumanager.units import CORES_PER_GPU

API_VERSION: Final = f"{CLAIM_DRIVER}/v1alpha1"
KIND: Final = "VcudaConfig"
FIELDS: Final = ("apiVersion", "kind", "coreLimit", "policy")
UNUSED: Final = "profile"
"""A field of earlier versions: claims that have it are as good as without."""


@dataclass(frozen=True, slots=True)
class VcudaConfig:
    """ceiling: percent, None for the share alone. policy: empty where not said."""

    ceiling: int | None = None
    policy: str = ""

    def over(self, earlier: "VcudaConfig") -> "VcudaConfig":
        """This, and of the earlier one what is not said here."""
        return VcudaConfig(
            earlier.ceiling if self.ceiling is None else self.ceiling,
            self.policy or earlier.policy,
        )


def read_vcuda_config(parameters: Any, where: str = KIND) -> VcudaConfig:
    """Raises ValueError, which names all fields that are wrong, and what may stand there.

    where: they stand in an object, `spec.devices.config[0].opaque.parameters`.
    """
    if wrong := [f"{where}{field}: {fault}" for field, fault in _faults(parameters)]:
        raise ValueError("; ".join(wrong))
    return VcudaConfig(parameters.get("coreLimit"), parameters.get("policy", ""))


def _faults(parameters: Any) -> Iterator[tuple[str, str]]:
    """By field, which is empty for the whole."""
    if not isinstance(parameters, Mapping):
        yield "", f"not an object; write one of kind {KIND}"
        return
    if (parameters.get("apiVersion"), parameters.get("kind")) != (API_VERSION, KIND):
        yield "", f"parameters of another kind; write apiVersion: {API_VERSION}, kind: {KIND}"
        return
    for name in sorted(str(name)[:40] for name in parameters if name not in (*FIELDS, UNUSED)):
        near = difflib.get_close_matches(name, FIELDS, 1)
        meant = f"did you mean {near[0]}?" if near else f"there are {', '.join(FIELDS[2:])}"
        yield f".{name}", f"unknown field; {meant}"
    ceiling = parameters.get("coreLimit")
    if ceiling is not None and (type(ceiling) is not int or not 1 <= ceiling <= CORES_PER_GPU):
        yield ".coreLimit", f"{str(ceiling)[:40]!r}; write 1 to {CORES_PER_GPU}, percent of a GPU"
    policy = parameters.get("policy", "")
    if not isinstance(policy, str):
        yield ".policy", "not a text"
        return
    try:
        read_preference(policy)
    except ValueError as error:
        yield ".policy", str(error)
