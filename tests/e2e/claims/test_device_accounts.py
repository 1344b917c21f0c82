"""The account of devices finds what is given twice."""

from typing import Any

from tests.e2e.claims.real_claims import device_accounts

DEVICE = ("node1", "gpu-a")


def a_slice(*devices: str) -> dict[str, Any]:
    capacity = {"cores": {"value": "100"}, "memory": {"value": "16Gi"}}
    made = [{"name": name, "capacity": capacity} for name in devices]
    return {"spec": {"pool": {"name": "node1"}, "devices": made}}


def a_claim(device: str, cores: str, memory: str) -> dict[str, Any]:
    result = {
        "request": "gpu",
        "pool": "node1",
        "device": device,
        "consumedCapacity": {"cores": cores, "memory": memory},
    }
    return {"metadata": {}, "status": {"allocation": {"devices": {"results": [result]}}}}


def test_a_device_may_be_given_whole_in_shares() -> None:
    claims = [a_claim("gpu-a", "60", "8Gi"), a_claim("gpu-a", "40", "8Gi"), {"metadata": {}}]

    found = device_accounts([a_slice("gpu-a")], claims)

    assert found.overbooked == []
    assert found.held == {DEVICE: {"cores": 100, "memory": 16 << 30}}


def test_more_than_a_device_has_is_found() -> None:
    slices = [a_slice("gpu-a", "gpu-b")]
    cores = [a_claim("gpu-a", "60", "1Gi"), a_claim("gpu-a", "41", "1Gi")]
    memory = [a_claim("gpu-a", "1", "16Gi"), a_claim("gpu-a", "1", "256Mi")]

    assert device_accounts(slices, cores).overbooked == [DEVICE]
    assert device_accounts(slices, memory).overbooked == [DEVICE]


def test_a_device_that_is_in_no_slice_has_nothing_to_be_held() -> None:
    claims = [a_claim("gpu-z", "1", "256Mi")]

    assert device_accounts([a_slice("gpu-a")], claims).overbooked == [("node1", "gpu-z")]
