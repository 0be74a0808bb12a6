#!/usr/bin/env bash
# fuzz.sh [SECONDS [TARGET...]]: builds the fuzzers with clang and runs each for so many seconds (default 30),
# beginning with the golden files of the format that it is named after, or tests/fuzz/seeds. What it finds new stays under
# build/fuzz/corpus; an input that breaks a target is kept there too, and its path printed.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

run_s=${1:-30}
shift || true
[[ $run_s =~ ^[1-9][0-9]*$ ]] || die "SECONDS is a whole number above 0, not '$run_s'"

scripts/setup.sh build fuzz
scripts/build.sh fuzz fuzzers
build=build/fuzz
if [ $# -gt 0 ]; then targets=("$@"); else mapfile -t targets < <(cd $build/fuzzers && ls); fi

shopt -s nullglob
failed=()
for target in "${targets[@]}"; do
  [ -x "$build/fuzzers/$target" ] || die "there is no fuzzer '$target' in $build/fuzzers"
  grown=$build/corpus/$target
  mkdir -p "$grown"
  seeds=(tests/data/formats/"$target"-[0-9]* tests/fuzz/seeds/"$target"/*)
  [ ${#seeds[@]} -gt 0 ] || die "no file to begin with"
  cp "${seeds[@]}" "$grown/"
  stage "$target" "$build/fuzzers/$target" -max_total_time="$run_s" -timeout=10 -rss_limit_mb=2048 -verbosity=0 \
    -print_final_stats=1 -artifact_prefix="$grown-crash-" "$grown" || failed+=("$target")
done
stage_table
[ ${#failed[@]} -eq 0 ] || die "broken by its input: ${failed[*]}"
