#!/usr/bin/env bash
# test_packages.sh [--native] [--built]: what `make package` makes, used as people use it. The Debian packages are
# installed, upgraded, removed and purged in a minimal Debian (test_bare.sh), while jobs run; a C program is built
# against c4-dev by pkg-config and CMake; the wheels are installed from file in a clean environment. --native is
# package.sh's; with --built what build/package holds is taken. What cannot be done here is left out, loudly.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

native=()
built=0
for word in "$@"; do
  case $word in
    --native) native=(--native) ;;
    --built) built=1 ;;
    *) die "usage: test_packages.sh [--native] [--built]" ;;
  esac
done
package=$C4_ROOT/build/package
scripts/setup.sh debian lintian
if [ "$built" -eq 0 ]; then
  scripts/package.sh "${native[@]}"
  scripts/build.sh release fake_nccl_2.28.9
fi
[ -d "$package/debian" ] || die "there is no $package/debian: make package"
C4_DEB_VERSION=$(dpkg-deb -f "$(echo "$package"/debian/c4-tools_*.deb)" Version)+next C4_DEB_OUT=$package/debian-next \
  C4_SKIP_LINTIAN=1 scripts/debian.sh
work=$(mktemp -d "${TMPDIR:-/tmp}/c4-packages.XXXXXX")
trap 'rm -rf --one-file-system "$work"' EXIT

# What is in c4-dev compiles and links a program, by pkg-config and by CMake, wherever it lies.
development() {
  local root=$work/root program
  for program in libc4-nccl c4-dev; do dpkg-deb -x "$(echo "$package"/debian/"$program"_*.deb)" "$root"; done
  local flags
  flags=$(PKG_CONFIG_SYSROOT_DIR=$root PKG_CONFIG_LIBDIR=$root/usr/lib/x86_64-linux-gnu/pkgconfig \
    pkg-config --cflags --libs c4-nccl)
  # shellcheck disable=SC2086 # flags are words
  cc -o "$work/by-pkg-config" examples/quickstart.c $flags
  mkdir "$work/project"
  cp examples/quickstart.c "$work/project/"
  printf '%s\n' 'cmake_minimum_required(VERSION 3.16)' 'project(quickstart C)' 'find_package(c4-nccl 0.1 REQUIRED)' \
    'add_executable(quickstart quickstart.c)' 'target_link_libraries(quickstart C4::nccl)' >"$work/project/CMakeLists.txt"
  cmake -S "$work/project" -B "$work/project/build" -DCMAKE_PREFIX_PATH="$root/usr" >"$work/cmake.log" 2>&1 &&
    cmake --build "$work/project/build" >>"$work/cmake.log" 2>&1 || { cat "$work/cmake.log" >&2; return 1; }
  for program in "$work/by-pkg-config" "$work/project/build/quickstart"; do
    objdump -p "$program" | grep -q 'NEEDED *libnccl.so.2$' || { say "$program is not linked to libnccl.so.2"; return 1; }
    LD_LIBRARY_PATH=$root/usr/lib/c4 "$package/c4/bin/c4" run --no-log -n 2 -- "$program" >"$work/run.log" 2>&1 ||
      { cat "$work/run.log" >&2; return 1; }
  done
}

wheel() {
  local double=build/tests/doubles/fake_nccl_2.28.9.so venv=$work/venv folder
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --no-index "$package"/wheel/c4_nccl-*.whl
  folder=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/nvidia/nccl/lib
  "$venv/bin/python" -c 'import ctypes, c4_nccl, pathlib
ctypes.CDLL(c4_nccl.library()).c4StreamCreate
assert pathlib.Path(c4_nccl.include(), "c4/stream.h").exists()'
  "$venv/bin/c4-install" --version
  [ -e "$double" ] || { say "there is no $double: scripts/build.sh release fake_nccl_2.28.9"; return 1; }
  mkdir -p "$folder"
  cp "$double" "$folder/libnccl.so.2"
  "$venv/bin/c4-install" --pip
  cmp "$folder/libnccl.so.2" "$("$venv/bin/python" -c 'import c4_nccl; print(c4_nccl.library())')"
  cmp "$folder/libnccl-vendor.so.2" "$double"
  # A newer one of ours over itself, and another NCCL over ours: the first goes, the second is told of.
  "$venv/bin/pip" install --quiet --no-index --force-reinstall "$package"/wheel/c4_nccl-*.whl
  "$venv/bin/c4-install" --pip
  "$venv/bin/c4-install" --pip --undo
  cmp "$folder/libnccl.so.2" "$double"
  "$venv/bin/pip" uninstall --quiet --yes c4-nccl
  [ ! -e "$venv/bin/c4-install" ] && [ ! -e "${folder%/nvidia/nccl/lib}/c4_nccl" ]
}

# Built by test_torch.sh, if somebody has: its wheel holds the marks of c4_train as well.
torch_wheel() {
  local wheel
  wheel=$(ls build/torch/wheel/c4_torch-*.whl 2>/dev/null) || { say "SKIPPED: no c4_torch wheel in build/torch (make test-torch)"; return 0; }
  local names
  names=$(python3 -m zipfile -l "$wheel")
  for name in c4_torch/__init__.py c4_torch/_C c4_train/marks.py entry_points.txt; do
    grep -q "$name" <<<"$names" || { say "$wheel has no $name"; return 1; }
  done
}

system() {
  [ "$(id -u)" -eq 0 ] || command -v sudo >/dev/null || { say "SKIPPED: making a Debian system needs root"; return 0; }
  local status=0
  C4_BARE_RUN='tests/packages/inside.sh /src/c4/build/package/debian /src/c4/build/package/debian-next' \
    C4_BARE_WITH=build/package scripts/test_bare.sh || status=$?
  [ "$status" -ne 75 ] || { say "SKIPPED: no Debian could be fetched to install the packages in"; return 0; }
  return "$status"
}

# A function in a condition goes on after what fails in it: each part is a shell of its own.
failed=()
for part in development wheel torch_wheel system; do
  say "== $part"
  status=0
  (set -e; "$part") & wait $! || status=$?
  [ "$status" -eq 0 ] || failed+=("$part")
done
[ ${#failed[@]} -eq 0 ] || die "failed: ${failed[*]}"
say "the packages: good"
