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
async def test_a_real_agent_answers_gpu_client_of_a_running_container(running: Running) -> None:
    door, name = running.files / "vcuda.sock", running.container_id

    await register(door, pod_uid=running.uid, container_id=name)
    error = await refused(door, pod_uid="another", container_id=name)

    config = decode_config((running.files / name / "vcuda.config").read_bytes())
    assert (config.pod_uid, config.container) == (running.uid, "main")
    assert (config.memory, config.cores, config.ceiling) == (GIB, 30, 0)
    assert config.driver[0] > 0
    assert error.code() is grpc.StatusCode.PERMISSION_DENIED


@pytest.mark.namespaces
async def test_a_real_agent_listens_where_gpu_manager_did_for_the_pod(running: Running) -> None:
    directory, name = running.virtual / running.uid, running.container_id
    directory.mkdir()

    assert await eventually((directory / "vcuda.sock").exists)
    await register(directory / "vcuda.sock", pod_uid=running.uid, container_id=name)

    config = decode_config((directory / name / "vcuda.config").read_bytes())
    assert (config.container, config.memory, config.cores) == ("main", GIB, 30)
