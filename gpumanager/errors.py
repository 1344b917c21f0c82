"""Errors the project raises.

    GpuManagerError             everything of ours; exit status 1
    └── InputError              what the user gave cannot be used; exit status 2

Packages derive their own from these. Whoever meets a foreign error turns it into one of ours with
`raise … from`; only `cli` turns them into an exit status and one line on stderr.
"""

from pathlib import Path


class GpuManagerError(Exception):
    """What was tried, on what, and what the reader can do."""

    exit_status = 1


class InputError(GpuManagerError):
    """Input that cannot be used: names the file (or flag), the line if there is one, the cause."""

    exit_status = 2

    def __init__(self, source: str | Path, cause: str, *, line: int | None = None) -> None:
        place = f"{source}:{line}" if line is not None else str(source)
        super().__init__(f"{place}: {cause}")
        self.source = source
        self.cause = cause
        self.line = line


def words_of(error: BaseException) -> str:
    """Return the text of an error, or its kind: some, as TimeoutError, have no text."""
    plain = "no answer in time" if isinstance(error, TimeoutError) else type(error).__name__
    return str(error) or plain
