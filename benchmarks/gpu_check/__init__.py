"""A check of the shim on a real GPU: `make gpu-check`, and the bundle of `make gpu-bundle`.

Self-contained: runs a manager without a cluster, and unmodified programs, PyTorch's among them, as
limited processes and, for comparison, without the shim. It needs neither root, nor namespaces, nor
a compiler or package that the bundle does not bring: the shims are the product's, with the path of
their allocation exchanged.

    runner      stages, each a process of its own; the summary
    stages/     what is checked, stage by stage
    conductor   runs the checks of a stage, each in its bound
    bench       what a check has at hand
    results     facts and findings, written at once
    outcome     what a check comes to
    machine     which driver and GPU there are
    exports     what a library exports
    place       the rooms in which limited programs run: shims, allocation, manager
    process     a program run to its end, or its bound
    player      a program that launches what it is told, one command at a time
    evidence    what a run showed: the program's word, the books', the driver's
    judge       PURE: from evidence to a verdict, one function for each check
    shares      PURE: from work done to shares of the GPU's time
    timeslices  PURE: from when two kernels had the GPU to slices and switches
    rates       how the work is measured: cases, windows, what they are compared with
    overhead    what a launch and a workload cost with and without the shim
    clock       what the driver tells of the GPU from outside
    programs/   in C: gpu_facts, launches, runtime and tenants
    workloads/  what runs in the rooms, each a small file
"""
