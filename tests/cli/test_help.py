"""What `--help` says of each command: every flag has a text, durations and defaults are shown."""

import re

import click
import pytest

from gpumanager.cli import COMMANDS, gpumanager, run
from gpumanager.cli.flags import Duration, shown

PLACEHOLDERS = {"TEXT", "FLOAT", "INTEGER", "INTEGER RANGE", "FLOAT RANGE"}


def commands() -> dict[str, click.Command]:
    context = click.Context(gpumanager)
    found = {name: gpumanager.get_command(context, name) for name in COMMANDS}
    return {name: one for name, one in found.items() if one is not None}


def options(command: click.Command) -> list[click.Option]:
    params = command.get_params(click.Context(command))
    return [one for one in params if isinstance(one, click.Option) and not one.hidden]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_flag_says_what_it_does(name: str) -> None:
    """In a sentence: with a full stop, and more than a word."""
    for option in options(commands()[name]):
        text = option.help or ""
        assert len(text.split()) > 1, option.opts
        assert text.endswith("."), option.opts
        assert text[0].isupper() or text[0] in "`0123456789-", option.opts


@pytest.mark.parametrize("name", COMMANDS)
def test_what_a_flag_takes_is_named(name: str) -> None:
    """Not by its type: `--kubeconfig FILE`, `--wait-timeout DURATION`."""
    command = commands()[name]
    for option in options(command):
        if option.is_flag or option.metavar or isinstance(option.type, click.Choice):
            continue
        assert option.make_metavar(click.Context(command)) not in PLACEHOLDERS, option.opts


@pytest.mark.parametrize("name", COMMANDS)
def test_defaults_are_shown(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([name, "--help"]) == 0
    said = capsys.readouterr().out

    for option in options(commands()[name]):
        default = option.default
        if option.is_flag or not isinstance(default, str | int | float) or default in {"", False}:
            continue
        flag = max(option.opts, key=len)
        _, _, text = re.split(rf"^  (-., )?{flag}\b", said, maxsplit=1, flags=re.MULTILINE)
        text = "".join(text.split()).partition("default:")[2].partition("]")[0]
        assert str(default).replace(" ", "") in text, flag


@pytest.mark.parametrize(
    ("written", "seconds"), [("30", 30), ("1.5", 1.5), ("1m30s", 90), ("200ms", 0.2), (".5s", 0.5)]
)
def test_durations_are_read(written: str, seconds: float) -> None:
    assert Duration().convert(written, None, None) == pytest.approx(seconds)


@pytest.mark.parametrize("written", ["", "0", "-1", "1x", "nan", "inf", "s"])
def test_what_is_no_duration_is_refused(written: str) -> None:
    with pytest.raises(click.BadParameter, match="write for example 30s"):
        Duration().convert(written, None, None)


@pytest.mark.parametrize("seconds", [0.2, 1, 5, 59.5, 60, 90, 3600])
def test_a_default_is_shown_as_it_is_read(seconds: float) -> None:
    assert Duration().convert(shown(seconds), None, None) == pytest.approx(seconds)
