"""volume.conf: the shipped one, and everything that can be wrong with one."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumanager.errors import InputError
from gpumanager.volume.config import SHIPPED, read_config

TOP = Path(__file__).parent.parent.parent / "volume.conf"


def volume(**changes: Any) -> dict[str, Any]:
    components = {"binaries": ["nvidia-smi"], "libraries": ["libcuda.so"]}
    return {"name": "nvidia", "mode": "ro", "base": "/base", "components": components} | changes


def written(folder: Path, content: Any) -> Path:
    path = folder / "volume.conf"
    path.write_text(json.dumps(content))
    return path


def test_the_shipped_configuration_serves_todays_driver() -> None:
    config = read_config(SHIPPED)

    assert SHIPPED.read_bytes() == TOP.read_bytes()
    assert (config.shared.name, config.whole.name) == ("nvidia", "origin")
    assert config.shared.base == Path("/etc/gpu-manager/vdriver")
    for name in (
        "libcuda.so.1",
        "libnvidia-ml.so.1",
        "libnvidia-ptxjitcompiler.so.1",
        "libnvidia-gpucomp.so.570.124",
        "libnvidia-nvvm.so.4",
        "libcudadebugger.so.1",
        "libnvidia-allocator.so.1",
        "libnvidia-cfg.so.1",
        "libnvoptix.so.1",
        "libnvidia-rtcore.so.555.58.02",
        "libnvidia-pkcs11-openssl3.so.555.58.02",
        "libnvidia-egl-gbm.so.1",
    ):
        assert name.startswith(config.shared.libraries)
        assert name.startswith(config.whole.libraries)


def test_a_configuration_of_the_original_is_read(tmp_path: Path) -> None:
    origin = volume(name="origin", base="/elsewhere")

    config = read_config(written(tmp_path, {"volume": [origin, volume()]}))

    assert config.shared.base == Path("/base")
    assert config.whole.base == Path("/elsewhere")
    assert config.shared.binaries == ("nvidia-smi",)
    assert config.shared.libraries == ("libcuda.so",)


def components(**changes: Any) -> dict[str, Any]:
    return volume(components=volume()["components"] | changes)


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        ([], "the file: expected an object"),
        ({}, "volume: missing"),
        ({"volume": {}}, "volume: expected a list"),
        ({"volume": [], "volumes": []}, "volumes: unknown; known are volume"),
        ({"volume": []}, "volume: expected two volumes, 'nvidia' and another"),
        ({"volume": [volume()]}, "volume: expected two volumes"),
        ({"volume": [volume(), volume()]}, "volume: 'nvidia' stands there 2 times"),
        ({"volume": ["nvidia"]}, "volume[0]: expected an object"),
        ({"volume": [volume(name="../up")]}, "volume[0].name: '../up' cannot name a directory"),
        ({"volume": [volume(name=7)]}, "volume[0].name: expected a text"),
        ({"volume": [volume(mode="rw")]}, "volume[0].mode: unknown mode 'rw'"),
        ({"volume": [volume(base="here")]}, "volume[0].base: 'here' is not an absolute path"),
        ({"volume": [volume(components=[])]}, "volume[0].components: expected an object"),
        ({"volume": [components(libraries=[])]}, "volume[0].components.libraries: empty"),
        ({"volume": [components(libraries=[1])]}, "components.libraries[0]: expected a text"),
        ({"volume": [components(libraries=[""])]}, "libraries[0]: '' is not a file name"),
        ({"volume": [components(binaries=["a/b"])]}, "binaries[0]: 'a/b' is not a file name"),
        ({"volume": [components(library=[])]}, "components.library: unknown; known are binaries"),
    ],
)
def test_a_wrong_configuration_is_refused_with_place_and_cause(
    content: Any, cause: str, tmp_path: Path
) -> None:
    path = written(tmp_path, content)

    with pytest.raises(InputError, match=f"^{re.escape(str(path))}: .*{re.escape(cause)}"):
        read_config(path)


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        (b"", ":1: not JSON: Expecting value"),
        (b'{"volume":\n [\n {]}', ":3: not JSON: Expecting property name"),
        (b'{"volume": [', ":1: not JSON: Expecting value"),
        (b"\xff\xfe\x00\x01", ": not JSON: it is not text in UTF-8"),
        (b"[" * 100_000, "nested too deeply"),
        (b"7" * 5000, "cannot be read"),
    ],
)
def test_what_is_no_json_is_refused_with_its_line(
    content: bytes, cause: str, tmp_path: Path
) -> None:
    path = tmp_path / "volume.conf"
    path.write_bytes(content)

    with pytest.raises(InputError, match=re.escape(cause)):
        read_config(path)


def test_a_missing_configuration_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.conf: cannot be read: No such file"):
        read_config(tmp_path / "none.conf")


def test_a_directory_is_no_configuration(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read: Is a directory"):
        read_config(tmp_path)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@given(st.sampled_from(["name", "mode", "base", "components"]), JSON)
def test_any_value_in_any_place_is_taken_or_refused(
    tmp_path_factory: pytest.TempPathFactory, place: str, value: Any
) -> None:
    changed = volume(**{place: value})
    path = written(tmp_path_factory.mktemp("any"), {"volume": [changed, volume(name="origin")]})

    try:
        config = read_config(path)
    except InputError as error:
        assert error.source == path  # noqa: PT017  (either outcome is right)
    else:
        assert config.shared.libraries == ("libcuda.so",)
