"""The tests of a stand-in are run by the check that they are for."""

collect_ignore = ["numba_cuda"]
