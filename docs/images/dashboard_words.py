"""Values as Grafana writes them, by the unit of a panel. Pure."""

from collections.abc import Callable, Mapping
from typing import Final

STEPS: Final = (("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10))
TIMES: Final = (("day", 86400.0), ("h", 3600.0), ("min", 60.0), ("s", 1.0), ("ms", 1e-3))


def number(value: float, decimals: int | None) -> str:
    if decimals is not None:
        return f"{value:.{decimals}f}"
    if value == round(value):
        return f"{value:.0f}"
    return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"  # noqa: PLR2004


def size(value: float, decimals: int | None) -> str:
    for name, shift in STEPS:
        if abs(value) >= 1 << shift:
            return f"{number(value / (1 << shift), decimals)} {name}"
    return f"{value:.0f} B"


def duration(value: float, decimals: int | None) -> str:
    if value == 0:
        return "0 s"
    for name, seconds in TIMES:
        if abs(value) >= seconds:
            many = "s" if name == "day" and value >= 2 * seconds else ""
            return f"{number(value / seconds, decimals)} {name}{many}"
    return f"{number(value * 1e6, decimals)} µs"


def ending(text: str, times: float = 1) -> Callable[[float, int | None], str]:
    return lambda value, decimals: f"{number(value * times, decimals)}{text}"


UNITS: Final[Mapping[str, Callable[[float, int | None], str]]] = {
    "short": number,
    "percent": ending("%"),
    "percentunit": ending("%", 100),
    "bytes": size,
    "s": duration,
    "ops": ending(" ops/s"),
    "reqps": ending(" req/s"),
    "celsius": ending(" °C"),
    "watt": ending(" W"),
}
