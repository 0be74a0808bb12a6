#!/usr/bin/env bash
# format.sh [--check]: formats all C++ of the project, or fails and names the files that are not formatted.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

scripts/setup.sh lint
mapfile -t files < <(find wire ccl analysis traces service c4a c4d_master c4p_master cli fabric page tests benchmarks python \
  -name '*.h' -o -name '*.cc' -o -name '*.c' | sort)
if [ "${1:-}" != --check ]; then
  clang-format -i "${files[@]}"
  exit
fi
bad=()
for file in "${files[@]}"; do
  clang-format --dry-run --Werror "$file" >/dev/null 2>&1 || bad+=("$file")
done
[ ${#bad[@]} -eq 0 ] || die "not formatted (make format does it): ${bad[*]}"
say "format: ${#files[@]} files are formatted"
