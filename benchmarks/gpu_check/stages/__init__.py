"""The stages of the check, in the order of what a GPU can break first.

    entries    exports, and cuGetProcAddress: are its answers the exports? And through the shim
    runtime    do programs of the CUDA runtime and PyTorch meet their limits? Error 103?
    process    what one process takes, and what it sees of the device
    memory     limits, kinds of memory, and ways of launching
    shares     shares of the GPU's time
    facts      facts of the driver and the GPU: gpu_facts alone, and several at a time; no shim
    programs   tools and packages of others, bare and behind the shim
    overhead   what the shim costs
    latency    what a service waits beside training
    machine    facts of the machine: no CUDA, no shim

Each is a module with CHECKS, and a process of its own, two where some checks need PyTorch: see
runner. Those that need no manager do not load what it needs either.
"""
