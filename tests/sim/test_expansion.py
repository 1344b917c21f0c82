"""`$(NAME)` as Kubernetes expands it."""

import pytest

from gpumanager.sim.manifest.expansion import expand, expand_environment, verbatim


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("$(A)", "one"),
        ("-$(A)-$(B)-", "-one-two-"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$one"),
        ("$$$$(A)", "$$(A)"),
        ("$(NONE)", "$(NONE)"),
        ("$()", "$()"),
        ("$(A", "$(A"),
        ("$A $", "$A $"),
        ("$(A$(B)", "$(A$(B)"),
        ("$(EMPTY)", ""),
    ],
)
def test_references_are_expanded_as_a_kubelet_does(text: str, expanded: str) -> None:
    assert expand(text, {"A": "one", "B": "two", "EMPTY": ""}) == expanded


def test_a_variable_may_refer_to_those_above_it_and_to_the_plugins() -> None:
    rows = [("A", "$(B)"), ("B", "$(GPU)"), ("C", "$(B)-$(A)"), ("B", "x$(B)")]

    found = expand_environment(rows, {"GPU": "0"})

    assert found == {"A": "$(B)", "B": "x0", "C": "0-$(B)"}


@pytest.mark.parametrize("text", ["$(A)", "$$", "a$", "$$(A)"])
def test_what_is_verbatim_is_expanded_to_itself(text: str) -> None:
    assert expand(verbatim(text), {"A": "one"}) == text
