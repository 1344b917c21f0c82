"""The cases of the benchmark cover what they say, and promise no more than one GPU has."""

from collections.abc import Iterator
from itertools import product

import pytest
from compute.cases import KERNELS, PATTERNS, SETTLING, Case, Phase
from compute.grid import QUICK, REAL, TARGETS, alone, cases, chosen, compared

EVERY = [*cases(), *compared()]


def phases() -> Iterator[tuple[Case, Phase]]:
    return ((case, phase) for case in EVERY for phase in case.phases)


def test_every_pair_of_promise_length_and_pattern_is_run() -> None:
    triples = [tuple(case.name.split("/")[1:]) for case in alone()]

    lengths, patterns, promises = (set(column) for column in zip(*triples, strict=True))
    assert {(k, p) for k, p, _ in triples} == set(product(KERNELS, PATTERNS))
    assert {(k, t) for k, _, t in triples} == set(product(lengths, promises))
    assert {(p, t) for _, p, t in triples} == set(product(patterns, promises))
    assert len(triples) == len(KERNELS) * len(TARGETS)


def test_no_two_cases_have_one_name() -> None:
    names = [case.name for case in EVERY]

    assert sorted(set(names)) == sorted(names)


def test_a_case_promises_what_one_gpu_has(subtests: pytest.Subtests) -> None:
    for case in EVERY:
        with subtests.test(case.name):
            for phase in case.phases:
                assert sum(phase.due.values()) <= 100
            assert len({actor.name for actor in case.actors}) == len(case.actors)


def test_a_phase_lasts_long_enough_to_be_judged(subtests: pytest.Subtests) -> None:
    for case, phase in phases():
        with subtests.test(case.name):
            judged = phase.end - phase.begin - phase.bars.skip
            assert judged >= min(case.window, 1.0)
            assert 0 <= phase.begin < phase.end <= case.seconds
            assert set(phase.due) <= {actor.name for actor in case.actors}


def test_who_is_due_something_works_during_all_of_the_phase(subtests: pytest.Subtests) -> None:
    for case, phase in phases():
        with subtests.test(case.name):
            for actor in case.actors:
                begin, end = actor.begin, actor.end or case.seconds
                working = begin <= phase.begin and phase.end <= end
                absent = phase.end <= begin or end <= phase.begin
                assert working or actor.name not in phase.due
                assert working or absent


def test_bursts_ask_for_less_than_the_promise() -> None:
    for case in chosen(["one/*/burst/*"], cases()):
        (actor,) = case.actors
        words = dict(word.split("=") for word in actor.text.split())
        asked = float(words["kernel"][:-2]) * int(words["count"]) / float(words["every"][:-2])
        assert 0.75 * actor.cores <= 100 * asked <= 0.85 * actor.cores


def test_a_steady_case_is_judged_over_two_windows_at_least() -> None:
    for case in alone():
        assert case.seconds - SETTLING >= 2 * case.window


def test_a_preset_names_cases_that_exist() -> None:
    assert [one for one in (*QUICK, *REAL) if not chosen([one], cases())] == []


def test_a_name_that_fits_nothing_chooses_nothing() -> None:
    assert chosen(["no/such"], cases()) == []
    assert chosen([], cases()) == cases()
