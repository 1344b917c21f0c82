"""CEL selectors of devices, as kube-scheduler evaluates them, on the package `cel-python`.

What that package leaves out or does otherwise is added here: quantities and versions, `cel.bind`,
attributes of unknown domains, comparisons of values of two types. What is not known here is
refused when an expression is compiled, never skipped.
"""

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final

from celpy import CELEvalError, CELParseError, Environment, Runner
from celpy.celtypes import (
    BoolType,
    DoubleType,
    IntType,
    ListType,
    MapType,
    StringType,
    UintType,
)

from gpumanager.errors import GpuManagerError
from gpumanager.sim.claims.quantities import LARGEST_QUANTITY, Quantity, read_quantity
from gpumanager.sim.claims.slices import PoolDevice

FIELDS: Final = frozenset({"driver", "attributes", "capacity", "allowMultipleAllocations"})
SELECTOR_LETTERS: Final = 10 << 10
_VERSION: Final = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?"
)


class SelectorFailed(GpuManagerError):
    """An expression that cannot be compiled, or has no answer for a device."""


@lru_cache(maxsize=1 << 16)
def matches(expression: str, device: PoolDevice) -> bool:
    """Raises SelectorFailed, as the real one ends the scheduling of the pod."""
    program = compiled(expression)
    try:
        found = program.evaluate({"device": _variable(device)})
    except (CELEvalError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        cause = error.args[0] if error.args else error
        raise SelectorFailed(f"{expression}: on device {device.id.name}: {cause}") from error
    if not isinstance(found, BoolType):
        raise SelectorFailed(f"{expression}: {type(found).__name__} is not a bool")
    return bool(found)


@lru_cache(maxsize=1 << 10)
def compiled(expression: str) -> Runner:
    """Raises SelectorFailed. Types are only checked when it is evaluated."""
    if len(expression) > SELECTOR_LETTERS:
        raise SelectorFailed(f"an expression of more than {SELECTOR_LETTERS} characters")
    environment = Environment()
    try:
        tree = environment.compile(expression)
    except CELParseError as error:
        raise SelectorFailed(f"{expression}: {error.args[0]}") from error
    _check(expression, tree)
    for node in list(tree.iter_subtrees()):
        _replace_bind(environment, node)
    return environment.program(tree, functions=_FUNCTIONS)


def _check(expression: str, tree: Any) -> None:
    """Names of functions, of variables and of the device's fields."""
    known = {"device", "cel"}
    for node in tree.find_data("member_dot_arg"):
        name = str(node.children[1])
        if name not in _METHODS:
            raise SelectorFailed(f"{expression}: {name}() is not simulated")
        if name in _MACROS:
            known.add(_text(node.children[2].children[0]))
    for node in tree.find_data("ident_arg"):
        if str(node.children[0]) not in _PLAIN:
            raise SelectorFailed(f"{expression}: {node.children[0]}() is not simulated")
    for node in tree.find_data("ident"):
        if str(node.children[0]) not in known | _TYPES:
            raise SelectorFailed(f"{expression}: undeclared reference to {node.children[0]}")
    for node in tree.find_data("member_dot"):
        if _text(node.children[0]) == "device" and str(node.children[1]) not in FIELDS:
            raise SelectorFailed(f"{expression}: undefined field {node.children[1]}")


def _is_token(_: object) -> bool:
    return True


def _text(node: Any) -> str:
    return "".join(str(token) for token in node.scan_values(_is_token))


def _replace_bind(environment: Environment, node: Any) -> None:
    """`cel.bind(x, value, body)` is what `[value].map(x, body)[0]` is, where both are known."""
    call: Any = node.children[0] if node.data == "member" else None
    if getattr(call, "data", "") != "member_dot_arg" or _text(call.children[0]) != "cel":
        return
    variable, value, body = call.children[2].children
    other: Any = environment.compile(f"[0].map({_text(variable)}, 0)[0]")
    index: Any = next(other.find_data("member_index"))
    listed: Any = next(index.find_data("list_lit"))
    mapped: Any = next(index.find_data("member_dot_arg"))
    listed.children[0].children[0] = value
    mapped.children[2].children[1] = body
    node.children[0] = index


class _Domains(MapType):  # type: ignore[misc] # the package is not read
    """Attributes or capacities by domain; a domain that nobody uses is empty."""

    def __missing__(self, _: object) -> MapType:
        return MapType()


def _variable(device: PoolDevice) -> MapType:
    attributes, capacity = _Domains(), _Domains()
    for name, (kind, value) in device.attributes:
        _put(attributes, device.driver, name, _ATTRIBUTES[kind](value))
    for name, one in device.capacity:
        _put(capacity, device.driver, name, one.value)
    return MapType(
        {
            StringType("driver"): StringType(device.driver),
            StringType("allowMultipleAllocations"): BoolType(device.shareable),
            StringType("attributes"): attributes,
            StringType("capacity"): capacity,
        }
    )


def _put(domains: MapType, driver: str, name: str, value: Any) -> None:
    domain, slash, short = name.partition("/")
    where, key = (domain, short) if slash else (driver, domain)
    domains.setdefault(StringType(where), MapType())[StringType(key)] = value


@dataclass(frozen=True, slots=True, order=True)
class _Version:
    """Of semver.org: a release comes after its previews, whose words are compared one by one."""

    numbers: tuple[int, ...]
    release: bool
    preview: tuple[tuple[bool, int, str], ...]


def _version(text: str) -> _Version:
    match = _VERSION.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a version")
    words = match[4].split(".") if match[4] else ()
    preview = tuple(
        (not word.isdigit(), int(word) if word.isdigit() else 0, word) for word in words
    )
    return _Version(tuple(map(int, match.group(1, 2, 3))), not preview, preview)


_ATTRIBUTES: Final[Mapping[str, Callable[[Any], Any]]] = {
    "string": StringType,
    "int": IntType,
    "bool": BoolType,
    "version": _version,
}


def _kind(value: Any) -> object:
    """Numbers of all kinds compare with one another; a boolean is none of them."""
    return "number" if isinstance(value, (IntType, UintType, DoubleType)) else type(value)


def _plain(value: Any) -> Any:
    if isinstance(value, Quantity):
        return value.value
    return (
        (float if isinstance(value, float) else int)(value) if _kind(value) == "number" else value
    )


def _equal(left: Any, right: Any) -> bool:
    """Values of two kinds differ; they are no error."""
    if _kind(left) != _kind(right):
        return False
    if isinstance(left, ListType):
        return len(left) == len(right) and all(map(_equal, left, right))
    return bool(_plain(left) == _plain(right))


def _ordered(compare: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def ordered(left: Any, right: Any) -> Any:
        for value in (left, right):
            if isinstance(value, CELEvalError):
                return value
        if _kind(left) != _kind(right) or isinstance(left, (Quantity, _Version, MapType, ListType)):
            raise TypeError("no such overload")
        return BoolType(compare(_plain(left), _plain(right)))

    return ordered


def _checked(function: Callable[[Any, Any], bool]) -> Callable[[Any, Any], Any]:
    """An operand that has no value is the outcome."""

    def checked(left: Any, right: Any) -> Any:
        failed = [value for value in (left, right) if isinstance(value, CELEvalError)]
        return failed[0] if failed else BoolType(function(left, right))

    return checked


def _contains(item: Any, container: Any) -> bool:
    if not isinstance(container, (MapType, ListType)):
        raise TypeError("no such overload")
    return any(_equal(item, one) for one in container)


def _readable(read: Callable[[Any], object]) -> Callable[[Any], BoolType]:
    def readable(text: Any) -> BoolType:
        try:
            read(text)
        except ValueError:
            return BoolType(False)
        return BoolType(True)

    return readable


def _compare(left: Any, right: Any) -> IntType:
    if type(left) is not type(right) or not isinstance(left, (Quantity, _Version)):
        raise TypeError("no such overload")
    low, high = _plain(left), _plain(right)
    return IntType((low > high) - (low < high))


def _sum(sign: int) -> Callable[[Any, Any], Quantity]:
    def added(left: Quantity, right: Any) -> Quantity:
        amount = right.value if isinstance(right, Quantity) else Fraction(int(right))
        return Quantity(left.value + sign * amount, left.binary)

    return added


def _whole(quantity: Quantity) -> IntType:
    if quantity.value.denominator != 1 or abs(quantity.value) > LARGEST_QUANTITY:
        raise ValueError(f"{quantity} is not an int64")
    return IntType(int(quantity.value))


_FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {
    "_==_": _checked(_equal),
    "_!=_": _checked(lambda left, right: not _equal(left, right)),
    "_in_": _checked(_contains),
    "_<_": _ordered(operator.lt),
    "_<=_": _ordered(operator.le),
    "_>_": _ordered(operator.gt),
    "_>=_": _ordered(operator.ge),
    "quantity": read_quantity,
    "isQuantity": _readable(read_quantity),
    "semver": _version,
    "isSemver": _readable(_version),
    "compareTo": _compare,
    "isGreaterThan": lambda left, right: BoolType(_compare(left, right) > 0),
    "isLessThan": lambda left, right: BoolType(_compare(left, right) < 0),
    "add": _sum(1),
    "sub": _sum(-1),
    "sign": lambda one: IntType((one.value > 0) - (one.value < 0)),
    "asInteger": _whole,
    "isInteger": lambda one: BoolType(
        one.value.denominator == 1 and abs(one.value) <= LARGEST_QUANTITY
    ),
    "major": lambda one: IntType(one.numbers[0]),
    "minor": lambda one: IntType(one.numbers[1]),
    "patch": lambda one: IntType(one.numbers[2]),
    "lowerAscii": lambda text: StringType(text.lower()),
    "upperAscii": lambda text: StringType(text.upper()),
}
_MACROS: Final = frozenset({"bind", "map", "filter", "all", "exists", "exists_one"})
_OF_STRINGS: Final = frozenset({"startsWith", "endsWith", "contains", "matches", "size"})
_METHODS: Final = _MACROS | _OF_STRINGS | frozenset(_FUNCTIONS)
_TYPES: Final = frozenset({"bool", "bytes", "double", "int", "list", "map", "string", "uint"})
_PLAIN: Final = (
    _TYPES | frozenset({"has", "size", "type", "matches", "dyn"}) | frozenset(_FUNCTIONS)
)
