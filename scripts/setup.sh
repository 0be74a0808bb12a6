#!/usr/bin/env bash
# setup.sh [GROUP...]: installs the Debian packages of these groups (packages.txt; default: build) that are
# missing. Takes a moment and touches nothing when all are there. C4_SKIP_SETUP=1 trusts the machine instead.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

[ "${C4_SKIP_SETUP:-0}" != 1 ] || exit 0
[ $# -gt 0 ] || set -- build

wanted=()
for group in "$@"; do
  mapfile -t of_group < <(awk -v group="$group" '$1 == group { print $2 }' scripts/packages.txt)
  [ ${#of_group[@]} -gt 0 ] || die "scripts/packages.txt has no group '$group'"
  wanted+=("${of_group[@]}")
done

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  say "This is no Debian system. Install the counterparts of these packages of Debian 12, then run again"
  say "with C4_SKIP_SETUP=1: ${wanted[*]}"
  exit 1
fi

missing() {
  local have
  have=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "${wanted[@]}" 2>/dev/null || true)
  # Node.js from its makers brings npm along, and does not go together with Debian's.
  if command -v npm >/dev/null; then have+=$'\ninstalled npm'; fi
  comm -23 <(printf '%s\n' "${wanted[@]}" | sort -u) <(sed -n 's/^installed //p' <<<"$have" | sort -u)
}

mapfile -t absent < <(missing)
[ ${#absent[@]} -gt 0 ] || exit 0
mkdir -p build
log=build/setup.log
: >"$log"
say "setup: installing ${#absent[@]} packages that are missing, and what they need: ${absent[*]}"
say "setup: what apt says goes to $log"

apt() {
  as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 "$@" \
    </dev/null >>"$log" 2>&1
}
# Debian's own answer to "is this list of packages good for an installation?" is a simulation of it.
installable() {
  apt-get -qq --simulate --no-install-recommends install "${absent[@]}" >/dev/null 2>&1
}
give_up() {
  tail -n 20 "$log" >&2
  die "apt-get failed (all of it in $log); wanted: ${absent[*]}"
}
install() { apt -y --no-install-recommends install "${absent[@]}"; }

updated=0
if ! installable; then
  say "setup: apt does not know them all; updating its lists"
  apt update || give_up
  updated=1
fi
if ! install; then
  [ "$updated" -eq 0 ] || give_up
  say "setup: apt's lists may be out of date; updating them and trying once more"
  apt update || give_up
  install || give_up
fi

mapfile -t absent < <(missing)
[ ${#absent[@]} -eq 0 ] || die "still missing after the installation: ${absent[*]}"
