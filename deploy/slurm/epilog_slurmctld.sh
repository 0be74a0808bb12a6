#!/bin/sh
# Slurm's EpilogSlurmctld: ends the job's master ten minutes later, unless the job goes on by then. Until then a job that
# failed can be started again by its master. It has no search path of its own.
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
if [ "${1:-}" != later ]; then
  systemd-run --quiet --on-active=600 --setenv=SLURM_JOB_ID="$SLURM_JOB_ID" "$0" later
  exit 0
fi
case $(squeue --noheader --states=all --jobs="$SLURM_JOB_ID" --format=%T 2>/dev/null) in
  PENDING | RUNNING | COMPLETING | CONFIGURING | SUSPENDED) exit 0 ;;
esac
systemctl stop --no-block "c4d_master@$SLURM_JOB_ID"
exit 0
