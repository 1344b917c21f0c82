"""gpu-client at the sockets of a real agent, for a container that runs."""

import grpc
import pytest

from gpumanager.legacy.files import decode_config
from gpumanager.units import GIB
from tests.legacy.gpu_client_calls import refused, register
from tests.limits.container_process import eventually
from tests.limits.running_pod import Running

pytest_plugins = ["tests.limits.running_pod_fixtures"]


@pytest.mark.namespaces
async def test_a_real_agent_answers_gpu_client_of_a_running_container_where_gpu_manager_did_too(
    running: Running,
) -> None:
    directory, name = running.virtual / running.uid, running.container_id
    directory.mkdir()

    assert await eventually((directory / "vcuda.sock").exists)
    for files in (running.files, directory):
        await register(files / "vcuda.sock", pod_uid=running.uid, container_id=name)

        config = decode_config((files / name / "vcuda.config").read_bytes())
        assert (config.pod_uid, config.container) == (running.uid, "main")
        assert (config.memory, config.cores, config.ceiling) == (GIB, 30, 0)
    assert decode_config((running.files / name / "vcuda.config").read_bytes()).driver[0] > 0
    error = await refused(running.files / "vcuda.sock", pod_uid="another", container_id=name)
    assert error.code() is grpc.StatusCode.PERMISSION_DENIED
