#!/usr/bin/env python3
"""S2 from the verdict to the trainer: one data-parallel group of four becomes slow while a language model learns.

    mitigation_e2e.py [FACTOR...]      how many times as slow (default: 2)

Each job runs twice, with the same slow group: with and without `c4d_master --mitigate`. The slow-down is what an
iteration takes beyond those before the slow group; what is removed is told from the medians of the iterations after the
plan. The losses of both are compared. Prints a line a job; exit status 1 where a target is missed.
"""

import os
import re
import statistics
import subprocess
import sys
import tempfile

BIN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "build", "bin")
JOB = "mitigation-e2e"
RANKS = 4
MICRO_BATCHES = 64
SLOW_FROM = 60  # iterations
LEAST_REMOVED = 0.8
MOST_DIFFERENCE = 1e-3  # of losses
ITERATIONS = 260
TRAINER = ["--micro-batches", str(MICRO_BATCHES), "--batch", "1", "--width", "16", "--hidden", "32", "--layers", "2",
           "--sequence", "32", "--report-every", "1", "--slow-rank", "2", "--slow-from", str(SLOW_FROM)]


def run(factor, device_ms, mitigate):
    """Milliseconds and losses by iteration; the iteration of the first plan, or None; the ledger's text."""
    with tempfile.TemporaryDirectory(prefix="mitigation_e2e.") as folder:
        environment = {**os.environ, "C4D_FAIL_SLOW": "true", "C4_MITIGATE": "true" if mitigate else "false"}
        logs = os.path.join(folder, "logs")
        command = [os.path.join(BIN, "c4"), "run", "-n", str(RANKS), "--job", JOB, "--run-dir", folder, "--log-dir", logs,
                   "--", os.path.join(BIN, "lm_trainer"), "--iterations", str(ITERATIONS), "--device-ms", str(device_ms),
                   "--slow-factor", str(factor), *TRAINER]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1500, check=False)
        if done.returncode != 0:
            sys.exit(f"the job failed: {done.stderr[-2000:]}")
        ledger = subprocess.run([os.path.join(BIN, "c4"), "ledger", JOB, "--log-dir", logs, "--run-dir", folder],
                                capture_output=True, text=True, env=environment, check=False)
    lines = re.findall(r"iteration (\d+): loss ([\d.]+), ([\d.]+) ms", done.stdout)
    plan = re.search(r"plan \d+, before iteration (\d+): (\d+) of", done.stdout)
    return ([float(ms) for _, _, ms in lines], [float(loss) for _, loss, _ in lines],
            int(plan.group(1)) if plan else None, ledger.stdout + ledger.stderr)


def main():
    factors = [float(word) for word in sys.argv[1:]] or [2.0]
    device_ms = float(os.environ.get("DEVICE_MS", "10"))
    missed = False
    for factor in factors:
        plain_ms, plain_losses, _, _ = run(factor, device_ms, False)
        ms, losses, plan, ledger = run(factor, device_ms, True)
        print(ledger)
        if plan is None:
            print(f"{factor:g} times: nothing was done")
            missed = True
            continue
        healthy = statistics.median(ms[20:SLOW_FROM])
        slow = statistics.median(ms[SLOW_FROM + 2:plan])
        after = statistics.median(ms[plan + 2:])
        plain = statistics.median(plain_ms[SLOW_FROM + 2:])
        removed = (slow - after) / (slow - healthy)
        difference = max(abs(a - b) for a, b in zip(losses, plain_losses))
        print(f"{factor:g} times: {healthy:.0f} ms, slow {slow:.0f} ms (without mitigation to the end {plain:.0f} ms), "
              f"plan after {plan - SLOW_FROM} iterations, then {after:.0f} ms: {removed:.1%} of the slow-down removed; "
              f"losses differ by {difference:.6f} at most, {losses[-1]:.5f} and {plain_losses[-1]:.5f} at the end",
              flush=True)
        missed = missed or removed < LEAST_REMOVED or difference > MOST_DIFFERENCE
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
