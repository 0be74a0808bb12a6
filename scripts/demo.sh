#!/usr/bin/env bash
# demo.sh [ARGUMENT...]: installs what is missing, builds what the demonstration needs, and runs `c4 demo`.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

scripts/setup.sh build
scripts/build.sh release c4 c4a c4d_master all_reduce_perf nccl
exec build/bin/c4 demo "$@"
