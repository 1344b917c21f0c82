"""What mutants of C change, and that a library built with them finds what no test looks at."""

from pathlib import Path

import pytest

from tests.mutants import SURVIVED, UNREACHED, judge, mutants_of
from tests.native.mutants import Source
from tests.test_mutants import copy_program

CHANGES = [
    ("return a < b + c;", ["a >= b + c", "b - c"]),
    ("return a->b == c && d || e;", ["a->b == c && d && e", "a->b == c || d", "a->b != c"]),
    ("return a - b - c;", ["a - b + c", "a + b"]),
    ("return !a->b(c) == d;", ["!a->b(c) != d", "a->b(c)"]),
    ("if (a)\n        *b += c;", ["*b -= c"]),
    ("if (a) {\n    }\n    b |= c;", ["b &= c"]),
    (
        "return (struct one){0}.two == a;",
        ["(struct one){0}.two != a", "return (struct one){1}.two == a;"],
    ),
    ("a = b & ~c;", ["b | ~c"]),
    ("a = &b;", []),
    ("a = -b * c;", []),
    ("return a ? b : c;", ["!(a)"]),
    ("return a == b ? c : d;", ["a != b"]),
    ("return a ? b : c < d ? e : f;", ["!(a)", "c >= d"]),
    ("f(a, 0x0fu);", ["f(a, 0x10u);"]),
    ("f(07);", ["f(010);"]),
    ("f(a[b - c], (d)-e, true);", ["b + c", "false"]),
    ("static int a = 1;", []),
    ("switch (a) {\n    case 1:\n        return b;\n    }", []),
    ('f("a < b"); /* a < b */', []),
    ("f(1.5);", []),
]


@pytest.mark.parametrize(("body", "changed"), CHANGES)
def test_an_expression_in_a_function_has_the_mutants_that_can_change_a_decision(
    body: str, changed: list[str]
) -> None:
    source = f"#define ONE (1 + 0)\nint x[1 + 1];\nint f(void)\n{{\n    {body}\n}}\n"

    assert [place.after for place in Source(source).places] == changed


def test_each_chosen_mutant_has_its_switch_and_no_line_moves() -> None:
    source = Source("int f(int a)\n{\n    return a < 3 &&\n           !a;\n}\n")

    assert source.with_switches({0: 4, 2: 7, 3: 9}, Path("/switch.h")).splitlines() == [
        '#include "/switch.h"',
        "#line 1",
        "int f(int a)",
        "{",
        "    return (seeded_mutant(4) ? ((a < 3) || (!a)) : (a < (seeded_mutant(7) ? (4) : (3)) &&",
        "           (seeded_mutant(9) ? (!!(a)) : (!a))));",
        "}",
    ]


BUILD = """
import os, subprocess
CFLAGS = [
    "-Wall",
    "-Wextra",
    "-Werror",
]
built = subprocess.run(
    ["gcc", "-D_GNU_SOURCE", *CFLAGS, "-shared", "-fPIC", "-o", "rules.so", "native/shim/rules.c"]
)
raise SystemExit(built.returncode)
"""
RULES = """\
int tall(int a)
{
    return a > 180;
}
const char *behind(const char *a)
{
    return a + 1;
}
int old(int a)
{
    return !(a < 65);
}
long between(const char *a, const char *b)
{
    return a - b;
}
"""
TESTS = """
import ctypes, subprocess, sys


def test_rules():
    rules = ctypes.CDLL("./rules.so")
    assert rules.tall(181) and not rules.tall(180)


def test_in_a_process():
    program = "import ctypes; ctypes.CDLL('./rules.so').old(3)"
    assert subprocess.run([sys.executable, "-c", program], env={}).returncode == 0
"""


def judged(tree: Path) -> dict[str, str]:
    """What becomes of each mutant of RULES."""
    copy_program(tree)
    files = {"vcuda_shim/build.py": BUILD, "native/shim/rules.c": RULES, "test_rules.py": TESTS}
    for name, text in files.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(text)
    found = judge(tree, mutants_of(RULES, "native/shim/rules.c"), ["test_rules.py"])
    return {str(one).partition(":")[2]: verdict for one, verdict in found.items()}


def test_a_mutant_survives_where_no_test_looks_and_is_none_where_it_does_not_compile(
    tmp_path: Path,
) -> None:
    assert judged(tmp_path) == {
        "3: [0] a > 180  →  a <= 180": "test_rules.py::test_rules",
        "3: [1] return a > 180;  →  return a > 181;": "test_rules.py::test_rules",
        "7: [2] a + 1  →  a - 1": UNREACHED,
        "7: [3] return a + 1;  →  return a + 2;": UNREACHED,
        "11: [4] !(a < 65)  →  (a < 65)": SURVIVED,
        "11: [5] a < 65  →  a >= 65": SURVIVED,
        "11: [6] return !(a < 65);  →  return !(a < 66);": SURVIVED,
    }
