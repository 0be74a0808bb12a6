#!/usr/bin/env bash
# test_containers.sh: what deploy/Containerfile puts into its images, tried in a minimal Debian 12 made by debootstrap
# (scripts/test_containers.py says what is not tried). Builds what is handed out first; the library of this system
# stands in the place of the portable one. Needs root and Debian's mirror.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

[ "$(id -u)" -eq 0 ] || exec sudo --preserve-env=C4_BARE_MIRROR,TMPDIR,http_proxy,https_proxy "$C4_ROOT/scripts/test_containers.sh"

scripts/setup.sh build images
scripts/build.sh release nccl c4_verbs_tap c4 c4-install c4a c4d_master c4p_master c4-validate-worker
prefix=$(mktemp -d "${TMPDIR:-/tmp}/c4-prefix.XXXXXX")
trap 'rm -rf "$prefix"' EXIT
cmake --install build --prefix "$prefix" --component c4 >/dev/null
unshare --mount --pid --fork --kill-child --mount-proc --propagation private scripts/test_containers.py "$prefix"
