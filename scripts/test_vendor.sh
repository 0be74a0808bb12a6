#!/usr/bin/env bash
# test_vendor.sh [VERSION...]: the front door before real releases of NVIDIA's NCCL (tests/vendor). Takes the last
# patch of every minor release from 2.24 on from PyPI (nvidia-nccl-cu12), or the versions named; where PyPI is not
# reached, what was fetched before or is installed here, and says so loudly. The libraries, some 250 MB each, stay
# in C4_VENDOR_CACHE (default: ~/.cache/c4/nccl).
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

scripts/setup.sh build vendor
scripts/build.sh release nccl vendor_test

package=nvidia-nccl-cu12
cache=${C4_VENDOR_CACHE:-$HOME/.cache/c4/nccl}
mkdir -p "$cache"

# The last patch of each minor release from 2.24 on, oldest first.
releases() {
  python3 -m pip index versions "$package" 2>/dev/null |
    sed -n 's/^Available versions: //p' | tr ', ' '\n\n' | grep -E '^2\.[0-9]+\.[0-9]+' |
    awk -F. '$2 >= 24' | sort -t. -k2,2n -k3,3n | awk -F. '{ last[$2] = $0 } END { for (m in last) print last[m] }' |
    sort -t. -k2,2n
}

fetch() {
  local version=$1 to=$cache/$1/libnccl.so.2 work
  [ ! -s "$to" ] || return 0
  say "fetching $package $version"
  work=$(mktemp -d "$cache/.fetch.XXXXXX")
  if python3 -m pip download --quiet --no-deps --only-binary :all: -d "$work" "$package==$version" &&
    (cd "$work" && python3 -m zipfile -e ./*.whl .); then
    mkdir -p "$cache/$version"
    mv "$work/nvidia/nccl/lib/libnccl.so.2" "$to"
  else
    say "warning: $package $version could not be fetched"
  fi
  rm -rf "$work"
}

versions=("$@")
[ ${#versions[@]} -gt 0 ] || mapfile -t versions < <(releases)
if [ ${#versions[@]} -eq 0 ]; then
  say "warning: PyPI is not reached: only what is here already is tested"
  mapfile -t versions < <(cd "$cache" && ls -d 2.* 2>/dev/null || true)
fi
libraries=()
for version in "${versions[@]}"; do
  fetch "$version"
  [ ! -s "$cache/$version/libnccl.so.2" ] || libraries+=("$cache/$version/libnccl.so.2")
done
if [ ${#libraries[@]} -eq 0 ]; then
  for installed in /usr/lib/*/libnccl.so.2 /usr/local/*/lib*/libnccl.so.2; do
    [ ! -s "$installed" ] || libraries+=("$installed")
  done
fi
[ ${#libraries[@]} -gt 0 ] || die "no release of NCCL to test with: this needs PyPI once, or an installed libnccl.so.2"
say "tested with: ${libraries[*]}"

C4_VENDOR_LIBRARIES=$(IFS=:; echo "${libraries[*]}") C4_BUILD_DIR=$C4_ROOT/build C4_SOURCE_DIR=$C4_ROOT \
  build/tests/vendor_test --gtest_brief=1
