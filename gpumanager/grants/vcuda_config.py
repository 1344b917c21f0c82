"""`VcudaConfig`: what a claim says of its share beyond cores and memory, as opaque parameters.

    apiVersion: gpu.tencent.com/v1alpha1
    kind: VcudaConfig
    coreLimit: 60          # the share it may burst up to, percent
    profile: latency       # the share may be used in longer bursts
    policy: binpack        # for whoever chooses the node

Pure. Each means what the pod's annotation of the same name means. A field that is not known is an
error here and in the webhook: what is misspelt would silently not hold.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from gpumanager.grants.plan import LATENCY_BURST_US
from gpumanager.names import PROFILE_LATENCY
from gpumanager.placement.preference import read_preference
from gpumanager.units import CORES_PER_GPU

API_VERSION: Final = "gpu.tencent.com/v1alpha1"
KIND: Final = "VcudaConfig"
FIELDS: Final = ("apiVersion", "kind", "coreLimit", "profile", "policy")


@dataclass(frozen=True, slots=True)
class VcudaConfig:
    """ceiling: percent, None for the share alone. profile, policy: empty where not said."""

    ceiling: int | None = None
    profile: str = ""
    policy: str = ""

    @property
    def burst_us(self) -> int:
        """How much unused GPU time may be saved up; 0 for the shim's own choice."""
        return LATENCY_BURST_US if self.profile == PROFILE_LATENCY else 0


def read_vcuda_config(parameters: Any) -> VcudaConfig:
    """Raises ValueError, which names the field and what may stand there."""
    if not isinstance(parameters, Mapping):
        raise ValueError(f"{KIND}: not an object")  # noqa: TRY004 - as of any wrong contents
    if (parameters.get("apiVersion"), parameters.get("kind")) != (API_VERSION, KIND):
        raise ValueError(
            f"parameters of another kind; write apiVersion: {API_VERSION}, kind: {KIND}"
        )
    if unknown := sorted(str(name)[:40] for name in parameters if name not in FIELDS):
        raise ValueError(f"{KIND}: unknown {', '.join(unknown)}; there are {', '.join(FIELDS[2:])}")
    ceiling = parameters.get("coreLimit")
    if ceiling is not None and (type(ceiling) is not int or not 1 <= ceiling <= CORES_PER_GPU):
        raise ValueError(f"{KIND}.coreLimit: {str(ceiling)[:40]}; write 1 to {CORES_PER_GPU}")
    profile = parameters.get("profile", "")
    if profile not in ("", PROFILE_LATENCY):
        raise ValueError(
            f"{KIND}.profile: {str(profile)[:40]}; write {PROFILE_LATENCY}, or nothing"
        )
    policy = parameters.get("policy", "")
    if not isinstance(policy, str):
        raise ValueError(f"{KIND}.policy: not a text")  # noqa: TRY004
    if policy:
        try:
            read_preference(policy)
        except ValueError as error:
            raise ValueError(f"{KIND}.policy: {error}") from error
    return VcudaConfig(ceiling, profile, policy)
