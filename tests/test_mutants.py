"""The program behind `make mutants`: what it changes, and that it finds what no test looks at."""

import shutil
from pathlib import Path

import pytest

from tests.mutants import (
    EQUIVALENT,
    JUDGES,
    ROOT,
    SURVIVED,
    Mutant,
    NotJudged,
    choose,
    judge,
    mutants_of,
    with_switches,
)
from tests.native import mutants as native

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
    ("f(a=True)", ["a=False"]),
    ("f(1)", ["f(2)"]),
    ("a < 1", ["a >= 1", "a < 2"]),
    ("a < b < c", []),
    ("f(strict=True)", []),
    ("'text'", []),
    ("f'{a or b}'", []),
    ("def f(a: b | c) -> b | c:\n    pass", []),
    ("match a:\n    case 1:\n        pass", []),
    ("@dataclass(frozen=True, slots=True)\nclass A:\n    pass", []),
    ("if not a:  # pragma: no cover\n    f(1)", []),
]


@pytest.mark.parametrize(("source", "changed"), CHANGES)
def test_an_expression_has_the_mutants_that_can_change_a_decision(
    source: str, changed: list[str]
) -> None:
    assert [mutant.after for mutant in mutants_of(source)] == changed


def test_a_mutant_says_where_it_is_and_what_it_changes() -> None:
    (mutant,) = mutants_of("\nf(a, b=1)\n", "m.py")

    assert mutant == Mutant("m.py", 2, "b=1", "b=2", 0)


def test_each_chosen_mutant_has_its_switch() -> None:
    source = '"""Rules."""\nif a and b < 1:\n    c += 1\n'

    assert with_switches(source, {1: 8, 3: 7}).splitlines() == [
        '"""Rules."""',
        "import seeded_mutants",
        "if a and (b >= 1 if seeded_mutants.on(8) else b < 1):",
        "    if seeded_mutants.on(7):",
        "        c -= 1",
        "    else:",
        "        c += 1",
    ]


def test_the_same_seed_chooses_the_same_mutants() -> None:
    sources = {"m": "\n".join(f"f({number})" for number in range(50))}

    assert choose(sources, 5, seed=1) == choose(sources, 5, seed=1)
    assert choose(sources, 5, seed=1) != choose(sources, 5, seed=2)
    assert len(choose(sources, 100, seed=1)) == 50


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A module of three rules, of which a test looks at one, and a constant."""
    (tmp_path / "rules.py").write_text(
        "ADULT = 18\n\n\ndef tall(a):\n    return a > 180\n\n\n"
        "def old(a):\n    return not a < 65\n\n\ndef adult(a):\n    return a == ADULT\n"
    )
    (tmp_path / "test_rules.py").write_text(
        "from rules import adult, old, tall\n\n\n"
        "def test_rules():\n    assert tall(181) and not tall(180) and adult(18)\n\n\n"
        "def test_old():\n    old(3)\n"
    )
    copy_program(tmp_path)
    return tmp_path


def copy_program(tree: Path) -> None:
    for name in ("tests/mutants.py", "tests/native/mutants.py"):
        (tree / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tree / name)


def test_a_mutant_survives_where_no_test_looks(tree: Path) -> None:
    source = (tree / "rules.py").read_text()

    found = judge(tree, mutants_of(source, "rules.py"), ["test_rules.py"])

    assert {str(one): verdict for one, verdict in found.items()} == {
        "rules.py:1: [0] ADULT = 18  →  ADULT = 19": "test_rules.py::test_rules",
        "rules.py:5: [1] a > 180  →  a <= 180": "test_rules.py::test_rules",
        "rules.py:5: [2] a > 180  →  a > 181": "test_rules.py::test_rules",
        "rules.py:9: [3] not a < 65  →  a < 65": SURVIVED,
        "rules.py:9: [4] a < 65  →  a >= 65": SURVIVED,
        "rules.py:9: [5] a < 65  →  a < 66": SURVIVED,
        "rules.py:13: [6] a == ADULT  →  a != ADULT": "test_rules.py::test_rules",
    }


def test_tests_that_fail_without_a_mutant_judge_nothing(tree: Path) -> None:
    (tree / "test_rules.py").write_text("def test_it():\n    assert False\n")

    with pytest.raises(NotJudged, match=r"no test of test_rules.py passes without a mutant"):
        judge(tree, mutants_of("f(1)", "rules.py"), ["test_rules.py"])


def test_every_package_has_its_judges() -> None:
    packages = {path.parent.name for path in (ROOT / "gpumanager").glob("*/__init__.py")}

    assert {name for name in JUDGES if name not in native.STEPS} == packages
    assert set(native.STEPS) < set(JUDGES)
    assert [one for tests in JUDGES.values() for one in tests if not (ROOT / one).exists()] == []


def test_a_change_that_counts_as_equivalent_exists() -> None:
    gone = {
        module: set(changes) - {one.change for one in mutants_of((ROOT / module).read_text())}
        for module, changes in EQUIVALENT.items()
    }

    assert not any(gone.values()), gone
