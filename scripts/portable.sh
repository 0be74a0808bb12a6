#!/usr/bin/env bash
# portable.sh [--no-test]: builds the library and c4-install for systems as old as NVIDIA's wheels run on (glibc 2.17),
# into build/portable, and tries them: what they need and export, the front door before doubles, our own collectives
# with several ranks, an installation. `c4 install` takes this library where it is there. A first run takes some minutes.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

test=1
case "${1:-}" in
  "") ;;
  --no-test) test=0 ;;
  *) die "usage: portable.sh [--no-test]" ;;
esac

scripts/setup.sh build
C4_ZIG=$(scripts/setup_portable.sh)
export C4_ZIG
scripts/build.sh portable nccl c4_verbs_tap c4-install
library=$C4_ROOT/build/portable/lib/libnccl.so.2
[ "$test" -eq 1 ] || exit 0

scripts/build.sh release api_exports_test front_door_test cli_install_test all_reduce_perf c4 c4a c4d_master
run=$(mktemp -d)
trap 'rm -rf "$run"' EXIT
export C4_LIBRARY=$library C4_PORTABLE=1 C4_BUILD_DIR=$C4_ROOT/build C4_SOURCE_DIR=$C4_ROOT C4_RUN_DIR=$run C4_ENGINE=host
stage exports build/tests/api_exports_test --gtest_brief=1
stage front-door build/tests/front_door_test --gtest_brief=1
C4_IMAGE_PROGRAM=$C4_ROOT/build/portable/bin/c4-install stage c4-install build/tests/cli_install_test --gtest_brief=1 \
  --gtest_filter='ImageProgramTest.*'
unset C4_LIBRARY C4_PORTABLE
stage collectives build/bin/c4 run -n 4 -- env LD_LIBRARY_PATH="${library%/*}" build/bin/all_reduce_perf -b 8 -e 4M -f 8
say "the library: $library"
