"""Programs under leak sanitizers: what the shim keeps is no leak of theirs or their children's."""

from pathlib import Path

import pytest

from gpumanager.units import GIB
from tests.native.core import sanitized
from tests.native.core.sanitized import UNMAPPABLE, SanitizerAbsentError
from tests.native.gpu_node import GpuNode
from tests.native.shim_container import INCLUDE, Container

pytestmark = pytest.mark.namespaces

LOST = """
#include <stdlib.h>
int main(void) { void *volatile lost = malloc(64); lost = 0; return lost != 0; }
"""


@pytest.fixture
async def container(node: GpuNode) -> Container:
    return await node.container({0: GIB})


async def ended(container: Container, program: Path) -> tuple[int, list[str]]:
    """What the program ended with and what it said."""
    suppressions = container.work / "suppressions"
    suppressions.write_text("leak:libvcuda-real.so.1\n")  # the simulated driver's own
    options = f"suppressions={suppressions}:print_suppressions=0"
    lines: list[str] = []
    process = await container.start([str(program)], lines.append, LSAN_OPTIONS=options)
    try:
        status = await process.wait()
    finally:
        await process.close()
    if any(UNMAPPABLE in line for line in lines):
        pytest.skip("this kernel places memory where the compiler's runtime does not expect it")
    return status, lines


def built(container: Container, source: Path, sanitizer: str) -> Path:
    link = [f"-I{INCLUDE}", f"-L{container.libraries}", "-l:libcuda.so"]
    try:
        program = sanitized.build(
            container.work / source.stem, [source], sanitizer, ["-Wl,--no-as-needed", *link]
        )
    except SanitizerAbsentError:
        pytest.skip(f"the compiler comes without -fsanitize={sanitizer}")
    return program


@pytest.mark.parametrize("sanitizer", ["leak", "address"])
async def test_a_program_under_a_leak_sanitizer_ends_as_it_would_without_the_shim(
    container: Container, sanitizer: str
) -> None:
    lost = container.work / "lost.c"
    lost.write_text(LOST)

    found = await ended(container, built(container, lost, sanitizer))
    kept = await ended(container, built(container, Path(__file__).with_name("leaks.c"), sanitizer))

    assert found[0] != 0
    assert any("detected memory leaks" in line for line in found[1])
    assert kept == (0, []), "\n".join(kept[1])
