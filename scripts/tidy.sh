#!/usr/bin/env bash
# tidy.sh [--changed [BASE]]: clang-tidy over every translation unit of the project, or over those that
# changed since BASE (default: the parent commit; where there is none, as in a shallow clone, over all). A
# changed header counts for each unit that includes it. Works on the build of preset release.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

scripts/setup.sh build lint
scripts/build.sh release

# Our own translation units, not the generated ones, each with all that it includes: "UNIT FILE" a line.
includes() {
  ninja -C build -t deps | awk -v root="$C4_ROOT/" '
    /^[^ ].*: #deps/ { unit = ""; next }
    /^ / {
      if (index($1, root) != 1) next
      file = substr($1, length(root) + 1)
      if (file ~ /^build\//) next
      if (unit == "") unit = file
      print unit, file
    }'
}
table=$(includes)
mapfile -t units < <(awk '{ print $1 }' <<<"$table" | sort -u)
[ ${#units[@]} -gt 0 ] || die "build/ knows no source of ours: remove it and build again"

if [ "${1:-}" = --changed ]; then
  base=${2:-HEAD^}
  if ! git rev-parse --quiet --verify "$base^{commit}" >/dev/null 2>&1; then
    say "tidy: no commit '$base' to compare with: all units"
  elif ! git diff --quiet "$base" -- .clang-tidy; then
    say "tidy: .clang-tidy itself changed since $base: all units"
  else
    mapfile -t units < <(git diff --name-only --diff-filter=d "$base" |
      awk 'NR == FNR { changed[$1] = 1; next } ($2 in changed) { print $1 }' - <(echo "$table") | sort -u)
  fi
fi
if [ ${#units[@]} -eq 0 ]; then
  say "tidy: no unit changed"
  exit 0
fi

say "tidy: ${#units[@]} units"
# What it counts of the system's headers goes to standard error: noise. Defects go to standard output.
printf '%s\0' "${units[@]}" |
  xargs -0 -n 1 -P "$(build_jobs)" clang-tidy -p build --quiet 2>/dev/null || die "clang-tidy found defects"
say "tidy: no defects"
