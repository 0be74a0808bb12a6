#!/usr/bin/env bash
# slurm_cluster.sh start FOLDER PREFIX NODES | stop FOLDER PREFIX: a real Slurm of Debian's packages on this
# machine (scripts/setup.sh slurm): munged, slurmctld and one slurmd a host, each host with a network and a host
# name of its own (PREFIX1, PREFIX2, ...). The controller is in the namespace PREFIX-ctl, with the bridge.
# SLURM_CLUSTER_EXTRA: more lines for slurm.conf. FOLDER gets slurm.conf, logs and spool; SLURM_CONF=FOLDER/slurm.conf leads the tools there. Needs root.
# Afterwards FOLDER/pids lists what runs, a line each: NAME PID.
set -euo pipefail

command=$1 folder=$2 prefix=$3 nodes=${4:-0}
network=10.77.7

in_host() {  # NAMESPACE HOST WORDS...: in its network, with its name (not `ip netns exec`, which hides /sys/fs/cgroup from slurmd)
  local namespace=$1 host=$2
  shift 2
  nsenter --net="/run/netns/$namespace" unshare --uts sh -c 'hostname "$0"; exec "$@"' "$host" "$@"
}

await() {  # WHAT COMMAND...: for 20 s
  local what=$1 i
  shift
  for i in $(seq 200); do
    "$@" >/dev/null 2>&1 && return 0
    sleep 0.1
  done
  echo "slurm_cluster.sh: $what did not come up; see $folder" >&2
  return 1
}

stop() {
  local name pid
  if [ -f "$folder/pids" ]; then
    while read -r name pid; do kill -KILL "$pid" 2>/dev/null || true; done <"$folder/pids"
  fi
  # What jobs left behind, and what an earlier run did.
  for namespace in $(ip netns list | awk '{ print $1 }' | grep -E "^$prefix(-ctl|[0-9]+)$" || true); do
    for pid in $(ip netns pids "$namespace"); do kill -KILL "$pid" 2>/dev/null || true; done
    ip netns delete "$namespace"
  done
  rm -f "$folder/pids"
}

start() {
  local i tool
  for tool in munged slurmctld slurmd scontrol ip; do
    command -v "$tool" >/dev/null || {
      echo "slurm_cluster.sh: $tool is missing; run scripts/setup.sh slurm" >&2
      exit 77
    }
  done
  stop
  mkdir -p "$folder"/{state,munge}
  chmod 755 "$folder" "$folder/munge"
  dd if=/dev/urandom of="$folder/munge/key" bs=64 count=1 status=none
  chmod 400 "$folder/munge/key"
  {
    cat <<END
ClusterName=$prefix
SlurmctldHost=$prefix-ctl($network.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$folder/munge/socket
CredType=cred/munge
StateSaveLocation=$folder/state
SlurmctldPidFile=$folder/slurmctld.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdSpoolDir=$folder/spool-%n
SlurmdPidFile=$folder/%n.pid
SlurmdLogFile=$folder/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/linear
SchedulerParameters=sched_interval=1
SchedulerType=sched/builtin
MpiDefault=none
ReturnToService=1
SlurmdTimeout=60
UnkillableStepTimeout=60
InactiveLimit=0
MinJobAge=600
GroupUpdateForce=0
END
    [ -z "${SLURM_CLUSTER_EXTRA:-}" ] || echo "$SLURM_CLUSTER_EXTRA"
    for i in $(seq "$nodes"); do
      echo "NodeName=$prefix$i NodeAddr=$network.$((10 + i)) CPUs=$(nproc) RealMemory=100 State=UNKNOWN"
    done
    echo "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP"
  } >"$folder/slurm.conf"
  printf 'CgroupPlugin=autodetect\nIgnoreSystemd=yes\n' >"$folder/cgroup.conf"
  export SLURM_CONF=$folder/slurm.conf
  : >"$folder/pids"

  ip netns add "$prefix-ctl"
  ip -n "$prefix-ctl" link set lo up
  ip -n "$prefix-ctl" link add bridge type bridge
  ip -n "$prefix-ctl" addr add "$network.1/24" dev bridge
  ip -n "$prefix-ctl" link set bridge up
  in_host "$prefix-ctl" "$prefix-ctl" munged --force --foreground --socket="$folder/munge/socket" \
    --key-file="$folder/munge/key" --pid-file="$folder/munge/pid" --seed-file="$folder/munge/seed" \
    --log-file="$folder/munge/log" >"$folder/munged.out" 2>&1 &
  echo "munged $!" >>"$folder/pids"
  await munged test -S "$folder/munge/socket"
  in_host "$prefix-ctl" "$prefix-ctl" slurmctld -D -c >"$folder/slurmctld.out" 2>&1 &
  echo "slurmctld $!" >>"$folder/pids"
  for i in $(seq "$nodes"); do
    ip netns add "$prefix$i"
    ip -n "$prefix$i" link set lo up
    ip -n "$prefix-ctl" link add "host$i" type veth peer name eth0 netns "$prefix$i"
    ip -n "$prefix-ctl" link set "host$i" master bridge up
    ip -n "$prefix$i" addr add "$network.$((10 + i))/24" dev eth0
    ip -n "$prefix$i" link set eth0 up
    ip -n "$prefix$i" route add default via "$network.1"
    mkdir -p "$folder/spool-$prefix$i"
    in_host "$prefix$i" "$prefix$i" slurmd -D -N "$prefix$i" >"$folder/$prefix$i.out" 2>&1 &
    echo "$prefix$i $!" >>"$folder/pids"
  done
  await "slurmctld" ip netns exec "$prefix-ctl" scontrol ping
  all_idle() { [ "$(ip netns exec "$prefix-ctl" sinfo -h -N -t idle -o %N | wc -l)" = "$nodes" ]; }
  await "all of the $nodes hosts" all_idle
}

case $command in
  start)
    trap '[ $? -eq 0 ] || stop' EXIT
    start
    ;;
  stop) stop ;;
  *)
    echo "slurm_cluster.sh: say start or stop" >&2
    exit 2
    ;;
esac
