# What the scripts share; sourced, never run. Sets C4_ROOT and changes to it.
# shellcheck shell=bash
set -euo pipefail

C4_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$C4_ROOT"

say() { printf '%s\n' "$*" >&2; }

die() {
  say "error: $*"
  exit 1
}

# as_root COMMAND...: runs it as root, by sudo where this is not root. Needs no terminal when sudo does not.
as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo -- "$@"
  else
    die "'$1' needs root, and there is no sudo here: run this once as root, or have an administrator do it"
  fi
}

# How many compilers to run: the cores of this process, fewer where memory is short (2 GiB a compiler).
build_jobs() {
  local cores by_memory
  cores=$(nproc)
  by_memory=$(awk '/^MemAvailable:/ { n = int($2 / 2097152); print n < 1 ? 1 : n }' /proc/meminfo)
  if [ "$by_memory" -lt "$cores" ]; then echo "$by_memory"; else echo "$cores"; fi
}

# stage NAME COMMAND...: runs it, says how long it took, and keeps that for stage_table. Gives back the
# command's exit status; the command is a program or a script of ours, not a function.
C4_STAGES=()
stage() {
  local name=$1 status=0 begin_s=$SECONDS
  shift
  say "== $name"
  "$@" || status=$?
  local line
  line=$(printf '%-12s %5d s' "$name" $((SECONDS - begin_s)))
  [ "$status" -eq 0 ] || line+="  failed ($status)"
  C4_STAGES+=("$line")
  say "== $line"
  return "$status"
}

stage_table() {
  local line
  say "time per stage:"
  for line in "${C4_STAGES[@]}"; do say "  $line"; done
}
