"""Where the log goes, by the flags that klog has.

stderr is what `kubectl logs` shows, so that everything goes there unless it is told otherwise.
Levels are klog's: messages above INFO come from `--v=4` on, as gpu-manager's deployments ask for.
With `--log-format=json` each line is an object, for collectors of logs.
"""

import fnmatch
import json
import logging
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Final

from gpumanager.errors import InputError

EVERYTHING: Final = 4
"""The klog level from which gpu-manager's deployments log everything."""

FILE: Final = "gpumanager.log"
FILE_BYTES: Final = 32 << 20
FILES_KEPT: Final = 4
FORMATS: Final = ("text", "json")
FORMAT: Final = "%(asctime)s %(levelname).1s %(name)s: %(message)s"

THRESHOLDS: Final = {
    "INFO": logging.INFO,
    "WARNING": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}
"""klog's severities, which it also takes as the numbers from 0 on."""


@dataclass(frozen=True, slots=True)
class LogFlags:
    """As given. to_stderr: True: only there; False: there from `threshold` on; None: not said.

    format: of FORMATS. modules: pairs of a pattern for a module's name, and its level. line:
    `file.py:123`, at which to log the stack.
    """

    level: int = 0
    format: str = FORMATS[0]
    directory: Path | None = None
    to_stderr: bool | None = None
    also_to_stderr: bool = False
    threshold: int = logging.ERROR
    modules: tuple[tuple[str, int], ...] = ()
    line: str = ""


def start_logging(flags: LogFlags, root: logging.Logger | None = None) -> None:
    """Log where the flags have it. Raises InputError for a directory that cannot be written.

    Handlers that exist already, as in tests, stay as they are.
    """
    root = root or logging.getLogger()
    stderr = logging.StreamHandler(sys.stderr)
    handlers: list[logging.Handler] = [stderr]
    if flags.directory is not None and not flags.to_stderr:
        if flags.to_stderr is False and not flags.also_to_stderr:
            stderr.setLevel(flags.threshold)
        path = flags.directory / FILE
        try:
            flags.directory.mkdir(parents=True, exist_ok=True)
            handlers.append(RotatingFileHandler(path, maxBytes=FILE_BYTES, backupCount=FILES_KEPT))
        except OSError as error:
            cause = f"cannot write a log there: {error.strerror}"
            raise InputError(flags.directory, cause) from error
    if root.handlers:
        return
    root.setLevel(min(_level(number) for number in (flags.level, *dict(flags.modules).values())))
    for handler in handlers:
        handler.setFormatter(
            JsonFormatter() if flags.format == "json" else logging.Formatter(FORMAT)
        )
        handler.addFilter(_Chosen(flags))
        root.addHandler(handler)


class JsonFormatter(logging.Formatter):
    """A line as an object: `ts`, `level`, `logger`, `caller`, `msg`, and `stack` if there is one.

    `template` and `values` are what `msg` was made of: lines that say the same of different things
    have one template.
    """

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, object] = {
            "ts": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "caller": f"{record.filename}:{record.lineno}",
            "msg": record.getMessage(),
        }
        given = record.args if isinstance(record.args, tuple) else (record.args,)
        if record.args:
            # Numbers as such, all else as it stands in the message.
            values = [one if isinstance(one, bool | int | float) else str(one) for one in given]
            line |= {"template": str(record.msg), "values": values}
        stack = [self.formatException(record.exc_info)] if record.exc_info else []
        stack += [record.stack_info] if record.stack_info else []
        return json.dumps(line | ({"stack": "\n".join(stack)} if stack else {}))


class _Chosen(logging.Filter):
    """Lets through what the levels say, and adds the stack where asked."""

    def __init__(self, flags: LogFlags) -> None:
        super().__init__()
        self._flags = flags

    def filter(self, record: logging.LogRecord) -> bool:
        if self._flags.line == f"{record.filename}:{record.lineno}" and not record.stack_info:
            # Down to the call that logs.
            own = (logging.__file__, __file__)
            frames = [one for one in traceback.extract_stack() if one.filename not in own]
            record.stack_info = "Stack:\n" + "".join(traceback.format_list(frames))
        modules = self._flags.modules
        of_module = (n for pattern, n in modules if fnmatch.fnmatch(record.module, pattern))
        return record.levelno >= _level(next(of_module, self._flags.level))


def _level(number: int) -> int:
    return logging.DEBUG if number >= EVERYTHING else logging.INFO


def parse_modules(text: str) -> tuple[tuple[str, int], ...]:
    """Read `cri=4,listener*=4`; raises InputError."""
    pairs = [pair.partition("=") for pair in text.split(",") if pair]
    for name, _, number in pairs:
        if not name or not number.isdigit():
            raise InputError("--vmodule", f"{text!r}: write for example cri=4,listener*=4")
    return tuple((name.removesuffix(".py"), int(number)) for name, _, number in pairs)


def parse_threshold(text: str) -> int:
    """Read the name or number of a severity; raises InputError."""
    names: Sequence[str] = tuple(THRESHOLDS)
    name = names[int(text)] if text in {"0", "1", "2", "3"} else text.upper()
    if name not in THRESHOLDS:
        raise InputError("--stderrthreshold", f"{text!r} is none of {', '.join(names)}")
    return THRESHOLDS[name]
