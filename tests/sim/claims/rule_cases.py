"""Objects of `resource.k8s.io/v1` that an API server takes, and those that it refuses."""

from typing import Any, Final

from tests.sim.claims.claim_objects import (
    DRIVER,
    asked,
    claim,
    gpu,
    request,
    slice_of,
)

Object = dict[str, Any]


def cel(expression: str) -> list[dict[str, Any]]:
    return [{"cel": {"expression": expression}}]


def with_policy(**policy: Any) -> dict[str, Any]:
    device = gpu(0)
    device["capacity"]["cores"]["requestPolicy"] = policy
    return slice_of("n", device)


def with_device(**changes: Any) -> dict[str, Any]:
    return slice_of("n", gpu(0) | changes)


def with_spec(**changes: Any) -> dict[str, Any]:
    made = slice_of("n", gpu(0))
    made["spec"] |= changes
    return made


def constraint(**one: Any) -> dict[str, Any]:
    return claim(request(), constraints=[one])


ACCEPTED: Final[dict[str, Object]] = {
    "a whole GPU": claim(request()),
    "a share": claim(request("gpu", 30, "2Gi", selectors=cel("device.driver == 'x'"))),
    "no request": claim(),
    "alternatives": claim({"name": "gpu", "firstAvailable": [{"name": "a", **asked()}]}),
    "both kinds of constraint": constraint(matchAttribute="a/b", distinctAttribute="a/b"),
    "a count of 0, which is none": claim(request("gpu", count=0)),
    "agreement": constraint(matchAttribute=f"{DRIVER}/numa", requests=["gpu"]),
    "32 requests": claim(*(request(f"r{index}") for index in range(32))),
}
REFUSED: Final[dict[str, tuple[Object, str]]] = {
    "a name": (claim(request(), name="Mine"), "metadata.name"),
    "33 requests": (claim(*(request(f"r{index}") for index in range(33))), "Too many"),
    "one name twice": (claim(request(), request()), "Duplicate value: 'gpu'"),
    "neither kind of request": (claim({"name": "gpu"}), "exactly one of `exactly`"),
    "9 alternatives": (
        claim({"name": "g", "firstAvailable": [{"name": f"a{n}", **asked()} for n in range(9)]}),
        "Too many: 9",
    ),
    "no class": (claim(request("gpu", deviceClassName="")), "deviceClassName: Required"),
    "a negative count": (claim(request("gpu", count=-1)), "count: -1 is wrong"),
    "count of all": (claim(request("gpu", allocationMode="All")), "count: 1 is wrong"),
    "a mode": (claim(request("gpu", allocationMode="Some")), "Unsupported value: 'Some'"),
    "an amount": (claim(request("gpu", None, "2 GB")), "'2 GB' is not a quantity"),
    "a selector's syntax": (claim(request("gpu", selectors=cel("device.driver =="))), "selectors"),
    "a selector's name": (claim(request("gpu", selectors=cel("gpu.driver"))), "undeclared"),
    "an unknown function": (
        claim(request("gpu", selectors=cel("device.driver.charAt(0) == 'g'"))),
        "not simulated",
    ),
    "neither kind of constraint": (constraint(), 'exactly one of "matchAttribute"'),
    "an attribute without domain": (constraint(matchAttribute="numa"), "separated by a slash"),
    "another's request": (constraint(matchAttribute="a/b", requests=["x"]), "'x' must be the name"),
    "derived attributes": (claim(request("gpu", derivedAttributes=[{"name": "x"}])), "simulated"),
    "configuration of nobody": (claim(request(), config=[{}]), "opaque: Required"),
}
REFUSED_SLICES: Final[dict[str, tuple[Object, str]]] = {
    "129 devices": (slice_of("n", *(gpu(index) for index in range(129))), "at most 128"),
    "65 devices, one tainted": (
        slice_of("n", gpu(64) | {"taints": [{"key": "a", "effect": "None"}]}, *map(gpu, range(64))),
        "at most 64",
    ),
    "a device twice": (slice_of("n", gpu(0), gpu(0)), "Duplicate value: 'gpu-0'"),
    "a device's name": (with_device(name="GPU_0"), "is not a name"),
    "no node": (with_spec(nodeName=None), "exactly one of nodeName"),
    "two kinds of nodes": (with_spec(allNodes=True), "exactly one of nodeName"),
    "no slices": (slice_of("n", gpu(0), resourceSliceCount=0), "greater than zero"),
    "a driver's name": (with_spec(driver="tencent_com"), "spec.driver"),
    "33 attributes": (
        with_device(attributes={f"a{index}": {"int": 1} for index in range(31)}),
        "must not exceed 32",
    ),
    "two values": (with_device(attributes={"a": {"int": 1, "string": "x"}}), "exactly one value"),
    "a long text": (with_device(attributes={"a": {"string": "x" * 65}}), "not be more than 64"),
    "a version": (with_device(attributes={"a": {"version": "12.8"}}), "semver.org"),
    "an attribute's name": (with_device(attributes={"a-b": {"int": 1}}), "C identifier"),
    "three counter sets": (
        with_device(
            consumesCounters=[
                {"counterSet": name, "counters": {"x": {"value": "1"}}} for name in "abc"
            ]
        ),
        "Too many: 3: must have at most 2",
    ),
    "a policy of a whole device": (with_device(allowMultipleAllocations=False), "must be true"),
    "binding conditions": (with_device(bindingConditions=["x"]), "not simulated"),
    "a policy without default": (with_policy(validRange={"min": "1"}), "default: Required"),
    "a default outside": (
        with_policy(default="5", validRange={"min": "10", "max": "100"}),
        "min <= default",
    ),
    "more than there is": (
        with_policy(default="10", validRange={"min": "1", "max": "200"}),
        "max <= capacity",
    ),
    "a maximum off the steps": (
        with_policy(default="1", validRange={"min": "1", "step": "2", "max": "100"}),
        "not a multiple of the step",
    ),
    "a step of 0": (
        with_policy(default="1", validRange={"min": "1", "step": "0"}),
        "step: must be",
    ),
    "both policies": (
        with_policy(default="1", validValues=["1"], validRange={"min": "1"}),
        "exactly one policy",
    ),
    "values out of order": (with_policy(default="1", validValues=["5", "1"]), "ascending"),
    "a default that is no value": (with_policy(default="2", validValues=["1", "5"]), "not valid"),
}
NOT_SIMULATED: Final = frozenset(
    {"an unknown function", "derived attributes", "binding conditions"}
)
"""Which a real server takes, or takes without what its features do not have."""
