#!/usr/bin/env bash
# compare_mpi.sh [ARGUMENT...]: installs what is missing, Open MPI and MPICH among it, builds our perf programs, and compares
# their collectives with both MPI libraries'. Arguments are those of benchmarks/compare_mpi.py (--help lists
# them); make hands on what stands in ARGS. Takes the machine for some minutes: leave it alone meanwhile.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

scripts/setup.sh build mpi
scripts/build.sh release c4 c4a c4d_master all_reduce_perf all_gather_perf reduce_scatter_perf broadcast_perf alltoall_perf
exec python3 benchmarks/compare_mpi.py "$@"
