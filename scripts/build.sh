#!/usr/bin/env bash
# build.sh PRESET [TARGET...]: configures the preset and builds the targets (default: all).
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

preset=${1:?usage: build.sh PRESET [TARGET...]}
shift
target=()
[ $# -eq 0 ] || target=(--target "$@")

[ "$preset" != release ] || stage page scripts/page.sh
stage configure cmake --preset "$preset" || die "configuring failed; what is missing stands above"
stage build cmake --build --preset "$preset" --parallel "$(build_jobs)" "${target[@]}"
