#!/usr/bin/env bash
# test_rdma.sh [ARGUMENT...]: the RDMA transport over real verbs, in QEMU guests with Debian's kernel and Soft-RoCE;
# arguments go to tests/rdma/run.py. Installs what is missing (packages.txt, group rdma) and fetches the kernel
# once. Ends with a line "rdma: N passed, N failed". Where guests cannot run, a loud line says why, and that is
# no failure.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

if ! scripts/setup.sh rdma; then say "the packages for guests are not all there; tests/rdma/run.py says what is missing"; fi
scripts/build.sh release rdma_ends nccl c4_verbs_tap c4 c4a c4d_master c4p_master all_reduce_perf plugin_end
exec python3 tests/rdma/run.py --build build "$@"
