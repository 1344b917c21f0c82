"""Xids: whose fault they are, and which of them count."""

import pytest

from gpumanager.gpu.health.xids import KNOWN_XIDS, Checks, Severity, checks_of, classify

PASSED_OVER_BY_NVIDIA = (13, 31, 43, 45, 68, 109)
"""Application errors of k8s-device-plugin (internal/rm/health.go)."""


# What NVIDIA's catalog says is to be done at once.
RESTART_APP = (8, 11, 13, 25, 31, 32, *range(39, 42), 60, *range(68, 73), *range(75, 78), 80)
RESTART_APP_2 = (*range(82, 87), 88, 89, 94, *range(96, 106), *range(126, 136), 139)
IGNORE = (14, 37, 38, 44, 63, 66, 67, 92, 93, 106, 107, 108, 121, 141, 152, 153, 157, 160, 161)
RESET_GPU = (46, 62, 64, 95, 110, 119, 120, 136, 140, 143, 155, 156, 158)
BY_MORE_THAN_THE_CODE = (78, 142, *range(144, 151), 159, 167, 168, 169)


@pytest.mark.parametrize(
    ("codes", "severity"),
    [
        (PASSED_OVER_BY_NVIDIA, Severity.APPLICATION),
        ((*RESTART_APP, *RESTART_APP_2), Severity.APPLICATION),
        ((*RESET_GPU, 48, 74, 171, 172, 54, 61, 79, 151), Severity.FATAL),
        ((*IGNORE, 154, *range(162, 166)), Severity.NOTICE),
        (BY_MORE_THAN_THE_CODE, Severity.TRANSIENT),
    ],
    ids=[
        "passed over by NVIDIA's plugin",
        "a restart of the program ends it",
        "it needs a reset, a reboot or a technician",
        "nothing has to be done",
        "the code alone does not decide",
    ],
)
def test_how_severe_a_code_is_follows_from_what_is_to_be_done_about_it(
    codes: tuple[int, ...], severity: Severity
) -> None:
    assert {code: classify(code).severity for code in codes} == dict.fromkeys(codes, severity)


def test_a_code_that_nobody_knows_harms_but_only_for_a_time() -> None:
    assert classify(4711).severity is Severity.TRANSIENT
    assert str(classify(4711)) == "Xid 4711 (not known to this agent)"


def test_no_code_is_in_two_classes() -> None:
    assert len(set().union(*KNOWN_XIDS.values())) == sum(map(len, KNOWN_XIDS.values()))


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
        ({"DP_DISABLE_HEALTHCHECKS": "all", "DP_ENABLE_HEALTHCHECKS": "79"},
         [None, None, "fatal", None]),
        ({"DP_DISABLE_HEALTHCHECKS": "48,79", "DP_ENABLE_HEALTHCHECKS": "all"},
         ["transient", "fatal", "fatal", "transient"]),
    ],
)  # fmt: skip
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
    assert "ignoring 'none': write an Xid" in caplog.text
    assert "ignoring '-3': write an Xid" in caplog.text
