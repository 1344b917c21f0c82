"""A process killed at every step of the books leaves nothing that its peers cannot put right."""

import signal
import subprocess
from pathlib import Path

import pytest

from tests.native.core.memory.books_page import PATIENCE, Page, open_page, pauses, peer
from vcuda_shim._shim import lib
from vcuda_shim.build import CFLAGS, NATIVE, compiler, includes, sources

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

LIMIT = 100
PROGRAM = Path(__file__).with_name("core_steps.c")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pure units with something between their steps."""
    folder = tmp_path_factory.mktemp("steps")
    (folder / "steps.h").write_text("void step_pass(void);\n#define SHIM_STEP() step_pass()\n")
    shim = NATIVE / "shim"
    files = [str(path) for path in (PROGRAM, *sources(shim / "core"))]
    options = [f"-include{folder / 'steps.h'}", *includes(NATIVE / "include", shim)]
    built = [*compiler(), *CFLAGS, *options, "-o", str(folder / "steps"), *files]
    subprocess.run(built, check=True, timeout=300)
    return folder / "steps"


def run_until(program: Path, page: Page, step: int) -> int:
    """The exit status of a process that dies at this step, if it comes to it."""
    process = subprocess.Popen([program, page.path, str(step)], stdin=subprocess.PIPE)
    slot = page.admit(process.pid)
    process.communicate(f"{slot}\n".encode(), timeout=600)
    return process.returncode


@pytest.mark.parametrize("dead_before", [False, True], ids=["alone", "taking back from another"])
def test_at_whatever_step_a_process_is_killed_the_others_get_all_of_it_back(
    program: Path, tmp_path: Path, *, dead_before: bool
) -> None:
    step, status = 1, -signal.SIGKILL
    while status != 0:
        page = open_page(tmp_path / str(step))
        books = page.enter()
        if dead_before:
            with peer(page, lambda mine: lib.books_reserve(mine, 0, 50, LIMIT)) as other:
                other.kill()
        status = run_until(program, page, step)
        assert status in (0, -signal.SIGKILL), f"step {step}: {status}"
        assert page.total() <= LIMIT
        before = pauses()

        assert lib.books_reserve(books, 0, LIMIT, LIMIT) == 0, f"step {step}"

        assert pauses() - before < PATIENCE / 4
        assert page.total() == LIMIT
        assert page.words.pending[0][books.slot] == 0
        step += 1

    assert step > (35 if dead_before else 20), "the sweep met hardly any step"
