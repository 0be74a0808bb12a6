#!/usr/bin/env bash
# readme.sh [check]: plays the demonstration and puts one of its incidents, as it was printed, at the head of
# README.md. `check` looks at what stands there instead: a fault, a confirmed verdict with its seconds, evidence.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

begin='<!-- incident: made by `make readme` -->'
end='<!-- /incident -->'

incident() { awk -v b="$begin" -v e="$end" '$0 == e { on = 0 } on { print } $0 == b { on = 1 }' README.md; }

if [ "${1:-}" = check ]; then
  text=$(incident)
  for shape in 'inject [0-9]+: [a-z-]+ ' 'confirmed after [0-9.]+ s' '^CONFIRMED [a-z -]+: ' '^  latency: ' 'cleared after [0-9.]+ s'; do
    grep -Eq "$shape" <<<"$text" || die "the incident at the head of README.md lacks '$shape': make readme"
  done
  exit 0
fi

# The account may also be one that was kept: readme.sh FILE.
account=${1:-}
trap 'rm -f README.md.new' EXIT
if [ -z "$account" ]; then
  account=build/demo.txt
  scripts/demo.sh 2>&1 | tee "$account"
fi
# From the first fault up to the second; long lines are cut, the rest is the same everywhere.
lines=$(awk '/ inject 2: /{ exit } / inject 1: /{ on = 1 } on { print }' "$account" |
  sed -E 's/\] [0-9.]+ inject /] inject /' | cut -c1-150 | head -20)
{
  awk -v b="$begin" '{ print } $0 == b { exit }' README.md
  printf '```\n%s\n```\n' "$lines"
  awk -v e="$end" '$0 == e { on = 1 } on { print }' README.md
} >README.md.new
cat README.md.new >README.md
scripts/readme.sh check
