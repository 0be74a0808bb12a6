#!/usr/bin/env bash
# test.sh [PRESET]: installs what is missing, builds, and runs the tests that need no special hardware
# (labels unit, net, service). Ends with a line "tests: N passed, N failed". The results also stand in
# BUILD/test-results.xml (JUnit).
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

preset=${1:-release}
build=build
[ "$preset" = release ] || build=build/$preset

stage setup scripts/setup.sh build
scripts/build.sh "$preset"

log=$build/test.log
status=0
stage test bash -o pipefail -c 'ctest --test-dir "$0" -L "^(unit|net|service)$" -j2 --output-on-failure \
  --no-tests=error --output-junit test-results.xml 2>&1 | tee "$1"' "$build" "$log" || status=$?

# ctest says "97% tests passed, 1 tests failed out of 33".
sed -n 's/^[0-9]*% tests passed, \([0-9]*\) tests failed out of \([0-9]*\)$/\1 \2/p' "$log" |
  while read -r failed all; do echo "tests: $((all - failed)) passed, $failed failed"; done
exit "$status"
