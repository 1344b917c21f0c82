"""Xids: whose fault they are, and which of them count."""

import pytest

from gpumanager.gpu.health_checks import Checks, checks_of
from gpumanager.gpu.xids import XIDS, Severity, classify

PASSED_OVER_BY_NVIDIA = (13, 31, 43, 45, 68, 109)
"""Application errors of k8s-device-plugin (internal/rm/health.go)."""


@pytest.mark.parametrize("code", PASSED_OVER_BY_NVIDIA)
def test_what_nvidias_plugin_passes_over_is_an_applications_fault(code: int) -> None:
    assert classify(code).severity is Severity.APPLICATION


@pytest.mark.parametrize("code", [48, 62, 64, 74, 79, 95, 119, 140])
def test_what_needs_a_reset_is_fatal(code: int) -> None:
    assert classify(code).severity is Severity.FATAL


@pytest.mark.parametrize("code", [63, 92, 154])
def test_what_the_driver_has_dealt_with_is_a_notice(code: int) -> None:
    assert not classify(code).severity.harms


def test_a_code_that_nobody_knows_harms_but_only_for_a_time() -> None:
    assert classify(4711).severity is Severity.TRANSIENT
    assert str(classify(4711)) == "Xid 4711 (not known to this agent)"


def test_every_row_of_the_table_says_its_own_code() -> None:
    assert all(code == xid.code and xid.meaning for code, xid in XIDS.items())


def severities(checks: Checks, *codes: int) -> list[str | None]:
    found = [checks.severity(code) for code in codes]
    return [None if severity is None else severity.value for severity in found]


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, ["application", "fatal", "fatal", "transient"]),
        ({"DP_DISABLE_HEALTHCHECKS": ""}, ["application", "fatal", "fatal", "transient"]),
        ({"DP_DISABLE_HEALTHCHECKS": "48, 4711"}, ["application", None, "fatal", None]),
        ({"DP_DISABLE_HEALTHCHECKS": "xids"}, [None, None, None, None]),
        ({"DP_DISABLE_HEALTHCHECKS": "ALL"}, [None, None, None, None]),
        ({"DP_ENABLE_HEALTHCHECKS": "13"}, ["transient", "fatal", "fatal", "transient"]),
        (
            {"DP_DISABLE_HEALTHCHECKS": "all", "DP_ENABLE_HEALTHCHECKS": "79"},
            [None, None, "fatal", None],
        ),
        (
            {"DP_DISABLE_HEALTHCHECKS": "48,79", "DP_ENABLE_HEALTHCHECKS": "all"},
            ["transient", "fatal", "fatal", "transient"],
        ),
    ],
)
def test_codes_count_as_the_variables_of_nvidias_plugin_say(
    environment: dict[str, str], expected: list[str | None]
) -> None:
    assert severities(checks_of(environment), 13, 48, 79, 4711) == expected


def test_all_ends_the_probes_too_and_xids_does_not() -> None:
    assert not checks_of({"DP_DISABLE_HEALTHCHECKS": "all"}).any
    assert checks_of({"DP_DISABLE_HEALTHCHECKS": "xids"}).probes
    assert checks_of({"DP_DISABLE_HEALTHCHECKS": "all", "DP_ENABLE_HEALTHCHECKS": "79"}).any


def test_a_word_that_means_nothing_is_said_and_passed_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    checks = checks_of({"DP_DISABLE_HEALTHCHECKS": "none,48,-3,٣"})

    assert checks == Checks(disabled=frozenset({48}))
    assert "'none' is not an Xid" in caplog.text
    assert "'-3' is not an Xid" in caplog.text
