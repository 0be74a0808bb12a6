#!/usr/bin/env bash
# test_torch.sh [--own] [ARGUMENT...]: the backend c4 of PyTorch (python/c4_torch) in jobs of four ranks; arguments go to
# python/tests/test_torch.py, as `test_torch.sh TorchTest.test_training`. With --own PyTorch's own tests of a backend in
# their place, of c4 and of gloo (python/tests/torch_own_tests.py). Fetches PyTorch once, with all that its wheel
# asks for (3 GB to load, 6 GB on disk), into the folder that C4_TORCH_VENV names, else build/torch/venv. Where PyTorch
# cannot be had, a loud line says so, and that is no failure.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

venv=${C4_TORCH_VENV:-$C4_ROOT/build/torch/venv}
scripts/setup.sh build
scripts/build.sh release nccl c4 c4a c4d_master all_reduce_perf
mkdir -p build/torch
if [ ! -x "$venv/bin/python" ]; then python3 -m venv "$venv"; fi
if ! "$venv/bin/python" -c 'import torch, expecttest, accelerate' 2>/dev/null; then
  say "fetching PyTorch into $venv"
  if ! "$venv/bin/pip" install --quiet torch numpy setuptools expecttest accelerate; then
    say "SKIPPED: PyTorch cannot be had from the package registry; the backend c4 was not tested"
    exit 0
  fi
fi
scripts/build_torch.sh "$venv"
if [ "${1:-}" = --own ]; then
  shift
  C4_TORCH_LIBRARY=$C4_ROOT/build/lib/libnccl.so.2 exec "$venv/bin/python" python/tests/torch_own_tests.py "$@"
fi
C4_BUILD_DIR=$C4_ROOT/build exec "$venv/bin/python" python/tests/test_torch.py "$@"
