#!/bin/sh
# The check of a bundle: gpu-check.sh [first | rest | all | STAGE …], by default all.
# PYTHON: a Python 3.11 to 3.13, with PyTorch if that is to be checked. OUT: where results go.
here=$(cd "$(dirname "$0")" && pwd) || exit 2
out=gpu-check
case "${1-}" in first | rest) out=gpu-check-$1 ;; esac
bound=$((580 * ${GPU_CHECK_SLOWNESS:-1}))
exec timeout --kill-after=10 "$bound" "${PYTHON:-python3}" "$here/benchmarks/check_gpu.py" \
    --out "${OUT:-$out}" "$@"
