#!/usr/bin/env bash
# build_torch.sh VENV: builds python/c4_torch against the PyTorch of that environment, as a wheel in build/torch, and
# installs it there. Nothing is written into the source folder.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

[ $# -eq 1 ] || die "usage: build_torch.sh VENV"
python=$(cd "$1" && pwd)/bin/python
"$python" -c 'import torch' 2>/dev/null || die "there is no PyTorch in $1: $1/bin/pip install torch"
out=$C4_ROOT/build/torch
mkdir -p "$out/info"
rm -rf "$out/wheel"
jobs=$(build_jobs)
(cd python/c4_torch && MAX_JOBS=$jobs "$python" setup.py -q egg_info --egg-base "$out/info" \
  build --build-base "$out/objects" bdist_wheel --bdist-dir "$out/bdist" --dist-dir "$out/wheel") >"$out/build.log" 2>&1 ||
  { tail -n 30 "$out/build.log" >&2 && die "c4_torch does not build; all of it: $out/build.log"; }
"$python" -m pip install --quiet --force-reinstall --no-deps "$out"/wheel/c4_torch-*.whl
say "c4_torch is in $1"
