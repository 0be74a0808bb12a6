#!/usr/bin/env bash
# test_images.sh: c4-install of `make package` in systems such as training images have: Debian 12 (glibc 2.36), Ubuntu
# 20.04 (2.31) and Ubuntu 18.04 (2.27, older than the 2.28 of RHEL 8, whose packages debootstrap cannot unpack). Each is
# made by debootstrap, once, below C4_IMAGES (default: ~/.cache/c4/images; Debian from C4_BARE_MIRROR); in a copy of it c4-install puts C4's library
# in front of a double of NCCL in the folder of PyTorch's wheels, checks, and puts back. Needs root. What cannot be
# fetched is left out, loudly; without any it fails.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

[ "$(id -u)" -eq 0 ] || exec sudo --preserve-env=C4_BARE_MIRROR,C4_IMAGES,C4_ZIG,TMPDIR,http_proxy,https_proxy "$C4_ROOT/scripts/test_images.sh"

if [ "${1:-}" != --inside ]; then
  scripts/setup.sh images
  scripts/package.sh
  scripts/build.sh release fake_nccl_2.28.9
  work=$(mktemp -d "${TMPDIR:-/tmp}/c4-images.XXXXXX")
  trap 'rm -rf --one-file-system "$work"' EXIT
  # The mounts go with the namespace.
  unshare --mount --pid --fork --kill-child --mount-proc --propagation private "$C4_ROOT/scripts/test_images.sh" --inside "$work"
  exit
fi

work=$2
cache=${C4_IMAGES:-$HOME/.cache/c4/images}
mkdir -p "$cache"

# Ubuntu's archive keys, in a package of Ubuntu's whose hash was compared with their known fingerprints
# (790BC7277767219C42C86F933B4FE6ACC0B21F32, F6ECB3762474EDA9D21B7022871920D1991BC93C).
ubuntu=http://archive.ubuntu.com/ubuntu
ubuntu_keys() {
  local package=$cache/ubuntu-keyring.deb keyring=$cache/ubuntu-archive-keyring.gpg
  if [ ! -s "$keyring" ]; then
    wget -q -T 60 -O "$package" "$ubuntu/pool/main/u/ubuntu-keyring/ubuntu-keyring_2020.02.11.2_all.deb" || return 1
    sha256sum --quiet -c <<<"7564f3f76fbc9f165ecc30e2cf2695d38b284e234bffa0c6441ff37f8a7aebd7  $package" || return 1
    dpkg-deb --fsys-tarfile "$package" | tar -x -O ./usr/share/keyrings/ubuntu-archive-keyring.gpg >"$keyring.new"
    mv "$keyring.new" "$keyring"
  fi
  echo "$keyring"
}

# make_system SUITE MIRROR KEYRING: below the cache, unless it is there.
make_system() {
  local suite=$1 mirror=$2 keyring=$3
  [ ! -d "$cache/$suite" ] || return 0
  say "debootstrap $suite from $mirror"
  rm -rf --one-file-system "$cache/$suite.new"
  debootstrap --variant=minbase --include=python3-minimal --keyring="$keyring" "$suite" "$cache/$suite.new" "$mirror" \
    >"$cache/$suite.log" 2>&1 || return 1
  mv "$cache/$suite.new" "$cache/$suite"
}

# What a person does, in this order. Runs inside, by the system's sh: `want STATUS WORDS COMMAND...` runs the command,
# whose exit status and output have to be so.
cat >"$work/play.sh" <<'PLAY'
set -u
want() {
  status=$1 words=$2
  shift 2
  said=$("$@" 2>&1)
  got=$?
  case $said in *"$words"*) ;; *) got="$got, without '$words'" ;; esac
  [ "$got" = "$status" ] && return
  printf '%s: exit status %s, wanted %s\n%s\n' "$*" "$got" "$status" "$said"
  exit 1
}
nccl=/usr/lib/python3/dist-packages/nvidia/nccl/lib
c4=/opt/c4/bin/c4-install
want 0 "c4-install 0." $c4 --version
want 0 "c4-install doctor" $c4 --help
want 0 "did you mean C4_ENGINE?" env C4_ENGIN=host $c4 env
want 1 "Python's packages have NVIDIA's, unseen: $nccl/libnccl.so.2" $c4 doctor
mv /opt/c4/lib /opt/c4/gone
want 1 "is not beside this c4-install (in /opt/c4/bin or its ../lib)" $c4 --pip
mv /opt/c4/gone /opt/c4/lib
want 0 "installed: $nccl/libnccl.so.2 is C4's; NCCL 2.28.9 behind it" $c4 --pip
want 0 "" cmp $nccl/libnccl-vendor.so.2 /opt/double.so
want 0 "already" $c4 --pip
want 0 "no problems" $c4 doctor
want 0 "Python's packages have C4's: $nccl/libnccl.so.2" $c4 doctor
want 0 "undone: $nccl/libnccl.so.2 is NCCL 2.28.9 again" $c4 --pip --undo
want 0 "" cmp $nccl/libnccl.so.2 /opt/double.so
[ "$(ls -A $nccl)" = libnccl.so.2 ] || { ls -A $nccl; exit 1; }
PLAY

# try_system NAME SUITE
try_system() {
  local root=$work/$2 wheels=usr/lib/python3/dist-packages/nvidia/nccl/lib
  cp -a "$cache/$2" "$root"
  mkdir -p "$root/opt/c4" "$root/$wheels"
  cp -a build/package/c4/. "$root/opt/c4/"
  cp build/tests/doubles/fake_nccl_2.28.9.so "$root/opt/double.so"
  cp "$root/opt/double.so" "$root/$wheels/libnccl.so.2"
  mount -t proc proc "$root/proc"
  mount -t tmpfs tmpfs "$root/dev" && touch "$root/dev/null" && mount --bind /dev/null "$root/dev/null"
  local libc status=0
  libc=$(chroot "$root" ldd --version 2>/dev/null | sed -n '1s/.* //p')
  chroot "$root" env -i PATH=/usr/bin:/bin sh <"$work/play.sh" || status=$?
  umount -R "$root/dev" "$root/proc"
  [ "$status" -eq 0 ] || die "c4-install does not do in $1 (glibc $libc) what it should"
  say "$1 (glibc $libc): good"
}

tried=()
left_out=()
systems="Debian-12 bookworm
Ubuntu-20.04 focal
Ubuntu-18.04 bionic"
while read -r name suite <&3; do
  mirror=${C4_BARE_MIRROR:-http://deb.debian.org/debian}
  keyring=/usr/share/keyrings/debian-archive-keyring.gpg
  if [ "$suite" != bookworm ] && [ ! -d "$cache/$suite" ]; then
    mirror=$ubuntu
    keyring=$(ubuntu_keys) || { left_out+=("$name"); continue; }
  fi
  make_system "$suite" "$mirror" "$keyring" || { left_out+=("$name"); continue; }
  try_system "$name" "$suite"
  tried+=("$name")
done 3<<<"$systems"
[ ${#tried[@]} -gt 0 ] || die "no system to try c4-install in could be fetched: this needs Debian's or Ubuntu's mirror once"
for name in "${left_out[@]}"; do say "WARNING: $name NOT TRIED: it could not be fetched (what debootstrap said: $cache/*.log)"; done
say "tried in: ${tried[*]}"
