#!/usr/bin/env bash
# demo.sh [ARGUMENT...]: installs what is missing, builds what the demonstration needs, and runs `c4 demo`, as root
# where that can be had: making namespaces needs it, and without it the demonstration plays over loopback.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

scripts/setup.sh build
scripts/build.sh release c4 c4a c4d_master c4p_master hybrid_trainer nccl
if [ "$(id -u)" -ne 0 ] && command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
  exec sudo -- build/bin/c4 demo "$@"
fi
exec build/bin/c4 demo "$@"
