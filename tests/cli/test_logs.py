"""klog's flags: which messages go where."""

import json
import logging
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gpumanager.cli.logs import LogFlags, parse_modules, parse_threshold, start_logging


@pytest.fixture
def log() -> Iterator[logging.Logger]:
    """A root of its own."""
    log = logging.Logger("agent")  # noqa: LOG001 - nobody else's
    yield log
    for handler in log.handlers:
        handler.close()


def say_all(log: logging.Logger) -> None:
    for level in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR):
        log.log(level, "<%s>", logging.getLevelName(level))


def levels(text: str) -> str:
    names = ("DEBUG", "INFO", "WARNING", "ERROR")
    return " ".join(name[0] for name in names if f"<{name}>" in text)


@pytest.mark.parametrize(
    "case",
    [
        (LogFlags(), "I W E", None),
        (LogFlags(level=3), "I W E", None),
        (LogFlags(level=4), "D I W E", None),
        (LogFlags(to_stderr=False), "I W E", None),
        (LogFlags(directory=Path()), "I W E", "I W E"),
        (LogFlags(directory=Path(), level=5), "D I W E", "D I W E"),
        (LogFlags(directory=Path(), to_stderr=True), "I W E", None),
        (LogFlags(directory=Path(), to_stderr=False), "E", "I W E"),
        (LogFlags(directory=Path(), to_stderr=False, threshold=logging.WARNING), "W E", "I W E"),
        (LogFlags(directory=Path(), to_stderr=False, also_to_stderr=True), "I W E", "I W E"),
        (LogFlags(modules=(("test_l*", 4),)), "D I W E", None),
        (LogFlags(modules=(("cri", 4),)), "I W E", None),
        (LogFlags(level=4, modules=(("test_logs", 0),)), "I W E", None),
    ],
)
def test_messages_go_where_klog_s_flags_say(
    case: tuple[LogFlags, str, str | None],
    log: logging.Logger,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    flags, stderr, file = case
    directory = None if flags.directory is None else tmp_path / "var/log"
    start_logging(replace(flags, directory=directory), log)

    say_all(log)

    path = tmp_path / "var/log/gpumanager.log"
    assert levels(capsys.readouterr().err) == stderr
    assert (levels(path.read_text()) if path.exists() else None) == file


def test_the_stack_is_logged_at_the_line_asked_for(
    log: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    here = sys._getframe().f_lineno
    start_logging(LogFlags(line=f"test_logs.py:{here + 3}"), log)
    log.info("before of %d", 2)
    log.info("at it")

    said = capsys.readouterr().err
    assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} I agent: before of 2\n", said)
    assert said.count("Stack:") == 1
    assert said.index("before") < said.index("at it") < said.index("Stack:")
    assert said.rstrip().endswith('log.info("at it")')


def test_modules_are_pairs_of_patterns_and_levels() -> None:
    assert parse_modules("cri=4,listener*.py=2,") == (("cri", 4), ("listener*", 2))


@pytest.mark.parametrize(
    ("text", "level"), [("0", logging.INFO), ("error", logging.ERROR), ("WARNING", logging.WARNING)]
)
def test_thresholds_are_names_or_numbers(text: str, level: int) -> None:
    assert parse_threshold(text) == level


def test_json_lines_are_objects_with_what_the_message_was_made_of(
    log: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    start_logging(LogFlags(format="json"), log)

    log.info("pod %s has %d GPUs", "a/b", 2)
    log.warning("100 % full")
    try:
        Path("/nowhere").read_text()
    except OSError:
        log.exception("cannot write")

    told, plain, failed = map(json.loads, capsys.readouterr().err.splitlines())
    assert told | {"ts": "", "caller": ""} == {
        "ts": "",
        "level": "info",
        "logger": "agent",
        "caller": "",
        "msg": "pod a/b has 2 GPUs",
        "template": "pod %s has %d GPUs",
        "values": ["a/b", 2],
    }
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", told["ts"])
    assert re.fullmatch(r"test_logs\.py:\d+", told["caller"])
    assert (plain["level"], plain["msg"], "values" in plain) == ("warning", "100 % full", False)
    assert failed["stack"].splitlines()[-1].startswith("FileNotFoundError: ")
