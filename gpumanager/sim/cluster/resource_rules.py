"""What the API server fills in and refuses in `resource.k8s.io/v1`: limits, names, policies. Pure.

Followed is Kubernetes 1.37 with its default features (pkg/apis/resource/validation and the rules
generated from the API's types). Fields that the simulated scheduler would not understand are
refused too, so that nothing is skipped in silence. Admin access is not tied to a namespace's label
here: there are no namespaces.
"""

import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, Final

from gpumanager.kube.quantity import exact
from gpumanager.sim.names import LABEL, RULES, SUBDOMAIN

Object = Mapping[str, Any]
Problems = Iterator[str]

REQUESTS: Final = 32
"""Also the most of constraints, of selectors, of configurations, and of devices of one claim."""
ALTERNATIVES: Final = 8
CONSUMERS: Final = 256
"""Pods that may use one claim."""
DEVICES: Final = 128
DEVICES_WITH_COUNTERS_OR_TAINTS: Final = 64
ATTRIBUTES: Final = 32
"""Attributes and capacities of a device together."""
COUNTER_SETS: Final = 8
COUNTER_SETS_PER_DEVICE: Final = 2
COUNTERS: Final = 32
TAINTS: Final = 16
VALID_VALUES: Final = 10
TEXT: Final = 64
PARAMETERS: Final = 10 << 10

_ID: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,31}")
_VERSION: Final = re.compile(
    r"(0|[1-9]\d*)(\.(0|[1-9]\d*)){2}(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?"
)
_EFFECTS: Final = frozenset({"None", "NoSchedule", "NoExecute"})
_PLACES: Final = ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection")
_VALUES: Final[Mapping[str, type]] = {"string": str, "int": int, "bool": bool, "version": str}
_NOT_SIMULATED: Final = {
    "device": ("bindingConditions", "bindingFailureConditions", "nodeAllocatableResources"),
    "slice": ("partitionTypeAttribute", "skipNodeOperations"),
    "request": ("derivedAttributes",),
}


def defaulted(resource: str, item: Object) -> Object:
    """Return the object with the API's defaults. A claim's status is never made with the claim."""
    if resource == "resourceclaims":
        return {**_without_status(item), "spec": _claim_defaults(item.get("spec") or {})}
    if resource == "resourceclaimtemplates":
        spec = item.get("spec") or {}
        return {**item, "spec": {**spec, "spec": _claim_defaults(spec.get("spec") or {})}}
    return item


def with_taint_times(item: Object, now: str) -> Object:
    """Return a slice, with the time of each taint that says none; each write is a beginning
    then."""
    devices = [
        {**one, "taints": [{"timeAdded": now, **taint} for taint in one["taints"]]}
        if one.get("taints")
        else one
        for one in item["spec"].get("devices") or ()
    ]
    return {**item, "spec": {**item["spec"], **({"devices": devices} if devices else {})}}


def _without_status(item: Object) -> Object:
    return {name: value for name, value in item.items() if name != "status"}


def _claim_defaults(spec: Object) -> Object:
    devices = spec.get("devices") or {}
    requests = [_request_defaults(one) for one in devices.get("requests") or ()]
    return {**spec, "devices": {**devices, **({"requests": requests} if requests else {})}}


def _request_defaults(request: Object) -> Object:
    """Also of alternatives, which have their fields beside their names."""
    if "exactly" in request:
        return {**request, "exactly": _filled(request["exactly"])}
    if "firstAvailable" in request:
        return {**request, "firstAvailable": [_filled(one) for one in request["firstAvailable"]]}
    return request


def _filled(asked: Object) -> Object:
    mode = asked.get("allocationMode") or "ExactCount"
    count = {"count": asked.get("count") or 1} if mode == "ExactCount" else {}
    tolerations = [{"operator": "Equal", **one} for one in asked.get("tolerations") or ()]
    more = {"tolerations": tolerations} if tolerations else {}
    return {**asked, "allocationMode": mode, **count, **more}


def problems(resource: str, item: Object, before: Object | None = None) -> list[str]:
    """Why the object is refused, or nothing. before: what it replaces."""
    if resource not in _KINDS:
        return []
    try:
        found = [*_KINDS[resource](item)]
        if before is not None:
            found += _changes(resource, before, item)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        return [f"not of the form that the API has: {type(error).__name__}: {error}"]
    return found


def without_released_devices(resource: str, before: Object, after: Object) -> Object:
    """A claim whose status says nothing any more of devices that it has given back."""
    status = after.get("status") or {}
    if resource != "resourceclaims" or not status.get("devices"):
        return after
    released = _allocated(before.get("status") or {}) - _allocated(status)
    devices = [one for one in status["devices"] if _device_key(one) not in released]
    left = {name: value for name, value in status.items() if name != "devices"}
    return {**after, "status": left | ({"devices": devices} if devices else {})}


def _changes(resource: str, before: Object, after: Object) -> Problems:
    is_claim = resource in {"resourceclaims", "resourceclaimtemplates"}
    if is_claim and before["spec"] != after["spec"]:
        yield "spec: field is immutable"
    if resource == "resourceclaims":
        yield from _status(before, after)
    if resource == "resourceslices":
        old, new = before["spec"], after["spec"]
        for name in ("driver", "nodeName"):
            if old.get(name) != new.get(name):
                yield f"spec.{name}: field is immutable"
        if old["pool"]["name"] != new["pool"]["name"]:
            yield "spec.pool.name: field is immutable"


def _claim(item: Object) -> Problems:
    yield from _name(item["metadata"]["name"], SUBDOMAIN, "metadata.name")
    yield from _claim_spec(item["spec"], "spec.devices")


def _template(item: Object) -> Problems:
    yield from _name(item["metadata"]["name"], SUBDOMAIN, "metadata.name")
    yield from _claim_spec(item["spec"]["spec"], "spec.spec.devices")


def _claim_spec(spec: Object, path: str) -> Problems:
    devices = spec.get("devices") or {}
    requests, constraints = devices.get("requests") or (), devices.get("constraints") or ()
    known = _request_names(requests)
    yield from _set(requests, REQUESTS, f"{path}.requests", lambda one: one["name"])
    for index, one in enumerate(requests):
        yield from _request(one, f"{path}.requests[{index}]")
    yield from _most(constraints, REQUESTS, f"{path}.constraints")
    for index, one in enumerate(constraints):
        yield from _constraint(one, known, f"{path}.constraints[{index}]")
    yield from _configs(devices.get("config") or (), known, f"{path}.config")


def _request_names(requests: Iterable[Object]) -> set[str]:
    names = set()
    for one in requests:
        alternatives = one.get("firstAvailable") or ()
        names |= {one["name"], *(f"{one['name']}/{each['name']}" for each in alternatives)}
    return names


def _request(request: Object, path: str) -> Problems:
    yield from _name(request["name"], LABEL, f"{path}.name")
    alternatives = request.get("firstAvailable") or ()
    if bool(alternatives) == bool(request.get("exactly")):
        yield f"{path}: exactly one of `exactly` or `firstAvailable` is required"
        return
    if not alternatives:
        yield from _asked(request["exactly"], f"{path}.exactly")
    where = f"{path}.firstAvailable"
    yield from _set(alternatives, ALTERNATIVES, where, lambda one: one["name"])
    for index, one in enumerate(alternatives):
        yield from _name(one["name"], LABEL, f"{where}[{index}].name")
        yield from _asked(one, f"{where}[{index}]")


def _asked(asked: Object, path: str) -> Problems:
    yield from _not_simulated(asked, "request", path)
    yield from _name(asked.get("deviceClassName") or "", SUBDOMAIN, f"{path}.deviceClassName")
    yield from _selectors(asked.get("selectors") or (), f"{path}.selectors")
    mode, count = asked.get("allocationMode"), asked.get("count") or 0
    if mode not in {"All", "ExactCount"}:
        yield f"{path}.allocationMode: Unsupported value: {mode!r}: All, ExactCount"
    elif (mode == "All") != (count == 0) or count < 0:
        yield f"{path}.count: {count} is wrong where the mode is {mode}"
    for name, amount in ((asked.get("capacity") or {}).get("requests") or {}).items():
        yield from _qualified(name, f"{path}.capacity.requests")
        yield from _amount(amount, f"{path}.capacity.requests[{name}]")
    for one in asked.get("tolerations") or ():
        yield from _toleration(one, f"{path}.tolerations")


def _toleration(one: Object, path: str) -> Problems:
    if one.get("operator") not in {"Exists", "Equal"}:
        yield f"{path}.operator: Unsupported value: {one.get('operator')!r}: Equal, Exists"
    if one.get("operator") == "Exists" and one.get("value"):
        yield f"{path}.value: must be empty for operator `Exists`"
    if one.get("effect") and one["effect"] not in _EFFECTS:
        yield f"{path}.effect: Unsupported value: {one['effect']!r}"


def _selectors(selectors: Sequence[Object], path: str) -> Problems:
    yield from _most(selectors, REQUESTS, path)
    for index, one in enumerate(selectors):
        if "cel" not in one:
            yield f"{path}[{index}].cel: Required value"
        elif cause := _cel_problem(one["cel"]["expression"]):
            yield f"{path}[{index}].cel.expression: {cause}"


def _cel_problem(expression: str) -> str:
    """Its package is imported where there is an expression: most simulations have none."""
    from gpumanager.sim.claims.selectors import SelectorFailed, compiled

    try:
        compiled(expression)
    except SelectorFailed as failed:
        return str(failed)
    return ""


def _constraint(one: Object, known: set[str], path: str) -> Problems:
    yield from _references(one.get("requests") or (), known, f"{path}.requests")
    given = [name for name in ("matchAttribute", "distinctAttribute") if one.get(name)]
    if not given:
        yield f'{path}: exactly one of "matchAttribute" or "distinctAttribute" is required'
    for name in given:
        yield from _qualified(one[name], f"{path}.{name}")
        if "/" not in one[name]:
            yield f"{path}.{name}: a domain and a name separated by a slash are needed"


def _configs(configs: Sequence[Object], known: set[str] | None, path: str) -> Problems:
    """known: names of requests; None for a class, which has none."""
    yield from _most(configs, REQUESTS, path)
    for index, one in enumerate(configs):
        if known is not None:
            yield from _references(one.get("requests") or (), known, f"{path}[{index}].requests")
        opaque = one.get("opaque")
        if opaque is None:
            yield f"{path}[{index}].opaque: Required value"
            continue
        yield from _driver(opaque.get("driver") or "", f"{path}[{index}].opaque.driver")
        parameters = opaque.get("parameters")
        if not isinstance(parameters, Mapping):
            yield f"{path}[{index}].opaque.parameters: must be a JSON object"
        elif len(str(parameters)) > PARAMETERS:
            yield f"{path}[{index}].opaque.parameters: Too long: more than {PARAMETERS} bytes"


def _references(names: Sequence[str], known: set[str], path: str) -> Problems:
    yield from _set(names, REQUESTS, path, lambda name: name)
    for name in names:
        if name not in known:
            yield f"{path}: {name!r} must be the name of a request in the claim"


def _status(before: Object, after: Object) -> Problems:
    """reservedFor and allocation, of which the first needs the second, and results stay as made."""
    old, new = before.get("status") or {}, after.get("status") or {}
    consumers, allocation = new.get("reservedFor") or (), new.get("allocation")
    yield from _set(consumers, CONSUMERS, "status.reservedFor", lambda one: one["uid"])
    for one in consumers:
        if not (one.get("resource") and one.get("name") and one.get("uid")):
            yield "status.reservedFor: resource, name and uid are required"
    if consumers and allocation is None:
        yield "status.reservedFor: may not be specified when `allocated` is not set"
    if after["metadata"].get("deletionTimestamp") and any(
        one not in (old.get("reservedFor") or ()) for one in consumers
    ):
        yield "status.reservedFor: new entries may not be added while `deletionTimestamp` is set"
    if allocation is not None and old.get("allocation") is not None:
        if allocation != old["allocation"]:
            yield "status.allocation: field is immutable"
    elif allocation is not None:
        known = _request_names(after["spec"]["devices"].get("requests") or ())
        yield from _results(allocation["devices"].get("results") or (), known)
    allocated = _allocated(new)
    for one in new.get("devices") or ():
        if _device_key(one) not in allocated:
            yield f"status.devices: {one.get('device')} must be an allocated device in the claim"


def _allocated(status: Object) -> set[tuple[Any, ...]]:
    devices = (status.get("allocation") or {}).get("devices") or {}
    return {_device_key(one) for one in devices.get("results") or ()}


def _device_key(one: Object) -> tuple[Any, ...]:
    return one["driver"], one["pool"], one["device"], one.get("shareID")


def _results(results: Sequence[Object], known: set[str]) -> Problems:
    path = "status.allocation.devices.results"
    yield from _most(results, REQUESTS, path)
    for one in results:
        yield from _references([one["request"]], known, f"{path}.request")
        yield from _driver(one["driver"], f"{path}.driver")
        yield from _name(one["device"], LABEL, f"{path}.device")
        if "shareID" in one and str(uuid.UUID(one["shareID"])) != one["shareID"]:
            yield f"{path}.shareID: must be a UUID in lower case"


def _class(item: Object) -> Problems:
    spec = item.get("spec") or {}
    yield from _name(item["metadata"]["name"], SUBDOMAIN, "metadata.name")
    yield from _selectors(spec.get("selectors") or (), "spec.selectors")
    yield from _configs(spec.get("config") or (), None, "spec.config")
    if "extendedResourceName" in spec and "/" not in spec["extendedResourceName"]:
        yield "spec.extendedResourceName: must be a valid extended resource name"


def _slice(item: Object) -> Problems:
    spec, pool = item["spec"], item["spec"]["pool"]
    yield from _name(item["metadata"]["name"], SUBDOMAIN, "metadata.name")
    yield from _not_simulated(spec, "slice", "spec")
    yield from _driver(spec["driver"], "spec.driver")
    for part in pool["name"].split("/"):
        yield from _name(part, SUBDOMAIN, "spec.pool.name")
    if pool.get("resourceSliceCount", 0) <= 0:
        yield "spec.pool.resourceSliceCount: must be greater than zero"
    if pool.get("generation", 0) < 0:
        yield "spec.pool.generation: must be greater than or equal to zero"
    given = [name for name in _PLACES if spec.get(name)]
    if len(given) != 1:
        yield f"spec: exactly one of {', '.join(_PLACES)} is required, found {given}"
    if len((spec.get("nodeSelector") or {}).get("nodeSelectorTerms") or [0]) != 1:
        yield "spec.nodeSelector.nodeSelectorTerms: must have exactly one node selector term"
    devices, counters = spec.get("devices") or (), spec.get("sharedCounters") or ()
    if devices and counters:
        yield "spec: only one of `sharedCounters` or `devices` is allowed"
    dear = any(one.get("taints") or one.get("consumesCounters") for one in devices)
    most = DEVICES_WITH_COUNTERS_OR_TAINTS if dear else DEVICES
    yield from _set(devices, most, "spec.devices", lambda one: one["name"])
    for index, one in enumerate(devices):
        where = f"spec.devices[{index}]"
        yield from _device(one, where, per_device=bool(spec.get("perDeviceNodeSelection")))
    yield from _set(counters, COUNTER_SETS, "spec.sharedCounters", lambda one: one["name"])
    yield from _counters(counters, "name", "spec.sharedCounters")


def _device(device: Object, path: str, *, per_device: bool) -> Problems:
    yield from _name(device["name"], LABEL, f"{path}.name")
    yield from _not_simulated(device, "device", path)
    attributes, capacity = device.get("attributes") or {}, device.get("capacity") or {}
    if len(attributes) + len(capacity) > ATTRIBUTES:
        yield f"{path}: the total number of attributes and capacities must not exceed {ATTRIBUTES}"
    for name, value in attributes.items():
        yield from _qualified(name, f"{path}.attributes")
        yield from _attribute(value, f"{path}.attributes[{name}]")
    for name, one in capacity.items():
        where, policy = f"{path}.capacity[{name}]", one.get("requestPolicy")
        yield from _qualified(name, f"{path}.capacity")
        yield from _amount(one["value"], f"{where}.value")
        if policy and not device.get("allowMultipleAllocations"):
            yield f"{where}.requestPolicy: allowMultipleAllocations must be true"
        elif policy:
            yield from _policy(exact(one["value"]) or Fraction(0), policy, f"{where}.requestPolicy")
    yield from _most(device.get("taints") or (), TAINTS, f"{path}.taints")
    for one in device.get("taints") or ():
        if one.get("effect") not in _EFFECTS or not one.get("key"):
            yield f"{path}.taints: needs a key and one of the effects {', '.join(sorted(_EFFECTS))}"
    consumed = device.get("consumesCounters") or ()
    where = f"{path}.consumesCounters"
    yield from _set(consumed, COUNTER_SETS_PER_DEVICE, where, lambda one: one["counterSet"])
    yield from _counters(consumed, "counterSet", where)
    places = [name for name in ("nodeName", "nodeSelector", "allNodes") if device.get(name)]
    if len(places) != per_device:
        yield f"{path}: one of nodeName, nodeSelector, allNodes where perDeviceNodeSelection is set"


def _attribute(value: Object, path: str) -> Problems:
    if len(value) != 1:
        yield f"{path}: exactly one value must be specified"
    for kind, one in value.items():
        known = _VALUES.get(kind)
        if known is None:
            yield f"{path}: {kind} is not simulated"
        elif not isinstance(one, known) or isinstance(one, bool) != (known is bool):
            yield f"{path}.{kind}: {one!r} is none"
        elif known is str and len(str(one).encode()) > TEXT:
            yield f"{path}.{kind}: Too long: may not be more than {TEXT} bytes"
        elif kind == "version" and not _VERSION.fullmatch(str(one)):
            yield f"{path}.version: must be a string compatible with semver.org spec 2.0.0"


def _counters(sets: Iterable[Object], key: str, path: str) -> Problems:
    for one in sets:
        yield from _name(one[key], LABEL, f"{path}.{key}")
        counters = one.get("counters") or {}
        if not 1 <= len(counters) <= COUNTERS:
            yield f"{path}.counters: 1 to {COUNTERS} are needed"
        for name, counter in counters.items():
            yield from _name(name, LABEL, f"{path}.counters")
            yield from _amount(counter["value"], f"{path}.counters[{name}]")


def _policy(capacity: Fraction, policy: Object, path: str) -> Problems:
    """Its default has to be one of the amounts that it allows, and none is more than there is."""
    values, span = policy.get("validValues") or (), policy.get("validRange")
    if not values and span is None:
        return
    if values and span is not None:
        yield f"{path}: exactly one policy can be specified: validValues or validRange"
        return
    if (default := exact(policy.get("default"))) is None:
        yield f"{path}.default: Required value"
        return
    if span is not None:
        yield from _range(capacity, default, span, f"{path}.validRange")
        return
    yield from _set(values, VALID_VALUES, f"{path}.validValues", exact)
    amounts = [exact(one) or Fraction(0) for one in values]
    if amounts != sorted(amounts):
        yield f"{path}.validValues: values must be sorted in ascending order"
    if max(amounts) > capacity:
        yield f"{path}.validValues: option is larger than capacity value"
    if default not in amounts:
        yield f"{path}.validValues: default value is not valid according to the requestPolicy"


def _range(capacity: Fraction, default: Fraction, span: Object, path: str) -> Problems:
    least, step = exact(span.get("min")), exact(span.get("step", "1"))
    most = exact(span["max"]) if "max" in span else capacity
    if least is None or most is None or step is None:
        yield f"{path}: min is required, and all have to be quantities"
        return
    if not 0 <= least <= default <= most <= capacity:
        yield f"{path}: 0 <= min <= default <= max <= capacity does not hold"
    if "step" not in span:
        return
    if step <= 0:
        yield f"{path}.step: must be greater than zero"
        return
    if least + step > capacity:
        yield f"{path}.step: one step is larger than capacity value"
    for value in (default, *([most] if "max" in span else ())):
        if (value - least) % step:
            yield f"{path}.step: {value} is not a multiple of the step from min"


def _not_simulated(item: Object, kind: str, path: str) -> Problems:
    for name in _NOT_SIMULATED[kind]:
        if item.get(name):
            yield f"{path}.{name}: is not simulated"


def _name(text: str, rule: re.Pattern[str], path: str) -> Problems:
    if not rule.fullmatch(text):
        yield (
            f"{path}: {text[:80]!r} is not a name: {RULES[rule]}"
            if text
            else f"{path}: Required value"
        )


def _driver(text: str, path: str) -> Problems:
    yield from _name(text.lower(), SUBDOMAIN, path)
    if len(text) > 63:  # noqa: PLR2004 - of CSI drivers, whose rule it is
        yield f"{path}: Too long: may not be more than 63 bytes"


def _qualified(name: str, path: str) -> Problems:
    """`memory`, or `gpu.tencent.com/memory`."""
    domain, slash, short = name.rpartition("/")
    if slash:
        yield from _driver(domain, path)
    if not _ID.fullmatch(short):
        yield f"{path}: {name!r} is not a C identifier of at most 32 characters"


def _amount(value: object, path: str) -> Problems:
    amount = exact(value)
    if amount is None or amount < 0:
        yield f"{path}: {value!r} is not a quantity of 0 or more"


def _most(items: Sequence[Any], most: int, path: str) -> Problems:
    if len(items) > most:
        yield f"{path}: Too many: {len(items)}: must have at most {most} items"


def _set(items: Sequence[Any], most: int, path: str, key: Callable[[Any], object]) -> Problems:
    yield from _most(items, most, path)
    keys = [key(one) for one in items]
    for one in {one for one in keys if keys.count(one) > 1} if len(set(keys)) < len(keys) else ():
        yield f"{path}: Duplicate value: {one!r}"


_KINDS: Final[Mapping[str, Callable[[Object], Problems]]] = {
    "resourceclaims": _claim,
    "resourceclaimtemplates": _template,
    "deviceclasses": _class,
    "resourceslices": _slice,
}
