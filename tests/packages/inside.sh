#!/usr/bin/env bash
# inside.sh OLD NEW: installs, upgrades, removes and purges the Debian packages of the folder OLD (upgraded to those of
# NEW) in the system that it runs in, a minimal Debian made for it (scripts/test_packages.sh). Jobs run meanwhile.
set -euo pipefail

old=$1
new=$2
here=$(cd "$(dirname "$0")" && pwd)
packages=(libc4-nccl c4-agent c4-masters c4-tools c4-dev)
export DEBIAN_FRONTEND=noninteractive

say() { printf '%s\n' "$*" >&2; }
die() {
  say "error: $*"
  exit 1
}
apt() { apt-get -qq -y "$@" >/tmp/apt.log 2>&1 || { tail -n 30 /tmp/apt.log >&2; die "apt-get $*"; }; }
# want WORDS COMMAND...: it succeeds, and says these words.
want() {
  local words=$1 said
  shift
  said=$("$@" 2>&1) || die "$* failed: $said"
  case $said in *"$words"*) ;; *) die "$* says no '$words': $said" ;; esac
}
# Whatever has our name, but for this tree, what is the kernel's, and apt's own notes.
ours() {
  find / \( -path /proc -o -path /sys -o -path /src -o -path /tmp -o -path /var/cache -o -path /var/log/apt \
    -o -path /dev/fd -o -path /usr/share/zoneinfo \) -prune -o -regex '.*/\(lib\)?c4[^/]*' -print | sort
  getent passwd c4 || true
  getent group c4 || true
}
job() { # SECONDS: a job of two ranks in the background
  rm -f /tmp/job.id
  c4 run --no-log -n 2 -- python3 "$here/job.py" "$1" /tmp/job.id >/tmp/job.log 2>&1 &
  job=$!
  for _ in $(seq 600); do
    [ ! -e /tmp/job.id ] || break
    kill -0 "$job" 2>/dev/null || break
    sleep 0.1
  done
  [ -e /tmp/job.id ] || { cat /tmp/job.log >&2; die "the job did not begin"; }
}
job_ends_well() {
  wait "$job" || { cat /tmp/job.log >&2; die "the job failed during $1"; }
  [ "$(grep -c ' rounds$' /tmp/job.log)" -eq 2 ] || { cat /tmp/job.log >&2; die "not both ranks came to their end"; }
}

apt update
apt install --no-install-recommends python3-minimal libpython3-stdlib
ours >/tmp/before

say "== install"
apt install --no-install-recommends "$old"/*.deb
want "commit" c4 version
for program in c4a c4d_master c4p_master c4-install; do want "0." $program --version; done
want "C4 daemons" getent passwd c4
[ -d /dev/shm/c4/masters ] || die "the run directory was not made"
for verb in $(c4 --help | sed -n 's/^  \([a-z]*\) .*/\1/p'); do
  [ -e "/usr/share/man/man1/c4-$verb.1.gz" ] || die "there is no manual page of c4 $verb"
done
bash -n /usr/share/bash-completion/completions/c4
# As its unit does it, but for what systemd adds.
setpriv --reuid=c4 --regid=c4 --clear-groups /usr/bin/c4a --run-dir /dev/shm/c4 >/tmp/agent.log 2>&1 &
agent=$!
for _ in $(seq 100); do [ -e /dev/shm/c4/agent.sock ] && break || sleep 0.1; done
[ -S /dev/shm/c4/agent.sock ] || { cat /tmp/agent.log >&2; die "the agent did not start as its user"; }
mkdir -p /var/lib/c4 && touch /var/lib/c4/c4d-old.db && chown -R c4: /var/lib/c4
echo 'C4A_LOG_LEVEL=warning' >>/etc/c4/c4a.env

say "== upgrade while a job runs"
job 20
apt install --no-install-recommends "$new"/*.deb
job_ends_well "the upgrade"
[ "$(dpkg-query -W -f '${Version}' c4-tools)" != "$(dpkg-deb -f "$(ls "$old"/c4-tools_*)" Version)" ] || die "nothing was upgraded"
grep -q C4A_LOG_LEVEL=warning /etc/c4/c4a.env || die "the upgrade has taken the settings away"
[ -e /var/lib/c4/c4d-old.db ] || die "the upgrade has taken the store away"

say "== removal while a job runs"
job 20
apt remove "${packages[@]}"
job_ends_well "the removal"
for gone in /usr/bin/c4 /usr/bin/c4a /usr/lib/c4 /lib/systemd/system/c4a.service; do [ ! -e $gone ] || die "$gone is there still"; done
[ -e /etc/c4/c4a.env ] && [ -e /var/lib/c4/c4d-old.db ] || die "a removal took settings or store away"
kill "$agent" && wait "$agent" || true

say "== purge"
# What has left nothing behind apt knows no more.
dpkg --purge "${packages[@]}" >/tmp/apt.log 2>&1 || { cat /tmp/apt.log >&2; die "dpkg --purge"; }
ours >/tmp/after
diff /tmp/before /tmp/after >&2 || die "the purge left something, see above"

say "== the agent alone, purged at once"
apt install --no-install-recommends "$new"/c4-agent_*.deb
apt purge c4-agent
ours >/tmp/after
diff /tmp/before /tmp/after >&2 || die "the purge left something, see above"
say "the Debian packages: good"
