"""A check of the shim on a real GPU: `make gpu-check`.

Self-contained: builds the shim, starts a manager without a cluster, and runs unmodified programs,
PyTorch's first of all, as limited processes and, for comparison, without the shim. One table and a
file of JSON say what was seen. Neither root nor namespaces are needed: the shims of this check
differ from the product's in one word, the folder in which they look for their allocation.

    machine     what this machine has, and what is missing, in one line
    place       the rooms in which limited programs run: shims, allocation, manager
    process     a program run to its end, or its bound
    player      a program that launches what it is told, one command at a time
    evidence    what a run showed: the program's word, the books', the driver's
    judge       PURE: from evidence to a verdict, one function for each check
    shares      PURE: from work done to shares of the GPU's time
    rates       how the work is measured: cases, windows, what they are compared with
    overhead    what a launch and a workload cost with and without the shim
    clock       what the driver tells of the GPU from outside
    checks      the table of checks
    outcome     what they come to
    conductor   runs them, each in its bound and all in theirs
    report      one table, one JSON
    workloads/  what runs in the rooms, each a small file
"""
