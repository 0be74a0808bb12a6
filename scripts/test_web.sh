#!/usr/bin/env bash
# test_web.sh [screenshots]: the operator's page in Debian's Chromium: tests/web over recordings of each fault and over
# masters that come and go. With `screenshots`: the pictures of docs/page/ anew instead.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

scripts/setup.sh build page web
scripts/page.sh --must
cmake --preset release >build/web.log 2>&1 || { tail -n 20 build/web.log >&2; die "configuring failed"; }
nice cmake --build --preset release --parallel "$(build_jobs)" --target c4 c4a c4d_master c4p_master hybrid_trainer nccl
cd tests/web
if ! { [ -d node_modules/playwright-core ] && [ node_modules/.package-lock.json -nt package-lock.json ]; }; then
  npm ci --ignore-scripts --no-audit --no-fund >&2
fi
if [ "${1:-}" = screenshots ]; then exec node screenshots.mjs; fi
exec node --test --test-reporter=spec page.test.mjs
