#!/bin/sh
# Slurm's Prolog, as root on each node of a job before it begins. A node without an agent is told of, and the job begins
# all the same. With C4_PREFLIGHT=1 in /etc/c4/slurm.env the node's devices are tested as well (seconds): Slurm drains a
# node whose prolog fails, and begins the job on another one. It has no search path of its own.
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
[ ! -r /etc/c4/slurm.env ] || . /etc/c4/slurm.env
systemctl is-active --quiet c4a ||
  logger -t c4 "job $SLURM_JOB_ID begins on $SLURMD_NODENAME without C4's agent: systemctl start c4a"
[ "${C4_PREFLIGHT:-0}" = 1 ] || exit 0
command -v c4 >/dev/null || exit 0
c4 validate --preflight --no-links >/dev/null 2>&1
# 1: a device is slow or broken. Whatever else kept the test from being made is no fault of the node's.
[ $? -ne 1 ]
