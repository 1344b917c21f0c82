"""As many tests as there are ways for one to end."""

import os

import pytest
from gpu import Gpu
from say import shim_loaded

GPU = Gpu(MemoryError)


def test_memory_is_there():
    GPU.driver.free(GPU.allocate(1 << 20))


def test_kernels_run():
    for _ in range(50):
        GPU.run(lambda: None, 1_000_000)
    GPU.driver.synchronize()


def test_that_fails_everywhere():
    raise ValueError("CUDA_ERROR_NOT_SUPPORTED")


def test_that_is_skipped():
    pytest.skip("there is one GPU")


def test_that_one_side_fails():
    GPU.driver.synchronize()
    assert os.environ.get("STANDIN_WRONG") != "numba" or not shim_loaded()
