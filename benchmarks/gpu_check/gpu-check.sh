#!/bin/sh
# The check of a bundle: gpu-check.sh [STAGE …], by default all stages in their order.
# PYTHON: a Python 3.11 to 3.13, with PyTorch if that is to be checked. OUT: where results go.
here=$(cd "$(dirname "$0")" && pwd) || exit 2
exec timeout --kill-after=10 580 "${PYTHON:-python3}" "$here/benchmarks/check_gpu.py" \
    --out "${OUT:-gpu-check}" "$@"
