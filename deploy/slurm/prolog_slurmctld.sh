#!/bin/sh
# Slurm's PrologSlurmctld: a master for each job, on the controller's machine. It is there already when the job was
# requeued. Never fails: the job would be held. It has no search path of its own.
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
systemctl start --no-block "c4d_master@$SLURM_JOB_ID" ||
  logger -t c4 "no master for job $SLURM_JOB_ID: journalctl -u c4d_master@$SLURM_JOB_ID"
exit 0
