#!/usr/bin/env bash
# run.sh [--dry-run] [--out DIR] [--only TEXT]... [--patience S]: what only a machine with a GPU can show of C4, as one
# table (Markdown), with nothing but what the tree and that machine have: no network is used. Needs python3 with PyTorch
# and its NCCL; a C++20 compiler and CMake, or a library that was built before (C4_LIBRARY). C4D's rows need c4, c4a and
# c4d_master (C4_BIN, default build/bin). Every row says passed, failed or not run, and why.
#
# --out DIR     the table and the logs go there (default: OUT, else build/gpu)
# --only TEXT   the rows that have this in their names; may be given more than once
# --patience S  after so long a job is ended, and its row fails (default: 180)
# --dry-run     without a GPU: that the programs start, and what can be tried on host memory
#
# Exit codes: 0 nothing failed; 1 a row failed; 2 wrong usage, or something is missing; 77 there is no GPU.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
root=$PWD

say() { printf '%s\n' "$*" >&2; }
die() {
  say "tests/gpu/run.sh: $*"
  exit 2
}

dry=0
out=${OUT:-$root/build/gpu}
more=()
usage="usage: run.sh [--dry-run] [--out DIR] [--only TEXT]... [--patience S]"
while [ $# -gt 0 ]; do
  case "$1" in
    --dry-run) dry=1 ;;
    --out)
      [ $# -ge 2 ] || die "--out wants a folder"
      out=$2
      shift
      ;;
    --only | --patience)
      [ $# -ge 2 ] || die "$usage"
      more+=("$1" "$2")
      shift
      ;;
    *) die "$usage" ;;
  esac
  shift
done
mkdir -p "$out" || die "cannot make $out"

python=${C4_PYTHON:-python3}
command -v "$python" >/dev/null || die "no $python: name Python in C4_PYTHON"

if [ "$dry" -eq 0 ] && ! "$python" "$root/tests/gpu/machine.py" --has-gpu; then
  say "no GPU that this machine's PyTorch can use: nothing was run (--dry-run tries what can be tried without)"
  exit 77
fi

# The library alone needs no package of the system's.
library=${C4_LIBRARY:-}
if [ -z "$library" ]; then
  build=$root/build/gpu-library
  generator=()
  if command -v ninja >/dev/null; then generator=(-G Ninja); fi
  say "building the library into $build"
  if ! { cmake -S "$root" -B "$build" "${generator[@]}" -DCMAKE_BUILD_TYPE=RelWithDebInfo -DC4_LIBRARY_ONLY=ON &&
    cmake --build "$build" --parallel "$(nproc)" --target nccl; } >"$out/build.log" 2>&1; then
    tail -n 20 "$out/build.log" >&2
    die "the library could not be built ($out/build.log): name one that was in C4_LIBRARY"
  fi
  library=$build/lib/libnccl.so.2
fi
[ -f "$library" ] || die "C4_LIBRARY=$library is no file"

arguments=(--library "$(realpath "$library")" --out "$out" --bin "${C4_BIN:-$root/build/bin}")
if [ "$dry" -eq 1 ]; then arguments+=(--dry-run); fi
arguments+=("${more[@]}")
exec "$python" "$root/tests/gpu/checks.py" "${arguments[@]}"
