"""A login in a container by ssh, sudo or cron: how it finds the library, which limits it then."""

import pytest

from gpumanager.doctor.about_container import RECIPE
from tests import ROOT
from tests.hostile.hostile_node import HostileNode, hostile

COMMAND = "echo /usr/local/nvidia/lib64 > /etc/ld.so.conf.d/nvidia.conf && ldconfig"


@pytest.mark.namespaces
async def test_a_login_finds_the_library_after_the_recipe_and_is_limited_then() -> None:
    async with HostileNode() as node:
        await node.run(hostile("ssh", "login.py", cores=50, memory=4))

    before, refused, after, limited = node.said["ssh"]
    assert before.startswith("1 wrong libcuda.so.1: cannot open shared object file")
    assert COMMAND in before
    assert "libcuda.so.1: cannot open shared object file" in refused
    assert after.startswith("0 well /usr/local/nvidia/lib64/libvcuda-shim-")
    figures = dict(zip(limited.split()[::2], map(int, limited.split()[1::2]), strict=True))
    assert (figures["cuInit"], figures["nvml"], figures["total"]) == (0, 0, 1024)
    assert 512 <= figures["holds"] < 1024


def test_the_recipe_is_the_one_that_is_documented_and_tried() -> None:
    tried = (ROOT / "tests/hostile/tenants/login.py").read_text()

    assert COMMAND in RECIPE
    assert COMMAND in tried
    assert COMMAND in (ROOT / "docs/troubleshooting.md").read_text()
