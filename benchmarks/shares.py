"""Compute shares, guaranteed and got, on a SIMULATED GPU: `python benchmarks/shares.py --help`.

What is run, how it is judged and drawn: the package `compute` beside this file.
"""

import sys

from compute.program import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
