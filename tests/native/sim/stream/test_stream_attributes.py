"""Attributes of streams on the simulated driver, through cuda-bindings."""

from typing import Any

from cuda.bindings import driver as cu

from tests.native.programs.graph_client import *

MACHINE = {"cuda_version": 12050}
NAMES = cu.CUlaunchAttributeID
other = done(cu.cuStreamCreateWithPriority(1, -2))


def get(where: Any, name: str) -> Any:
    return done(cu.cuStreamGetAttribute(where, getattr(NAMES, "CU_LAUNCH_ATTRIBUTE_" + name)))


def put(where: Any, name: str, **fields: Any) -> Any:
    value = cu.CUstreamAttrValue()
    for field, wanted in fields.items():
        setattr(value, field, wanted)
    return cu.cuStreamSetAttribute(where, getattr(NAMES, "CU_LAUNCH_ATTRIBUTE_" + name), value)


def policy_and_priority(where: Any) -> tuple[int, int]:
    policy = int(get(where, "SYNCHRONIZATION_POLICY").syncPolicy)
    assert get(where, "PRIORITY").priority == done(cu.cuStreamGetPriority(where))
    return policy, get(where, "PRIORITY").priority


def test_a_stream_begins_with_the_standard_attributes() -> None:
    assert policy_and_priority(other) == (1, -2)
    domains = get(0, "MEM_SYNC_DOMAIN_MAP").memSyncDomainMap
    assert (domains.default_, domains.remote) == (0, 1)
    assert get(0, "ACCESS_POLICY_WINDOW").accessPolicyWindow.num_bytes == 0
    assert refused(cu.cuStreamGetAttribute(0, NAMES.CU_LAUNCH_ATTRIBUTE_COOPERATIVE)) == INVALID


def test_what_is_set_is_told_of_that_stream_alone_and_can_be_copied() -> None:
    spinning = cu.CUsynchronizationPolicy.CU_SYNC_POLICY_SPIN
    assert put(stream, "SYNCHRONIZATION_POLICY", syncPolicy=spinning)[0] == 0
    assert put(stream, "PRIORITY", priority=-99)[0] == 0
    assert (policy_and_priority(stream), policy_and_priority(other)) == ((2, -5), (1, -2))
    cu.cuStreamCopyAttributes(other, stream)
    assert policy_and_priority(other) == (2, -5)


def test_a_window_of_accesses_is_checked() -> None:
    def with_window(ratio: float, misses: int = 0) -> Any:
        found = cu.CUaccessPolicyWindow()
        found.num_bytes, found.hitRatio = 4096, ratio
        found.hitProp = cu.CUaccessProperty.CU_ACCESS_PROPERTY_PERSISTING
        found.missProp = cu.CUaccessProperty(misses)
        return put(stream, "ACCESS_POLICY_WINDOW", accessPolicyWindow=found)

    assert with_window(0.5)[0] == 0
    assert get(stream, "ACCESS_POLICY_WINDOW").accessPolicyWindow.num_bytes == 4096
    assert refused(with_window(1.5)) == refused(with_window(0.5, 2)) == INVALID
