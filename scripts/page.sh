#!/usr/bin/env bash
# page.sh [--must]: builds the operator's page (web/) by npm into build/page-files, from where the build puts it into
# `c4`. Does nothing where it is built already. Where npm is missing, or its registry cannot be reached, it says so
# and goes on: `c4 page` then serves a page that says how to get it. --must: that is an error.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

must=${1:-}
out=build/page-files
stamp=$out/.made-of

without() {
  if [ "$must" = --must ]; then die "$1"; fi
  say "page: $1; c4 is built without the operator's page (docs/page.md)"
  exit 0
}

# Of everything that it is made of.
sum() {
  {
    find web -path web/node_modules -prune -o -type f ! -name messages.ts -print
    find proto -name '*.proto'
  } | LC_ALL=C sort | xargs sha256sum | sha256sum | cut -d' ' -f1
}

[ -d web ] || exit 0 # a source package without it
made_of=$(sum)
if [ -f "$out/index.html" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$made_of" ]; then exit 0; fi
command -v npm >/dev/null && command -v node >/dev/null || without "npm is not installed (Debian: npm; \`make page\` installs it)"
[ "$(node -p 'parseInt(process.versions.node)')" -ge 18 ] || without "node is older than 18"

mkdir -p build
log=build/page.log
if ! { [ -d web/node_modules/vite ] && [ web/node_modules/.package-lock.json -nt web/package-lock.json ]; }; then
  say "page: npm fetches what the page is built with (its log: $log)"
  (cd web && timeout 180 npm ci --ignore-scripts --no-audit --no-fund --fetch-retries 1 --fetch-timeout 20000) \
    >"$log" 2>&1 </dev/null || without "npm could not fetch what the page is built with ($log)"
fi
(cd web && npm run --silent build) >>"$log" 2>&1 </dev/null || {
  tail -n 20 "$log" >&2
  die "the operator's page does not build ($log)"
}
echo "$made_of" >"$stamp"
say "page: built, $(find "$out" -type f ! -name .made-of -exec gzip -c {} + | wc -c | awk '{ printf "%d KB compressed", $1 / 1000 }')"
