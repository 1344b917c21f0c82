"""The program behind `make mutants`: what it changes, and that it finds what no test looks at."""

from pathlib import Path

import pytest

from tests.mutants import (
    EQUIVALENT,
    JUDGES,
    ROOT,
    Mutant,
    NotJudged,
    choose,
    mutants_of,
    survivors,
)

CHANGES = [
    ("a < b", ["a >= b"]),
    ("a is b", ["a is not b"]),
    ("a in b", ["a not in b"]),
    ("a and b and c", ["a or b or c"]),
    ("not a", ["a"]),
    ("a - b", ["a + b"]),
    ("a & b", ["a | b"]),
    ("a += b", ["a -= b"]),
    ("a if b else c", ["c if b else a"]),
    ("f(a=True)", ["f(a=False)"]),
    ("f(1)", ["f(2)"]),
    ("a < 1", ["a >= 1", "a < 2"]),
    ("a < b < c", []),
    ("f(strict=True)", []),
    ("'text'", []),
    ("f'{a or b}'", []),
    ("def f(a: b | c) -> b | c:\n    pass", []),
    ("@dataclass(frozen=True, slots=True)\nclass A:\n    pass", []),
    ("if not a:  # pragma: no cover\n    f(1)", []),
]


def test_an_expression_has_the_mutants_that_can_change_a_decision() -> None:
    assert {one: [mutant.source for mutant in mutants_of(one)] for one, _ in CHANGES} == dict(
        CHANGES
    )


def test_a_mutant_says_where_it_is_and_what_it_changes() -> None:
    (mutant,) = mutants_of("\nf(a, b=1)\n")

    assert mutant == Mutant(2, "b=1", "b=2", "f(a, b=2)")


def test_the_same_seed_chooses_the_same_mutants() -> None:
    source = "\n".join(f"f({number})" for number in range(50))

    assert choose("m", source, 5, seed=1) == choose("m", source, 5, seed=1)
    assert choose("m", source, 5, seed=1) != choose("m", source, 5, seed=2)
    assert len(choose("m", source, 100, seed=1)) == 50


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A module of two rules, of which a test looks at one."""
    (tmp_path / "rules.py").write_text(
        "def tall(a):\n    return a > 180\n\n\ndef old(a):\n    return not a < 65\n"
    )
    (tmp_path / "test_rules.py").write_text(
        "from rules import tall\n\n\ndef test_tall():\n    assert tall(181) and not tall(180)\n"
    )
    return tmp_path


def test_a_mutant_survives_where_no_test_looks(tree: Path) -> None:
    source = (tree / "rules.py").read_text()

    found = survivors(tree, "rules.py", [*mutants_of(source)], ["test_rules.py"])

    assert [f"{one.line}: {one.change}" for one in found] == [
        "6: not a < 65  →  a < 65",
        "6: a < 65  →  a >= 65",
        "6: a < 65  →  a < 66",
    ]
    assert (tree / "rules.py").read_text() == source


def test_tests_that_fail_without_a_mutant_judge_nothing(tree: Path) -> None:
    (tree / "test_rules.py").write_text("def test_it():\n    assert False\n")

    with pytest.raises(NotJudged, match=r"test_rules.py fail on rules.py as it is"):
        survivors(tree, "rules.py", [], ["test_rules.py"])


def test_every_module_that_decides_has_its_judges() -> None:
    packages = ("grants", "deviceplugin/admission", "deviceplugin/identity")
    found = [one for name in packages for one in (ROOT / "gpumanager" / name).glob("[!_]*.py")]
    modules = {str(one.relative_to(ROOT)) for one in found}

    assert set(JUDGES) == {*modules, "gpumanager/dra/plan.py"}
    assert [one for tests in JUDGES.values() for one in tests if not (ROOT / one).exists()] == []


def test_a_change_that_counts_as_equivalent_exists() -> None:
    gone = {
        module: set(changes) - {one.change for one in mutants_of((ROOT / module).read_text())}
        for module, changes in EQUIVALENT.items()
    }

    assert not any(gone.values()), gone
