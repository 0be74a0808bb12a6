#!/usr/bin/env bash
# package.sh [--native]: what is handed out, without symbols, into build/package/c4 (bin, lib), the symbols, for
# debuggers, into build/package/c4-debug, what programs are compiled with into build/package/c4-dev; Debian packages
# of these into build/package/debian, the wheel c4-nccl into build/package/wheel. The library and c4-install are the
# portable ones, for images of any age; c4 and the daemons are for this system. With --native they are all for this
# system (no compiler is fetched), and the wheel says so in its name.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

builds=(build build/portable) # the portable ones last: they take the place of this system's
case "${1:-}" in
  "") ;;
  --native) builds=(build) ;;
  *) die "usage: package.sh [--native]" ;;
esac

scripts/setup.sh build
scripts/build.sh release nccl c4_verbs_tap c4 c4-install c4a c4-validate-worker c4d_master c4p_master
if [ "${#builds[@]}" -eq 2 ]; then
  C4_ZIG=$(scripts/setup_portable.sh)
  export C4_ZIG
  scripts/build.sh portable nccl c4_verbs_tap c4-install
fi

package=build/package
rm -rf "$package"
cmake --install build --prefix "$C4_ROOT/$package/c4-dev" --component c4-dev >/dev/null
for build in "${builds[@]}"; do
  cmake --install "$build" --prefix "$C4_ROOT/$package/c4" --component c4 >/dev/null
  cmake --install "$build" --prefix "$C4_ROOT/$package/c4-debug" --component c4-debug >/dev/null
done
say "MiB of each, and of its symbols:"
for file in "$package"/c4/bin/* "$package"/c4/lib/libnccl.so.2.*; do
  say "$(basename "$file") $(stat -c %s "$file" "${file/c4/c4-debug}.debug" | awk '{ printf " %.1f", $1 / 1048576 }')"
done
say "the package: $C4_ROOT/$package/c4"
scripts/debian.sh
scripts/wheel.py build/package/c4 build/package/wheel >&2
