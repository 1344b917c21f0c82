"""From what a run showed to what is said of it. Pure: evidence in, a finding out."""

from collections.abc import Mapping
from typing import Any, Final

from gpu_check.evidence import Evidence
from gpu_check.outcome import Finding, Verdict, passed_if

GRANULE: Final = 2 << 20
"""What a driver takes at a time; memory smaller than that comes out of such a piece."""

ROUNDING: Final = 2 * GRANULE
"""By which the driver's own account may be over the limit: pieces that are not full."""

AGREE: Final = 16 << 20
"""Bytes that two views may differ by: they are asked one after another, and some count in MiB."""

FILLED_PART: Final = 0.95
"""Of the limit: what a program that allocates in pieces of 64 MiB comes close to."""

BUSY: Final = 3
"""Percent of the GPU's time that others may take without a word."""

LARGEST_ERROR: Final = 1e-3
OUT_OF_MEMORY: Final = 2

SHIM_THERE: Final = "the shim is in the program"


def idle(busy: int, processes: int) -> Finding:
    """busy: percent, before anything of the check ran."""
    said = f"{busy} % busy and {processes} processes before the check"
    figures = {"busy": busy, "processes": processes}
    if busy <= BUSY:
        return Finding(Verdict.PASS, said, figures)
    return Finding(Verdict.FIGURE, f"{said}: shares and overheads mean little", figures)


def accepted(seen: Evidence) -> Finding:
    worst, gpu = seen.told["worst"], seen.told["gpu"]
    conditions = {
        SHIM_THERE: seen.shim,
        "the product of matrices is right": worst < LARGEST_ERROR,
        "its launches are paid for": seen.charged_ns > 0,
    }
    paid = f"{seen.charged_ns / 1e6:.2f} ms of GPU time paid for"
    said = f"{gpu}; {paid}, worst relative error {worst:.1e}"
    return _passed(conditions, said, {"worst": worst, "charged_ns": seen.charged_ns})


def exact(seen: Evidence) -> Finding:
    """The driver's own calls, down to single bytes."""
    answers = seen.told["answers"]
    conditions = {
        SHIM_THERE: seen.shim,
        "every refusal is CUDA_ERROR_OUT_OF_MEMORY": set(answers) == {OUT_OF_MEMORY},
        "never over the limit": seen.peak <= seen.limit,
        "nothing is left to allocate": seen.told["left"] < GRANULE,
        **_by_driver(seen),
    }
    return _passed(conditions, _memory(seen), _memory_figures(seen))


def filled(seen: Evidence) -> Finding:
    """A framework's allocator, in one process."""
    return _passed(_filling(seen), _memory(seen), _memory_figures(seen))


def shared(seen: Evidence) -> Finding:
    """Several processes, one limit."""
    count = len(seen.told["held"])
    known = {"the manager knows all processes": seen.processes >= count}
    said = f"{count} processes: {_memory(seen)}"
    return _passed(_filling(seen) | known, said, _memory_figures(seen))


def _filling(seen: Evidence) -> dict[str, bool]:
    return {
        SHIM_THERE: seen.shim,
        "refused as out of memory": bool(seen.told["refused"]),
        "never over the limit": seen.peak <= seen.limit,
        "the limit could be filled": seen.peak >= FILLED_PART * seen.limit,
        "it lives on": bool(seen.told["alive"]),
        **_by_driver(seen),
    }


def consistent(seen: Evidence) -> Finding:
    """Every view of the GPU's memory is the container's."""
    views: Mapping[str, Mapping[str, int]] = seen.told["seen"]
    held: int = seen.told["held"]
    totals = {name: view["total"] for name, view in views.items()}
    used = {name: amount for name, amount in map(_used, views.items()) if amount is not None}
    spread = max(used.values()) - min(used.values())
    wrong = [name for name, total in totals.items() if total != seen.limit]
    conditions = {
        SHIM_THERE: seen.shim,
        f"the whole is the limit to all ({', '.join(wrong)} differ)": not wrong,
        "what is held is in all views": min(used.values()) >= held,
        "all views of what is used agree": spread <= AGREE,
    }
    said = f"{', '.join(views)}: {seen.limit >> 20} MiB, used within {spread >> 20} MiB"
    return _passed(conditions, said, {"views": views, "spread": spread})


def graphs(seen: Evidence) -> Finding:
    conditions = {
        SHIM_THERE: seen.shim,
        "a replay's result is that of the same work": seen.told["same"],
    }
    said = f"{seen.told['replays']} replays, {seen.launches} launches seen"
    return _passed(conditions, said, {"replays": seen.told["replays"]})


def triton(seen: Evidence) -> Finding:
    conditions = {SHIM_THERE: seen.shim, "the sum is right": seen.told["same"]}
    return _passed(conditions, f"Triton {seen.told['triton']}, {seen.launches} launches seen", {})


def forked(seen: Evidence) -> Finding:
    told = seen.told
    conditions = {
        SHIM_THERE: seen.shim,
        "children that were forked before CUDA began compute": not any(told["children"]),
        "so does their parent": told["parent"] == 0,
        "children that were forked later end in order": not any(told["after"]),
    }
    count = len(told["children"]) + len(told["after"])
    return _passed(conditions, f"{count} children and their parent", {})


def _passed(conditions: Mapping[str, bool], said: str, figures: Mapping[str, Any]) -> Finding:
    """Conditions are put as what should be; who reads a failure is told what is not so."""
    return passed_if(
        {f"not so: {what}": holds for what, holds in conditions.items()}, said, figures
    )


def _used(view: tuple[str, Mapping[str, int]]) -> tuple[str, int | None]:
    name, fields = view
    if "used" in fields:
        return name, fields["used"]
    return name, fields["total"] - fields["free"] if "free" in fields else None


def _by_driver(seen: Evidence) -> dict[str, bool]:
    """What the driver itself says was held, where it says anything."""
    if seen.driver is None:
        return {}
    rounded = seen.limit + ROUNDING
    return {"the driver itself never saw more than the limit": seen.driver <= rounded}


def _memory(seen: Evidence) -> str:
    driver = "the driver names no processes here"
    if seen.driver is not None:
        driver = f"{mib(seen.driver)} by the driver's account"
    return f"limit {mib(seen.limit)}: at most {mib(seen.peak)} held, {driver}"


def _memory_figures(seen: Evidence) -> dict[str, Any]:
    return {
        "limit": seen.limit,
        "peak": seen.peak,
        "driver": seen.driver,
        "held": seen.told["held"],
        "denied": seen.denied,
        "degraded": seen.degraded,
    }


def mib(size: int) -> str:
    whole, rest = divmod(size, 1 << 20)
    return f"{whole} MiB" + (f" + {rest} B" if rest else "")
