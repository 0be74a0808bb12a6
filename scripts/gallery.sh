#!/usr/bin/env bash
# gallery.sh: builds c4 and writes docs/failure-gallery.md from the recordings in tests/data/recordings. What was
# injected stands in NAME.fault beside NAME.c4rec; everything else is `c4 replay --gallery`.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

scripts/build.sh release c4
page=docs/failure-gallery.md
new=$(mktemp)
trap 'rm -f "$new"' EXIT
cat > "$new" <<'END'
# Failure gallery

Faults, what the master knew when it was certain, and why it blamed nobody else. `make gallery` writes this page from
the recordings in `tests/data/recordings`, by the code that judges a running job; the test `c4d_recordings_test`
watches over the same verdicts. Recordings called `simulated-` come from `build/bin/record_simulation`, the others from
jobs that ran.

END
for recording in tests/data/recordings/*.c4rec; do
  build/bin/c4 replay "$recording" --gallery 2> /dev/null >> "$new" || die "$recording cannot be replayed"
done
cp "$new" "$page"
say "$page: $(grep -c '^## ' "$page") recordings"
