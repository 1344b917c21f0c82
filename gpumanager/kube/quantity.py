"""Kubernetes quantities: `30`, `1k`, `2Ki`, `500m`, `3e2`. Pure.

Any user writes pods, so what is read is bounded: `kubernetes.utils.parse_quantity`
takes `NaN`, `1_000` and `1e999999999`, which as a whole number has a billion digits.
"""

import re
from fractions import Fraction
from typing import Final

from gpumanager.units import MOST_DIGITS

QUANTITY_LETTERS: Final = 64
"""Letters of a quantity: more is none."""
_QUANTITY: Final = re.compile(
    rf"([+-]?)([0-9]{{1,{MOST_DIGITS}}})(?:\.([0-9]{{0,{MOST_DIGITS}}}))?"
    r"(?:([numkMGTPE]|[KMGTPE]i)|[eE]([+-]?[0-9]{1,2}))?"
)
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY: Final = {f"{letter}i": 10 * power for power, letter in enumerate("KMGTPE", 1)}


def whole_number(value: object) -> int | None:
    """Read a quantity that is a whole number, exactly; None for all else."""
    found = exact(value)
    return int(found) if found is not None and found.denominator == 1 else None


def exact(value: object) -> Fraction | None:
    """Read a quantity, exactly; None for what is none."""
    found = _parsed(str(value).strip())
    return None if found is None else found[0] * Fraction(10) ** found[1]


def amount(value: object) -> float:
    """Roughly, to weigh; 0 for what is no quantity, or is negative."""
    found = _parsed(str(value).strip())
    return 0.0 if found is None else max(0.0, found[0] * 10.0 ** found[1])


def _parsed(text: str) -> tuple[int, int] | None:
    """Return the number without its decimal point, and the power of ten that scales it."""
    match = _QUANTITY.fullmatch(text) if len(text) <= QUANTITY_LETTERS else None
    if match is None:
        return None
    sign, digits, fraction, suffix, exponent = match.groups(default="")
    number = int(digits + fraction) << _BINARY.get(suffix, 0)
    power = _DECIMAL.get(suffix, int(exponent or 0)) - len(fraction)
    return -number if sign == "-" else number, power
