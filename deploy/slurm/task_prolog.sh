#!/bin/sh
# Slurm's TaskProlog: what it prints with `export` becomes the task's environment. So a job's ranks find the agent of
# their node, belong to one master whichever step they are of, and say which start of the job they are of. What the
# job has set itself stays.
[ -n "$C4_RUN_DIR" ] || echo "export C4_RUN_DIR=/dev/shm/c4"
[ -n "$C4_JOB_ID" ] || echo "export C4_JOB_ID=$SLURM_JOB_ID"
[ -n "$C4_INCARNATION" ] || echo "export C4_INCARNATION=${SLURM_RESTART_COUNT:-0}"
