#!/usr/bin/env bash
# readme.sh [check]: plays the demonstration and puts one of its incidents and its table, as they were printed, at the
# head of README.md; long lines are folded, and "..." stands where some were left out. `check` looks at what stands there instead: a fault, a confirmed verdict that
# names its link, evidence, the table, and no line that is cut or too long.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

begin='<!-- incident: made by `make readme` -->'
end='<!-- /incident -->'

incident() { awk -v b="$begin" -v e="$end" '$0 == e { on = 0 } on { print } $0 == b { on = 1 }' README.md; }

if [ "${1:-}" = check ]; then
  text=$(incident)
  for shape in 'inject [0-9]+: [a-z-]+ ' 'confirmed after [0-9.]+ s' '^CONFIRMED communication slow: link leaf[0-9]+-spine[0-9]+' \
    '^  latency: ' '^  what to do: ' 'cleared after [0-9.]+ s' '^FAULT .* NAMED AS' '^ALL RIGHT: [0-9]+ faults, 0 false alarms'; do
    grep -Eq "$shape" <<<"$text" || die "the incident at the head of README.md lacks '$shape': make readme"
  done
  long=$(incident | awk 'length > 116')
  [ -z "$long" ] || die "lines at the head of README.md are longer than 116 columns: make readme
$long"
  exit 0
fi

# The account may also be one that was kept: readme.sh FILE.
account=${1:-}
trap 'rm -f README.md.new' EXIT
if [ -z "$account" ]; then
  account=build/demo.txt
  scripts/demo.sh 2>&1 | tee "$account"
fi
# From the first fault up to the second, with two of the connections that speak for it, then the table at the end.
lines=$({
  awk '/ inject 2: /{ exit } / inject 1: /{ on = 1 } /^  latency: rank /{ if (++told > 2) { if (told == 3) print "  ..."; next } }
    on { print }' "$account" | sed -E 's/\] [0-9.]+ inject /] inject /'
  echo ...
  awk '/^FAULT /{ on = 1 } on && NF' "$account"
} | while IFS= read -r line; do
  fold -s -w 110 <<<"$line" | sed -e '2,$s/^/      /' -e 's/ *$//'
done)
{
  awk -v b="$begin" '{ print } $0 == b { exit }' README.md
  printf '```\n%s\n```\n' "$lines"
  awk -v e="$end" '$0 == e { on = 1 } on { print }' README.md
} >README.md.new
cat README.md.new >README.md
scripts/readme.sh check
