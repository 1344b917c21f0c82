"""Attributes of streams on the simulated driver, through cuda-bindings."""

from tests.native.sim.graph.graph_scripts import told
from tests.native.sim_box import SimBox

ATTRIBUTES = """
NAMES = cu.CUlaunchAttributeID
def get(where, name):
    return done(cu.cuStreamGetAttribute(where, getattr(NAMES, "CU_LAUNCH_ATTRIBUTE_" + name)))
def put(where, name, **fields):
    value = cu.CUstreamAttrValue()
    for field, wanted in fields.items():
        setattr(value, field, wanted)
    return cu.cuStreamSetAttribute(where, getattr(NAMES, "CU_LAUNCH_ATTRIBUTE_" + name), value)
other = done(cu.cuStreamCreateWithPriority(1, -2))
"""


def test_a_stream_begins_with_the_standard_attributes(box: SimBox) -> None:
    out = told(
        box,
        ATTRIBUTES
        + """
print(int(get(stream, "SYNCHRONIZATION_POLICY").syncPolicy), get(other, "PRIORITY").priority)
domains = get(0, "MEM_SYNC_DOMAIN_MAP").memSyncDomainMap
print(domains.default_, domains.remote, get(0, "ACCESS_POLICY_WINDOW").accessPolicyWindow.num_bytes)
print(refused(cu.cuStreamGetAttribute(0, NAMES.CU_LAUNCH_ATTRIBUTE_COOPERATIVE)))
""",
    )

    assert out == ["1 -2", "0 1 0", "CUDA_ERROR_INVALID_VALUE"]


def test_what_is_set_is_told_of_that_stream_alone_and_can_be_copied(box: SimBox) -> None:
    out = told(
        box,
        ATTRIBUTES
        + """
SPIN = cu.CUsynchronizationPolicy.CU_SYNC_POLICY_SPIN
done(put(stream, "SYNCHRONIZATION_POLICY", syncPolicy=SPIN) + (None,))
done(put(stream, "PRIORITY", priority=-99) + (None,))
print(int(get(stream, "SYNCHRONIZATION_POLICY").syncPolicy), done(cu.cuStreamGetPriority(stream)))
print(int(get(other, "SYNCHRONIZATION_POLICY").syncPolicy), done(cu.cuStreamGetPriority(other)))
cu.cuStreamCopyAttributes(other, stream)
print(int(get(other, "SYNCHRONIZATION_POLICY").syncPolicy), done(cu.cuStreamGetPriority(other)))
""",
    )

    assert out == ["2 -5", "1 -2", "2 -5"]


def test_a_window_of_accesses_is_checked(box: SimBox) -> None:
    out = told(
        box,
        ATTRIBUTES
        + """
def window(ratio, misses=0):
    found = cu.CUaccessPolicyWindow()
    found.num_bytes, found.hitRatio = 4096, ratio
    found.hitProp = cu.CUaccessProperty.CU_ACCESS_PROPERTY_PERSISTING
    found.missProp = cu.CUaccessProperty(misses)
    return found
done(put(stream, "ACCESS_POLICY_WINDOW", accessPolicyWindow=window(0.5)) + (None,))
print(get(stream, "ACCESS_POLICY_WINDOW").accessPolicyWindow.num_bytes)
print(refused(put(stream, "ACCESS_POLICY_WINDOW", accessPolicyWindow=window(1.5))))
print(refused(put(stream, "ACCESS_POLICY_WINDOW", accessPolicyWindow=window(0.5, 2))))
""",
    )

    assert out == ["4096", *["CUDA_ERROR_INVALID_VALUE"] * 2]
