"""The stages of the check, in the order of what is to be known first.

    machine    facts of the machine: no CUDA, no shim
    facts      facts of the driver and the GPU: gpu_facts alone, and several at a time; no shim
    entries    cuGetProcAddress: are its answers the exports? And through the shim
    runtime    does the CUDA runtime accept the shim (error 103)? If not, whose hook is it?
    memory     limits, kinds of memory, and ways of launching
    shares     shares of the GPU's time
    overhead   what the shim costs

Each is a module with CHECKS, and a process of its own: see runner. Those of the first three that
need no manager do not load what it needs either.
"""
