"""Clusters, classes and claims of every shape the allocator knows, at random but repeatable."""

from dataclasses import dataclass, field
from random import Random
from typing import Any

DRIVERS = ("gpu.tencent.com", "other.example.com")


@dataclass
class Cluster:
    """claims: of one pod. allocated: `status.allocation` of the claims of others."""

    node: dict[str, Any]
    slices: list[dict[str, Any]]
    classes: list[dict[str, Any]]
    claims: list[dict[str, Any]]
    allocated: list[dict[str, Any]] = field(default_factory=list)

    def question(self) -> dict[str, Any]:
        return {
            "node": self.node,
            "slices": self.slices,
            "classes": self.classes,
            "claims": self.claims,
            "allocated": self.allocated,
        }


def cluster(seed: int) -> Cluster:
    random = Random(seed)
    node = {"metadata": {"name": "n0", "labels": {"zone": random.choice(["a", "b"]), "size": "8"}}}
    slices = [one for index in range(random.choice([1, 1, 2])) for one in _pool(random, index)]
    random.shuffle(slices)
    classes = [_class(name, driver) for name, driver in zip(("gpu", "other"), DRIVERS, strict=True)]
    classes.append({"metadata": {"name": "any"}, "spec": {}})
    if random.random() < 0.2:
        parameters = {"opaque": {"driver": DRIVERS[0], "parameters": {"burst": 1}}}
        classes[0]["spec"]["config"] = [parameters]
    claims = [_claim(random, index) for index in range(random.choice([1, 1, 1, 2]))]
    made = Cluster(node, slices, classes, claims)
    made.allocated = _allocated(random, slices)
    return made


def _class(name: str, driver: str) -> dict[str, Any]:
    selectors = [{"cel": {"expression": f"device.driver == '{driver}'"}}]
    return {"metadata": {"name": name}, "spec": {"selectors": selectors}}


def _pool(random: Random, index: int) -> list[dict[str, Any]]:
    """One pool in one to three slices; some are incomplete, old, for other nodes, or invalid."""
    driver = random.choice([DRIVERS[0], DRIVERS[0], DRIVERS[1]])
    name = random.choice([f"n0-{index}", "n0", "m"])
    count = random.choice([1, 1, 1, 2, 3])
    generation = random.choice([1, 1, 2])
    counters = random.random() < 0.25
    said = count + counters + (random.random() < 0.07)
    pool = {"name": name, "generation": generation, "resourceSliceCount": said}
    places: list[dict[str, Any]] = [
        {"nodeName": "n0"},
        {"allNodes": True},
        {"nodeSelector": _selector(random)},
        {"nodeName": "n1"},
        {"perDeviceNodeSelection": True},
    ]
    where = random.choices(places, [9, 1, 1, 0.3, 1])[0]
    per_device = "perDeviceNodeSelection" in where
    devices = [
        _device(random, number, counters=counters, per_device=per_device)
        for number in range(random.randint(1, 6))
    ]
    if random.random() < 0.5:
        random.shuffle(devices)
    if random.random() < 0.02:
        devices.append(devices[0])
    made = []
    for part in range(count):
        here = devices[part::count]
        spec = {"driver": driver, "pool": pool, **where, "devices": here}
        made.append(_object(f"s{random.randint(0, 99):02}-{index}-{part}", spec))
    if counters:
        sets = [{"name": "gpus", "counters": {f"c{number}": {"value": "2"} for number in range(8)}}]
        spec = {"driver": driver, "pool": pool, **where, "sharedCounters": sets}
        made.append(_object(f"s{random.randint(0, 99):02}-{index}-counters", spec))
    return made


def _object(name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": spec}


def _selector(random: Random) -> dict[str, Any]:
    requirement = random.choice(
        [
            {"key": "zone", "operator": "In", "values": ["a"]},
            {"key": "zone", "operator": "NotIn", "values": ["a"]},
            {"key": "size", "operator": "Gt", "values": ["4"]},
            {"key": "none", "operator": "DoesNotExist"},
        ]
    )
    return {"nodeSelectorTerms": [{"matchExpressions": [requirement]}]}


def _device(random: Random, number: int, *, counters: bool, per_device: bool) -> dict[str, Any]:
    made: dict[str, Any] = {
        "name": f"gpu-{number}",
        "attributes": {
            "numa": {"int": number // 4},
            "gpu.tencent.com/nvlink": {"int": number // 2},
            "model": {"string": random.choice(["A100", "T4"])},
            "free": {"int": random.choice([0, 30, 60, 100])},
            "good": {"bool": random.random() < 0.8},
            "version": {"version": random.choice(["12.4.0", "12.8.1"])},
        },
    }
    if random.random() < 0.1:
        del made["attributes"]["numa"]
    if random.random() < 0.75:
        made["allowMultipleAllocations"] = True
        made["capacity"] = {"cores": _cores(random), "memory": _memory(random)}
    elif random.random() < 0.5:
        made["capacity"] = {"memory": {"value": "16Gi"}}
    if counters and random.random() < 0.8:
        taken = {f"c{each}": {"value": random.choice(["1", "2"])} for each in {number, number % 3}}
        made["consumesCounters"] = [{"counterSet": "gpus", "counters": taken}]
    if random.random() < 0.1:
        effect = random.choice(["NoSchedule", "NoExecute", "None"])
        made["taints"] = [{"key": "xid", "value": "79", "effect": effect}]
    if per_device:
        made |= random.choice([{"nodeName": "n0"}, {"nodeName": "n1"}, {"allNodes": True}])
    return made


def _cores(random: Random) -> dict[str, Any]:
    span = {"min": "1", "step": "1", "max": "100"}
    return random.choice(
        [
            {"value": "100", "requestPolicy": {"default": "100", "validRange": span}},
            {
                "value": "100",
                "requestPolicy": {"default": "10", "validValues": ["10", "25", "100"]},
            },
            {
                "value": "1",
                "requestPolicy": {"default": "1", "validRange": {"min": "100m", "step": "50m"}},
            },
            {"value": "100"},
        ]
    )


def _memory(random: Random) -> dict[str, Any]:
    most = random.choice(["8Gi", "16Gi"])
    span = {"min": "256Mi", "step": "256Mi", "max": most}
    return random.choice(
        [
            {"value": most, "requestPolicy": {"default": most, "validRange": span}},
            {"value": most, "requestPolicy": {"default": "1Gi", "validRange": {"min": "1Gi"}}},
            {"value": most},
        ]
    )


def _claim(random: Random, index: int) -> dict[str, Any]:
    requests = [_request(random, number) for number in range(random.choice([1, 1, 2]))]
    devices: dict[str, Any] = {"requests": requests}
    constraints = [
        {
            kind: f"gpu.tencent.com/{random.choice(['numa', 'nvlink', 'model', 'version'])}",
            "requests": random.choice([[], ["r0"], [one["name"] for one in requests]]),
        }
        for kind in ("matchAttribute", "distinctAttribute")
        if random.random() < 0.15
    ]
    if constraints:
        devices["constraints"] = constraints
    if random.random() < 0.3:
        opaque = {"driver": DRIVERS[0], "parameters": {"profile": "latency"}}
        names = random.choice([[], ["r0"], ["r0/a"] if "firstAvailable" in requests[0] else []])
        devices["config"] = [{"requests": names, "opaque": opaque}]
    metadata = {"name": f"claim-{index}", "namespace": "default", "uid": f"uid-{index}"}
    return {"metadata": metadata, "spec": {"devices": devices}}


def _request(random: Random, number: int) -> dict[str, Any]:
    if random.random() < 0.3:
        names = "abc"[: random.randint(1, 3)]
        return {
            "name": f"r{number}",
            "firstAvailable": [_asked(random) | {"name": one} for one in names],
        }
    asked = _asked(random)
    if random.random() < 0.08:
        asked["adminAccess"] = True
    return {"name": f"r{number}", "exactly": asked}


def _asked(random: Random) -> dict[str, Any]:
    made: dict[str, Any] = {"deviceClassName": random.choice(["gpu"] * 8 + ["other", "any"])}
    if random.random() < 0.05:
        made["allocationMode"] = "All"
    else:
        count = random.choice([1] * 12 + [2, 2, 2, 3, 20])
        made |= {"allocationMode": "ExactCount", "count": count}
    if random.random() < 0.7:
        made["capacity"] = {"requests": _amounts(random)}
    if random.random() < 0.25:
        expression = random.choice(EXPRESSIONS[:5] * 3 + EXPRESSIONS[5:])
        made["selectors"] = [{"cel": {"expression": expression}}]
    if random.random() < 0.15:
        made["tolerations"] = [
            random.choice(
                [
                    {"operator": "Exists"},
                    {"key": "xid", "operator": "Equal", "value": "79", "effect": "NoSchedule"},
                    {"key": "xid", "operator": "Equal", "value": "48"},
                ]
            )
        ]
    return made


EXPRESSIONS = (
    "device.allowMultipleAllocations",
    "device.driver != 'gpu.tencent.com' || device.attributes['gpu.tencent.com'].free >= 30",
    "device.driver == 'gpu.tencent.com' && device.attributes['gpu.tencent.com'].model == 'A100'",
    "has(device.attributes['gpu.tencent.com'].numa) && device.driver != 'other.example.com'",
    "!has(device.attributes[device.driver].good) || device.attributes[device.driver].good",
    "device.attributes['gpu.tencent.com'].free <= 30",
    "device.capacity['gpu.tencent.com'].memory.compareTo(quantity('10Gi')) >= 0",
    "device.attributes['other.example.com'].free >= 30",
    "cel.bind(a, device.attributes['gpu.tencent.com'], a.version.compareTo(semver('12.5.0')) > 0)",
)
"""Some fail on devices of another driver, or on those without the capacity."""


def _amounts(random: Random) -> dict[str, str]:
    cores = random.choice(["1", "7", "30", "500m", "25", "55", "100", "40", "10", "10", "0"])
    memory = random.choice(["300Mi", "2Gi", "1Gi", "8Gi", "1500M", "20Gi"])
    return random.choice([{"cores": cores}, {"memory": memory}, {"cores": cores, "memory": memory}])


def _allocated(random: Random, slices: list[dict[str, Any]]) -> list[dict[str, Any]]:
    results = []
    for one in slices:
        for device in one["spec"].get("devices", ()):
            if random.random() < 0.2:
                results.append(_result(random, one["spec"], device))  # noqa: PERF401 - the dice first
    return [{"devices": {"results": [result]}} for result in results]


def _result(random: Random, spec: dict[str, Any], device: dict[str, Any]) -> dict[str, Any]:
    made = {
        "request": "r",
        "driver": spec["driver"],
        "pool": spec["pool"]["name"],
        "device": device["name"],
    }
    if random.random() < 0.1:
        made["adminAccess"] = True
    if device.get("allowMultipleAllocations"):
        share = f"{random.getrandbits(32):08x}-0000-4000-8000-000000000000"
        made |= {"shareID": share}
        if random.random() < 0.9:
            cores = random.choice(["30", "70", "100", "500m"])
            made["consumedCapacity"] = {"cores": cores, "memory": random.choice(["2Gi", "4Gi"])}
    return made
