"""Evaluate the CEL selectors that our examples, chart and webhook write. Pure.

Not CEL, but the forms of `_FORMS`, with `&&`, `||`, `!` and parentheses. Anything else is refused
when the expression is read: it is never taken for true or false.
"""

import ast
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, Final

from gpumanager.errors import GpuManagerError
from gpumanager.kube.errors import Object
from gpumanager.kube.quantity import exact

Evaluate = Callable[[Object], bool]
"""Of a device, as its ResourceSlice has it, and its `driver`."""

WRITE: Final = (
    "write comparisons of device.driver, device.attributes['DOMAIN'].NAME and "
    "device.capacity['DOMAIN'].NAME.compareTo(quantity('2Gi')), with &&, ||, ! and in"
)
_COMPARISONS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}


class SelectorNotKnown(GpuManagerError):
    """An expression of a form that is not evaluated here."""


class SelectorFailed(GpuManagerError):
    """An expression that has no answer for a device; kube-scheduler gives up the pod for it."""


def selects(expression: str, driver: str, device: Object) -> bool:
    """Return whether a device is selected; raises SelectorNotKnown and SelectorFailed."""
    try:
        return read_selector(expression)({**device, "driver": driver})
    except SelectorFailed as failed:
        raise SelectorFailed(f"{expression}: on device {device['name']}: {failed}") from None


@lru_cache(maxsize=1 << 10)
def read_selector(expression: str) -> Evaluate:
    """Return what evaluates the expression; raises SelectorNotKnown."""
    reader = _Reader(expression)
    try:
        found = reader.any_of()
    except RecursionError:
        raise SelectorNotKnown(f"{expression[:80]}: too many parentheses") from None
    if reader.rest:
        raise reader.not_known()
    return found


class _Reader:
    """rest: what is not read yet."""

    def __init__(self, expression: str) -> None:
        self.rest = self._expression = expression.strip()

    def not_known(self) -> SelectorNotKnown:
        where = "" if self.rest == self._expression else f" from {self.rest[:80] or 'its end'} on"
        return SelectorNotKnown(f"{self._expression[:200]}: not simulated{where}: {WRITE}")

    def any_of(self) -> Evaluate:
        return self._joined(_OR, lambda: self._joined(_AND, self._one, decides=False), decides=True)

    def _joined(
        self, sign: re.Pattern[str], read: Callable[[], Evaluate], *, decides: bool
    ) -> Evaluate:
        parts = [read()]
        while self._take(sign):
            parts.append(read())
        return partial(_decided, parts, decides)

    def _one(self) -> Evaluate:
        negated = self._take(_NOT)
        if self._take(_OPEN):
            found = self.any_of()
            if not self._take(_CLOSE):
                raise self.not_known()
            return partial(_negated, found) if negated else found
        for pattern, evaluate, may_be_negated in _FORMS:
            if (may_be_negated or not negated) and (form := self._take(pattern)):
                found = partial(evaluate, form)
                return partial(_negated, found) if negated else found
        raise self.not_known()

    def _take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        if found := pattern.match(self.rest):
            self.rest = self.rest[found.end() :].lstrip()
        return found


def _negated(inner: Evaluate, device: Object) -> bool:
    return not inner(device)


def _decided(parts: Sequence[Evaluate], decides: bool, device: Object) -> bool:  # noqa: FBT001 - called by partial
    """Return `||` (decides) or `&&` of the parts: one that decides hides another's failure."""
    failed: SelectorFailed | None = None
    for part in parts:
        try:
            if part(device) is decides:
                return decides
        except SelectorFailed as error:
            failed = failed or error
    if failed:
        raise failed
    return not decides


def _is_compared(form: re.Match[str], device: Object) -> bool:
    """Values of two kinds differ; they are no error, but have no order."""
    value, literal = _value(form, device), ast.literal_eval(form["literal"])
    same, sign = type(value) is type(literal), form["sign"]
    if sign in {"==", "!="}:
        return (same and value == literal) is (sign == "==")
    if not same:
        raise SelectorFailed(f"{value!r} and {literal!r} have no order")
    return _COMPARISONS[sign](value, literal)


def _is_listed(form: re.Match[str], device: Object) -> bool:
    return _value(form, device) in ast.literal_eval(form["listed"])


def _is_enough(form: re.Match[str], device: Object) -> bool:
    has, wanted = _published(form, device, "capacity")["value"], ast.literal_eval(form["amount"])
    if (amount := exact(wanted)) is None:
        raise SelectorFailed(f"{wanted!r} is no quantity")
    return _COMPARISONS[form["sign"]](exact(has), amount)


def _has_word(form: re.Match[str], device: Object) -> bool:
    return any(word in _text(form, device) for word in ast.literal_eval(form["listed"]))


def _has_part(form: re.Match[str], device: Object) -> bool:
    text, part = _text(form, device), ast.literal_eval(form["literal"])
    return text.startswith(part) if form["function"] == "startsWith" else part in text


def _text(form: re.Match[str], device: Object) -> str:
    value = _value(form, device)
    if not isinstance(value, str):
        raise SelectorFailed(f"{value!r} is no string")
    return value


def _value(form: re.Match[str], device: Object) -> Any:
    found = {"string": device["driver"]}
    if form["field"] != "driver":
        found = _published(form, device, "attributes")
    ((kind, value),) = found.items()
    if kind not in {"string", "int", "bool"} or (form["lower"] and kind != "string"):
        raise SelectorFailed(f"{form['name']} is a {kind}: its comparison is not simulated")
    return re.sub("[A-Z]", lambda one: one[0].lower(), value) if form["lower"] else value


def _published(form: re.Match[str], device: Object, fields: str) -> Any:
    """Return an attribute or a capacity; names without a domain are in the driver's."""
    there, domain = device.get(fields) or {}, ast.literal_eval(form["domain"])
    own = there.get(form["name"]) if domain == device["driver"] else None
    if (found := there.get(f"{domain}/{form['name']}", own)) is None:
        raise SelectorFailed(f"no such key: {form['name']}")
    return found


_TEXT: Final = r"""(?:'[^'\\\n\r\0]*'|"(?:[^"\\\n\r\0]|\\["\\bfnrt]|\\u[0-9a-fA-F]{4})*")"""
_LIST: Final = rf"(?P<listed>\[ (?:{_TEXT}(?: , {_TEXT})*)? \])"
_DOMAIN: Final = rf"\[ (?P<domain>{_TEXT}) \]\.(?P<name>[A-Za-z_]\w*)"
_FIELD: Final = rf"device\.(?P<field>driver|attributes{_DOMAIN})(?P<lower>\.lowerAscii\( \))?"
_SIGN: Final = "(?P<sign>[=!<>]=|[<>])"
_NUMBER: Final = r"-?(?:0|[1-9]\d{0,18})(?![\w.])"


def _form(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern.replace(" ", r"\s*"))


_OR, _AND, _NOT = _form(r"\|\|"), _form("&&"), _form("!")
_OPEN, _CLOSE = _form(r"\("), _form(r"\)")
_QUANTITY: Final = rf"quantity\( (?P<amount>{_TEXT}) \)"
_PART: Final = rf"(?P<function>startsWith|contains)\( (?P<literal>{_TEXT}) \)"
_FORMS: Final = (
    # The last: whether `!` may stand before it. In CEL `!a == b` is not `!(a == b)`.
    # A driver is a string; an attribute may be anything, and differs from another kind.
    (_form(rf"{_FIELD} {_SIGN} (?P<literal>{_TEXT})"), _is_compared, False),
    (_form(rf"(?!device.driver){_FIELD} {_SIGN} (?P<literal>{_NUMBER})"), _is_compared, False),
    (_form(rf"{_FIELD} \bin {_LIST}"), _is_listed, False),
    (
        _form(rf"device\.capacity{_DOMAIN}\.compareTo\( {_QUANTITY} \) {_SIGN} 0(?![\w.])"),
        _is_enough,
        False,
    ),
    (
        _form(rf"{_LIST}\.exists\( (?P<word>\w+) , {_FIELD}\.contains\( (?P=word) \) \)"),
        _has_word,
        True,
    ),
    (_form(rf"{_FIELD}\.{_PART}"), _has_part, True),
)
