"""Durations on the command line: `30s`, `1m30s`, or a plain number of seconds."""

import re
from typing import Any, Final

import click

_UNITS: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART: Final = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|ms|s|m|h)")
"""Of a Go duration, as `1m30s` has two."""


class Duration(click.ParamType):  # type: ignore[type-arg]
    """Seconds, greater than 0. gpu-manager has numbers for some flags, Go durations for others."""

    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        try:
            rest = _PART.sub("", str(value))
            parts = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(str(value)))
            seconds = parts if not rest else float(value)
        except ValueError:
            seconds = -1.0
        if not 0 < seconds < float("inf"):
            self.fail(f"{value!r} is not a time; write for example 30s", param, ctx)
        return seconds


DURATION: Final = Duration()


def shown(seconds: float) -> str:
    """As a default is written: `5s`, `1m30s`, `200ms`."""
    if seconds < 1:
        return f"{seconds * 1000:g}ms"
    minutes, rest = divmod(seconds, 60)
    return (f"{minutes:g}m" if minutes else "") + (f"{rest:g}s" if rest or not minutes else "")
