"""What programs in a container are linked with: every function by name, and all goes through.

Each program is a process of its own: a process knows one library of a name.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from driver_libraries import lay_out

from tests.native.table.hook_table import declared, hooked, recorded, unhooked
from vcuda_shim import LINK_CUDA, LINK_NVML, SIMULATED_DRIVER


def compiled(target: Path, source: str, *flags: str) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    command = ["gcc", "-std=gnu11", "-x", "c", "-", "-x", "none", "-o", str(target), *flags]
    subprocess.run(command, input=source, check=True, text=True, capture_output=True, timeout=300)
    return target


def before(folder: Path, link: Path, source: str, script: str, *words: str) -> Any:
    """What a program tells that has the link library with this source in the shim's place."""
    shim = "libvcuda-shim.so.1" if link == LINK_CUDA else "libvcuda-shim-ml.so.1"
    shutil.copy2(link, folder / link.name)
    compiled(folder / shim, source, "-shared", "-fPIC", f"-Wl,-soname,{shim}")
    prelude = "import ctypes, json, sys\nlibrary, names = ctypes.CDLL(sys.argv[1]), sys.argv[2:]\n"
    command = [sys.executable, "-c", prelude + script, str(folder / link.name), *words]
    finished = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    return json.loads(finished.stdout)


def known(library: str) -> list[str]:
    names = {*hooked(library), *unhooked(library)}
    return sorted(name for name in names if not name.startswith("cudbg"))


def numbered(names: list[str]) -> str:
    """A source in which each function answers with its place."""
    return "".join(f"int {name}(void) {{ return {n}; }}\n" for n, name in enumerate(names))


@pytest.mark.parametrize(("link", "library"), [(LINK_CUDA, "cuda"), (LINK_NVML, "nvml")])
def test_each_function_goes_to_the_one_of_its_name_at_the_first_call_and_after(
    tmp_path: Path, link: Path, library: str
) -> None:
    names = known(library)

    answers = before(
        tmp_path,
        link,
        numbered(names),
        "print(json.dumps([[getattr(library, name)() for name in names] for _ in range(2)]))",
        *names,
    )

    assert answers == [list(range(len(names)))] * 2


MANY_ARGUMENTS = """
struct handle { char bytes[64]; };
unsigned long cuLaunchKernel(unsigned long a, unsigned b, unsigned c, unsigned d, unsigned e,
        unsigned f, unsigned g, unsigned h, unsigned long i, unsigned long j, unsigned long k) {
    return a + 10ul * (b + 10ul * (c + 10ul * (d + 10ul * (e + 10ul * (f + 10ul * (g + 10ul *
        (h + 10ul * (i + 10ul * (j + 10ul * k)))))))));
}
int cuParamSetf(void *function, int offset, float value) { return offset + (int)(value * 4); }
int cuIpcOpenMemHandle_v2(unsigned long *address, struct handle handle, unsigned flags) {
    *address = 77;
    return handle.bytes[0] + 2 * handle.bytes[63] + (int)flags;
}
"""


def test_every_kind_of_argument_arrives_as_it_was_given(tmp_path: Path) -> None:
    told = before(
        tmp_path,
        LINK_CUDA,
        MANY_ARGUMENTS,
        """
library.cuLaunchKernel.restype = ctypes.c_uint64
library.cuLaunchKernel.argtypes = [ctypes.c_uint64] * 11
library.cuParamSetf.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_float]
class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_byte * 64)]
handle, address = Handle(), ctypes.c_uint64()
handle.bytes[0], handle.bytes[63] = 5, 7
print(json.dumps([[
    library.cuLaunchKernel(1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2),
    library.cuParamSetf(None, 3, 2.5),
    library.cuIpcOpenMemHandle_v2(ctypes.byref(address), handle, 100),
    address.value,
] for _ in range(2)]))
""",
    )

    assert told == [[21987654321, 13, 119, 77]] * 2


@pytest.mark.parametrize(
    ("link", "name", "code"),
    [(LINK_CUDA, "cuLogsCurrent", 500), (LINK_NVML, "nvmlDeviceGetPdi", 13)],
)
def test_a_function_the_driver_lacks_says_that_it_is_not_found(
    tmp_path: Path, link: Path, name: str, code: int
) -> None:
    script = f"print(json.dumps([library.{name}() for _ in range(2)]))"

    assert before(tmp_path, link, "int other;", script) == [code, code]


def test_a_program_with_every_function_of_the_driver_links_and_starts(tmp_path: Path) -> None:
    (cuda,) = SIMULATED_DRIVER.glob("libcuda.so.*")
    (nvml,) = SIMULATED_DRIVER.glob("libnvidia-ml.so.*")
    libraries = lay_out(tmp_path / "lib", cuda, nvml)
    exports = recorded("libcuda-555.58.02") + recorded("libnvidia-ml-555.58.02")
    names = [name for name, kind in exports if kind == "FUNC" and not name.startswith("cudbg")]
    source = "".join(f"int {name}(void);\n" for name in names)
    table = ", ".join(names)
    source += f"void *table[] = {{{table}}};\nint main(void) {{ return table[3] == 0; }}\n"

    program = compiled(tmp_path / "all", source, f"-L{libraries}", "-lcuda", "-lnvidia-ml")

    environment = {"LD_LIBRARY_PATH": str(libraries), "LD_BIND_NOW": "1"}
    finished = subprocess.run(
        [program], env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert (finished.returncode, finished.stderr) == (0, "")


def test_a_program_with_every_function_that_headers_declare_links_and_starts(
    tmp_path: Path,
) -> None:
    """By CUDA 12.8 to 13.5: what the driver lacks is looked up when it is called, as without us.

    Linked where no driver is known, as with the stubs of a toolkit.
    """
    (cuda,) = SIMULATED_DRIVER.glob("libcuda.so.*")
    (nvml,) = SIMULATED_DRIVER.glob("libnvidia-ml.so.*")
    libraries = lay_out(tmp_path / "lib", cuda, nvml)
    names = sorted(declared("cuda") | declared("nvml"))
    source = "".join(f"int {name}(void);\n" for name in names)
    calls = " ".join(f"{name}();" for name in names)
    source += f"int main(int count, char **words) {{ if (count > 1) {{ {calls} }} return !words; }}"

    linking = [f"-L{LINK_CUDA.parent}", "-Wl,-z,lazy,--allow-shlib-undefined"]
    linking += ["-lcuda", "-lnvidia-ml"]
    program = compiled(tmp_path / "all", source, *linking)

    environment = {"LD_LIBRARY_PATH": str(libraries)}
    finished = subprocess.run(
        [program], env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert len(names) > 1150
    assert (finished.returncode, finished.stderr) == (0, "")


FIRST_CALLS = """
import threading
gate, answers = threading.Barrier(8), []
def call():
    gate.wait()
    answers.append([getattr(library, name)() for name in names])
threads = [threading.Thread(target=call) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(json.dumps(answers))
"""


def test_first_calls_by_many_threads_at_once_all_arrive(tmp_path: Path) -> None:
    names = known("cuda")

    answers = before(tmp_path, LINK_CUDA, numbered(names), FIRST_CALLS, *names)

    assert answers == [list(range(len(names)))] * 8
