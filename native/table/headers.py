"""What NVIDIA's headers declare, as facts: names and numbers, by version.

    python native/table/headers.py FOLDER

FOLDER has one folder for each header and version: `cuda-13.4`, `nvml-13.5`, with cuda.h or nvml.h
somewhere inside (`make headers` fetches them). The answer goes to `cuda.headers` and `nvml.headers`
beside this file. The headers themselves are NVIDIA's and stay out of the repository.

A function is a name that a program can be linked with: the compiler expands the headers' #defines,
with and without default streams per thread, and with the functions of before that the headers hide.
Of an enumeration and of a struct each member counts, with its value or its place, unless
`<library>.arguments` says of the type as a whole that the shim has nothing to do with it.
"""

import re
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent

HEAD = """# Names and numbers that NVIDIA's headers declare, under the versions that have them.
# Made by `make headers`."""

MODES = {
    "cuda": ((), ("-DCUDA_API_PER_THREAD_DEFAULT_STREAM",), ("-D__CUDA_API_VERSION_INTERNAL",)),
    "nvml": ((), ("-DNVML_NO_UNVERSIONED_FUNC_DEFS",)),
}
"""How a program may compile the headers of a library."""

BESIDE = {"cuda": ("cudaGL.h", "cudaEGL.h", "cudaVDPAU.h"), "nvml": ()}
"""Headers of functions of the same library, where they lie beside its own."""

FOREIGN = ("GL/gl.h", "EGL/egl.h", "EGL/eglext.h", "vdpau/vdpau.h")
"""What those include; empty files do, for nobody asks for types from there."""

FUNCTION = re.compile(r"(?<![\w*])((?:cu|nvml)[A-Z]\w*)\s*\([^(){}]*(?:\([^()]*\)[^(){}]*)*\)\s*;")
TYPE = re.compile(r"typedef\s+(enum|struct|union)\s*(?:__\w+__\s*\(\([^()]*\)\)\s*)?(\w*)\s*\{")
NESTED = re.compile(r"\s*(?:struct|union)\s*\w*\s*\{(.*)\}\s*(\w*)\s*(\[.*\])?\s*", re.DOTALL)
TAG = re.compile(r"_(st|enum|union|struct|t)$")
OURS = ("CU", "cu", "cl_", "nvml")
"""How types begin that are not the C library's."""

CONSTANT = re.compile(r"#define (CU(?:DA)?_\w+) (?=\S)(?!.*__)")
CONSTANTS = "constants"
"""What stands for the type of values that are #defines; CUDA_VERSION is none."""

DECLARATOR = re.compile(r"\(\s*\*+\s*(\w+)\s*\)|(\w+)\s*(?:\[[^\]]*\]\s*)*(?::\s*\d+\s*)?$")


@dataclass(frozen=True, slots=True)
class Type:
    """An enumeration or a struct. spelled: in C, "" for an enumeration."""

    name: str
    spelled: str
    members: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Header:
    """What one version declares.

    functions: names to link with. types: those of which nothing more counts.
    members: of the others, by type: `NAME=value`, or `field=place:bytes`.
    """

    functions: frozenset[str]
    types: frozenset[str] = frozenset()
    members: Mapping[str, frozenset[str]] = field(default_factory=dict)

    @property
    def names(self) -> frozenset[str]:
        """What stands in the tables for the members: a value by itself, a field with its type."""
        return frozenset(
            f"{name}.{member}" if ":" in number else member
            for name, of in self.members.items()
            for member, _, number in (fact.partition("=") for fact in of)
        )


def functions(text: str) -> frozenset[str]:
    """The names that preprocessed text declares."""
    return frozenset(match[1] for match in FUNCTION.finditer(text))


def types(text: str) -> Iterator[Type]:
    """The enumerations and structs that preprocessed text defines, with what they have inside."""
    for match in TYPE.finditer(text):
        body, end = _braces(text, match.end())
        name = match[2] or re.match(r"[\s\w()]*?(\w+)\s*;", text[end:])[1]  # type: ignore[index]
        if not name.startswith(OURS):
            continue
        if match[1] == "enum":
            values = (part.split("=")[0].strip() for part in body.split(","))
            yield Type(TAG.sub("", name), "", tuple(value for value in values if value))
        else:
            spelled = f"{match[1]} {name}" if match[2] else name
            yield Type(TAG.sub("", name), spelled, tuple(_fields(body)))


def _braces(text: str, start: int) -> tuple[str, int]:
    """What stands before the brace that closes the one before `start`, and where it ends."""
    depth = 1
    for place in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if depth == 0:
            return text[start:place], place + 1
    raise SystemExit(f"no end of {text[start - 40 : start]!r}")


def _fields(body: str) -> Iterator[str]:
    """The fields of a struct, those of nested ones as `outer.inner` or `outers[0].inner`."""
    for statement in _statements(body):
        nested = NESTED.fullmatch(statement)
        if nested is None:
            for declarator in statement.split(",") if "(" not in statement else [statement]:
                match = DECLARATOR.search(declarator.strip())
                if match is not None:
                    yield match[1] or match[2]
            continue
        name = nested[2]
        if name:
            yield name
        outer = f"{name}[0]." if nested[3] else f"{name}." if name else ""
        yield from (outer + inner for inner in _fields(nested[1]))


def _statements(body: str) -> Iterator[str]:
    depth = start = 0
    for place, letter in enumerate(body):
        depth += {"{": 1, "}": -1}.get(letter, 0)
        if letter == ";" and depth == 0:
            if body[start:place].strip():
                yield body[start:place]
            start = place + 1


def numbered(header: Path, found: Sequence[Type]) -> Iterator[tuple[str, str]]:
    """Each member with its number, by its type's name, as the compiler has it."""
    lines = [
        f'#include "{header}"',
        "#include <stddef.h>",
        "#include <stdio.h>",
        "int main(void) {",
    ]
    for one in found:
        for member in one.members:
            place = f"(({one.spelled} *)0)->{member}"
            number = (
                f'"%zu:%zu\\n", offsetof({one.spelled}, {member}), sizeof({place})'
                if one.spelled
                else f'"%lld\\n", (long long){member}'
            )
            lines.append(f'printf("{one.name} {member}=" {number});')
    with tempfile.TemporaryDirectory() as folder:
        program = f"{folder}/numbers"
        _run(["gcc", "-w", "-x", "c", "-", "-o", program], "\n".join([*lines, "}"]))
        printed = _run([program], "")
    for line in printed.splitlines():
        name, member = line.split()
        yield name, member


def preprocessed(header: Path, *options: str) -> str:
    return _run(["gcc", "-E", "-P", *options, str(header)], "")


def _run(command: Sequence[str], text: str) -> str:
    finished = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if finished.returncode != 0:
        raise SystemExit(f"{command[0]}: {finished.stderr[:2000]}")
    return finished.stdout


def read(library: str, header: Path, whole: Collection[str] = ()) -> Header:
    """What a header declares. whole: types of which nothing more counts."""
    found: set[str] = set()
    with tempfile.TemporaryDirectory() as folder:
        for name in FOREIGN:
            (Path(folder) / name).parent.mkdir(exist_ok=True)
            (Path(folder) / name).touch()
        beside = (header.with_name(name) for name in BESIDE[library])
        files = [str(header), *(str(path) for path in beside if path.exists())]
        source = "".join(f'#include "{file}"\n' for file in files)
        compiler = ["gcc", "-E", "-P", "-x", "c", "-", f"-I{header.parent}", f"-I{folder}"]
        for mode in MODES[library]:
            found |= functions(_run([*compiler, *mode], source))
        text = _run(compiler, f'#include "{header}"\n')
        macros = _run([*compiler, "-dM"], f'#include "{header}"\n')
    constants = (match[1] for match in map(CONSTANT.match, macros.splitlines()) if match)
    values = tuple(sorted(name for name in constants if name != "CUDA_VERSION"))
    defined = [*types(text), Type(CONSTANTS, "", values)]
    members: dict[str, set[str]] = {}
    for name, member in numbered(header, [one for one in defined if one.name not in whole]):
        members.setdefault(name, set()).add(member)
    return Header(
        frozenset(found),
        frozenset(one.name for one in defined if one.name in whole),
        {name: frozenset(of) for name, of in members.items()},
    )


def unknown(header: Header, functions: Collection[str], arguments: Collection[str]) -> list[str]:
    """What a header declares that is in no table: functions, values, fields and types."""
    others = header.names | header.types
    return sorted(header.functions.difference(functions) | others.difference(arguments))


def write(headers: Mapping[str, Header]) -> str:
    """All versions of one library's header as text, which parse() reads: what they declare, under
    the versions that do."""
    order = list(headers)
    facts: dict[tuple[str, str], dict[str, list[str]]] = {}
    for version, header in headers.items():
        kinds = [("functions", "", header.functions), ("types", "", header.types)]
        kinds += [("members", name, of) for name, of in header.members.items()]
        for kind, name, of in kinds:
            for fact in of:
                facts.setdefault((kind, name), {}).setdefault(fact, []).append(version)
    lines = [HEAD, f"versions {' '.join(order)}"]
    for (kind, name), of in sorted(facts.items()):
        groups: dict[str, list[str]] = {}
        for fact, versions in of.items():
            groups.setdefault(" ".join(_ranges(order, versions)), []).append(fact)
        for spoken, known in sorted(groups.items(), key=lambda item: _first(order, item[0])):
            lines.append(" ".join(part for part in (kind, name, spoken) if part))
            lines += _wrapped(sorted(known, key=_by_number), variants=kind == "functions")
    return "\n".join(lines) + "\n"


def _first(order: Sequence[str], spoken: str) -> tuple[int, int, str]:
    """What came first stands first, and what stayed longest."""
    first, _, last = spoken.partition("-")
    return order.index(first.split()[0]), -order.index((last or first).split()[0]), spoken


def _by_number(fact: str) -> tuple[int, str]:
    """Values and places in their own order, names by the alphabet."""
    number = fact.partition("=")[2].partition(":")[0]
    return int(number or 0), fact


def _ranges(order: Sequence[str], versions: Collection[str]) -> Iterator[str]:
    """`12.8-13.0 13.4` for these four of all."""
    run: list[str] = []
    for version in [*order, ""]:
        if version in versions:
            run.append(version)
            continue
        if run:
            yield run[0] if len(run) == 1 else f"{run[0]}-{run[-1]}"
        run = []


def _wrapped(words: Iterable[str], *, variants: bool, width: int = 100) -> Iterator[str]:
    """Lines of words. variants: `cuMemAlloc _v2` are two, the end of the second alone."""
    line, base = "  ", ""
    for word in words:
        variant = variants and base != "" and word.startswith(f"{base}_")
        shown = word.removeprefix(base) if variant else f" {word}"
        base = base if variant else word
        if len(line) + len(shown) + 1 > width:
            yield line
            line, shown, base = "  ", f" {word}", word
        line += f" {shown}"
    yield line


def parse(path: Path, expand: Any) -> dict[str, Header]:
    """What write() wrote, by version. expand: census.expand()."""
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    order = lines[0].split()[1:]
    found = {version: (set[str](), set[str](), dict[str, set[str]]()) for version in order}
    kind, into = "", list[set[str]]()
    for line in lines[1:]:
        if line.startswith(" "):
            words = list(expand(str(path), line.split()) if kind == "functions" else line.split())
            for facts in into:
                facts.update(words)
            continue
        kind, *rest = line.split()
        name = rest.pop(0) if kind == "members" else ""
        versions = [found[version] for spoken in rest for version in _versions(order, spoken)]
        into = [
            of[2].setdefault(name, set()) if name else of[("functions", "types").index(kind)]
            for of in versions
        ]
    return {
        version: Header(
            frozenset(of[0]),
            frozenset(of[1]),
            {name: frozenset(one) for name, one in of[2].items()},
        )
        for version, of in found.items()
    }


def _versions(order: Sequence[str], spoken: str) -> Sequence[str]:
    first, _, last = spoken.partition("-")
    return order[order.index(first) : order.index(last or first) + 1]


def read_all(library: str, folder: Path, whole: Collection[str]) -> dict[str, Header]:
    """All versions of a library's header that lie in a folder, by version."""
    folders = {path.name.removeprefix(f"{library}-"): path for path in folder.glob(f"{library}-*")}
    ordered = sorted(folders, key=lambda version: [int(part) for part in version.split(".")])
    found: dict[str, Header] = {}
    for version in ordered:
        (header,) = folders[version].rglob(f"{library}.h")
        found[version] = read(library, header, whole)
    return found


def main(folder: Path) -> None:
    sys.path.insert(0, str(HERE))
    import census

    for library in MODES:
        found = read_all(library, folder, census.arguments(HERE, library))
        if found:
            (HERE / f"{library}.headers").write_text(write(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
