#!/usr/bin/env bash
# test_bare.sh: shows that a bare Debian 12 suffices. Makes a minimal Debian below a temporary folder
# (debootstrap; mirror, proxies and certificates as this machine's own apt has them), copies in what git
# tracks or would take in, and runs `make test` there: nothing but make is installed beforehand. Needs root,
# some 6 GiB under TMPDIR. All it mounts and starts lives in namespaces of its own, so that it goes with it.
#   C4_BARE_MIRROR=URL  a mirror, where apt has none for Debian 12
#   C4_BARE_RUN=COMMAND what to run instead of `make test`
#   C4_BARE_WITH=FOLDER what git ignores and is to be copied all the same
# Exit status 75: no Debian could be made here, so that nothing was run.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

suite=bookworm
export C4_BARE_MIRROR=${C4_BARE_MIRROR:-} C4_BARE_RUN=${C4_BARE_RUN:-make test} C4_BARE_WITH=${C4_BARE_WITH:-}
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || die "this makes file systems: run it as root"
  exec sudo --preserve-env=C4_BARE_MIRROR,C4_BARE_RUN,C4_BARE_WITH,TMPDIR,http_proxy,https_proxy "$C4_ROOT/scripts/test_bare.sh"
fi

# As a clone would: nothing that git ignores. An export without git is taken whole, less its build folder.
copy_tree() {
  mkdir -p "$1"
  local git=(git -c safe.directory="$C4_ROOT")
  if "${git[@]}" rev-parse --git-dir >/dev/null 2>&1; then
    say "tree: $("${git[@]}" describe --always 2>/dev/null || echo 'no commit yet')," \
      "$("${git[@]}" status --porcelain --untracked-files=all | wc -l) files of it not committed"
    "${git[@]}" ls-files -z --cached --others --exclude-standard |
      while IFS= read -r -d '' file; do [ ! -e "$file" ] || printf '%s\0' "$file"; done |
      tar -c --null --no-recursion -T - -f - | tar -x -C "$1"
  else
    tar -c --exclude=./build . | tar -x -C "$1"
  fi
  [ -z "$C4_BARE_WITH" ] || cp -a --parents "$C4_BARE_WITH" "$1"
}

if [ "${1:-}" != --inside ]; then
  scripts/setup.sh bare
  work=$(mktemp -d "${TMPDIR:-/tmp}/c4-bare.XXXXXX")
  namespace=
  clean_up() {
    # unshare heeds no gentler signal; with it goes all that runs in its namespaces.
    [ -z "$namespace" ] || { kill -KILL "$namespace" && wait "$namespace"; } 2>/dev/null || true
    # The mounts are not seen out here: nothing but the folder itself can be removed.
    rm -rf --one-file-system "$work"
  }
  trap clean_up EXIT
  trap 'exit 130' INT TERM HUP
  copy_tree "$work/tree"
  # In the background, so that a signal reaches the trap at once; the namespaces end with the command.
  unshare --mount --pid --fork --kill-child --mount-proc --propagation private \
    "$C4_ROOT/scripts/test_bare.sh" --inside "$work" </dev/null &
  namespace=$!
  status=0
  wait "$namespace" || status=$?
  namespace=
  exit "$status"
fi

work=$2
root=$work/root
conf=$work/apt
mkdir -p "$root" "$conf"

# What apt itself would ask for Debian's own packages, whatever form its sources are written in: "URL SUITE
# FILE:LINE" a line.
apt_sources() {
  apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT) $(ORIGIN) $(SOURCESENTRY)' 'Created-By: Packages' |
    awk -v suite="$suite" '
      ($2 == suite || $2 == suite "-updates" || $2 == suite "-security") && $3 == "main" && $4 == "Debian" {
        sub(/\/$/, "", $1)
        print $1, $2, $5
      }' | sort -u
}
# The keyring file that the source of URL names in the sources' FILE, in either form; nothing where it does not.
keyring_of() {
  local url=$1 file=$2
  case $file in
    *.sources) awk -v RS= -v url="$url" 'index($0, url)' "$file" | sed -nE 's|^Signed-By:[[:space:]]*(/[^[:space:]]+).*|\1|Ip' ;;
    *) grep -F "$url" "$file" | sed -nE 's|^deb[[:space:]]+\[[^]]*signed-by=([^] ,]+).*|\1|p' ;;
  esac | head -n 1
}

if [ -n "$C4_BARE_MIRROR" ]; then
  sources="$C4_BARE_MIRROR $suite"
else
  sources=$(apt_sources)
  # An image that was stripped has no lists, and then apt does not say what it would ask.
  if [ -z "$sources" ]; then apt-get -qq update && sources=$(apt_sources); fi
fi
read -r mirror _ entry < <(awk -v suite="$suite" '$2 == suite' <<<"$sources") ||
  die "apt has no source for Debian's $suite here: set C4_BARE_MIRROR to a mirror's URL"
keyring=
if [ -n "$entry" ]; then keyring=$(keyring_of "$mirror" "${entry%:*}" || true); fi
if [ ! -f "$keyring" ]; then keyring=/usr/share/keyrings/debian-archive-keyring.gpg; fi
[ -f "$keyring" ] || die "no keyring for $mirror: apt-get install debian-archive-keyring"

awk '{ print "deb", $1, $2, "main" }' <<<"$sources" >"$conf/sources.list"
# How to reach the mirror: proxies, certificates, leniency about dates (mirrors of the past).
apt-config dump | grep -E '^Acquire::(http|https|Check-Valid-Until|Check-Date|ForceIPv4|ForceIPv6|Retries)\b' |
  grep -v ' "";$' >"$conf/apt.conf" || true
for scheme in http https; do
  proxy=$(apt-config dump --format '%v%n' "Acquire::$scheme::Proxy" | head -n 1)
  case $proxy in '' | DIRECT) ;; *) export "${scheme}_proxy=$proxy" ;; esac
done

install_base() {
  local include=()
  if grep -q 'https:' "$conf/sources.list" "$conf/apt.conf"; then include=(--include=ca-certificates); fi
  debootstrap --variant=minbase --keyring="$keyring" "${include[@]}" "$suite" "$root" "$mirror" >"$work/debootstrap.log" 2>&1 ||
    { tail -n 20 "$work/debootstrap.log" >&2; say "error: debootstrap failed"; exit 75; }
  cp "$conf/sources.list" "$root/etc/apt/sources.list"
  cp "$conf/apt.conf" "$root/etc/apt/apt.conf.d/00this-machine"
  cp "$keyring" "$root/etc/apt/trusted.gpg.d/"
  # Names are resolved as out here, and the same authorities are trusted.
  cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
  if [ ${#include[@]} -gt 0 ]; then
    cp -a /usr/local/share/ca-certificates/. "$root/usr/local/share/ca-certificates/"
    chroot "$root" update-ca-certificates >/dev/null
  fi
  local file
  while read -r file; do
    mkdir -p "$root$(dirname "$file")" && cp -L "$file" "$root$file"
  done < <(sed -nE 's/^Acquire::https?(::[^ ]*)?::(CaInfo|SslCert|SslKey) "(\/[^"]+)";$/\3/Ip' "$conf/apt.conf")
}

mount_kernel() {
  mount -t proc proc "$root/proc"
  mount -t sysfs -o ro sysfs "$root/sys" 2>/dev/null || mount --rbind /sys "$root/sys"
  # A machine has its control groups, which the hosts of an emulated fabric live in.
  [ ! -d /sys/fs/cgroup ] || [ -n "$(ls -A "$root/sys/fs/cgroup")" ] || mount --rbind /sys/fs/cgroup "$root/sys/fs/cgroup"
  mount -t tmpfs -o mode=755 tmpfs "$root/dev"
  local node
  for node in null zero full random urandom tty; do
    touch "$root/dev/$node" && mount --bind "/dev/$node" "$root/dev/$node"
  done
  ln -s /proc/self/fd "$root/dev/fd"
  ln -s fd/0 "$root/dev/stdin" && ln -s fd/1 "$root/dev/stdout" && ln -s fd/2 "$root/dev/stderr"
  mkdir "$root/dev/shm" "$root/dev/pts"
  mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
  mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts"
  ln -s pts/ptmx "$root/dev/ptmx"
}

inside() {
  chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 \
    ${http_proxy:+http_proxy="$http_proxy"} ${https_proxy:+https_proxy="$https_proxy"} bash -c "$1"
}

say "bare: Debian $suite from $mirror in $root"
begin_s=$SECONDS
install_base
mount_kernel
mkdir -p "$root/src"
mv "$work/tree" "$root/src/c4"
chown -R root:root "$root/src/c4"
say "== debootstrap: $((SECONDS - begin_s)) s, $(inside 'dpkg-query -W | wc -l') packages"
inside 'apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends install make' \
  >"$work/make.log" 2>&1 || { tail -n 20 "$work/make.log" >&2; die "make could not be installed"; }

begin_s=$SECONDS
status=0
inside "cd /src/c4 && $C4_BARE_RUN" || status=$?
say "== $C4_BARE_RUN on a bare Debian $suite: $((SECONDS - begin_s)) s, exit status $status"
exit "$status"
