#!/usr/bin/env bash
# setup_portable.sh: fetches the compiler that the portable library is built with, zig's (PyPI's ziglang, some 90 MB),
# into C4_ZIG or ~/.cache/c4/zig/VERSION, once. Says the folder on its standard output.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

version=0.17.1
if [ -n "${C4_ZIG:-}" ]; then
  [ -x "$C4_ZIG/zig" ] || die "C4_ZIG=$C4_ZIG has no zig in it: name the folder of the zig program, or unset it"
  echo "$C4_ZIG"
  exit 0
fi
folder=$HOME/.cache/c4/zig/$version
if [ ! -x "$folder/ziglang/zig" ]; then
  scripts/setup.sh portable
  say "fetching ziglang $version"
  mkdir -p "$HOME/.cache/c4/zig"
  work=$(mktemp -d "$HOME/.cache/c4/zig/.fetch.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  python3 -m pip install --quiet --no-deps --only-binary :all: --target "$work/$version" "ziglang==$version" >&2 ||
    die "PyPI's ziglang $version could not be fetched: name a folder that has zig $version in C4_ZIG"
  rm -rf "$folder"
  mv "$work/$version" "$folder"
fi
echo "$folder/ziglang"
