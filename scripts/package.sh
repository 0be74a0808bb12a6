#!/usr/bin/env bash
# package.sh: what is handed out, without symbols, into build/package/c4 (bin, lib), and the symbols, for debuggers,
# into build/package/c4-debug. The library and c4-install are the portable ones, for images of any age; c4 and the
# daemons are for this system.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

scripts/setup.sh build
C4_ZIG=$(scripts/setup_portable.sh)
export C4_ZIG
scripts/build.sh release nccl c4_verbs_tap c4 c4-install c4a c4d_master c4p_master
scripts/build.sh portable nccl c4_verbs_tap c4-install

package=build/package
rm -rf "$package"
for build in build build/portable; do # the portable ones last: they take the place of this system's
  cmake --install "$build" --prefix "$C4_ROOT/$package/c4" --component c4 >/dev/null
  cmake --install "$build" --prefix "$C4_ROOT/$package/c4-debug" --component c4-debug >/dev/null
done
say "MiB of each, and of its symbols:"
for file in "$package"/c4/bin/* "$package"/c4/lib/libnccl.so.2.*; do
  say "$(basename "$file") $(stat -c %s "$file" "${file/c4/c4-debug}.debug" | awk '{ printf " %.1f", $1 / 1048576 }')"
done
say "the package: $C4_ROOT/$package/c4"
