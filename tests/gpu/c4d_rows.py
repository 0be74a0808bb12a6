"""Rows of checks.py in which C4D watches a job on the GPU: `c4 run` starts the ranks, their agent and their master."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import jobs

WORLD = 3
CULPRIT = 1
USUAL_S = 25  # before the rank becomes slow, so that there is something usual
PATIENCE_S = 60
# A process that runs may be in a long kernel or a checkpoint: it is confirmed after hang-limit-s (c4 policy) only.
HANG_LIMIT_S = 120


def wait_for_culprit(verdicts, states, patience_s=PATIENCE_S):
    """`verdicts` tells the open ones, as `c4 verdicts --json` has them."""
    begin = time.monotonic()
    others = set()
    while time.monotonic() - begin < patience_s:
        for verdict in verdicts():
            culprit = verdict.get("culprit", {})
            if verdict.get("state") in states and culprit.get("rank") == CULPRIT:
                return f"rank {CULPRIT} {verdict['state']} after {time.monotonic() - begin:.0f} s: " \
                       f"{verdict.get('syndrome', '?')}"
            others.add(f"{verdict.get('state')} {culprit.get('kind')} {culprit.get('rank')}")
        time.sleep(0.5)
    raise jobs.Failed(f"rank {CULPRIT} was not named within {patience_s} s; said was {sorted(others)}")


class Watched:
    """A job under `c4 run`; ended when it is left."""

    def __init__(self, bench, arguments, net="C4"):
        for program in ("c4", "c4a", "c4d_master"):
            if not os.access(os.path.join(bench.options.bin, program), os.X_OK):
                raise jobs.NotRun(f"no {program} in {bench.options.bin}: build it, or name its folder in C4_BIN")
        if not bench.dry:
            bench.needs_gpu()
        self.pids = {}
        self.folder = tempfile.mkdtemp(prefix="c4-gpu-")
        self.c4 = os.path.join(bench.options.bin, "c4")
        self.log = bench.place.log("c4d")
        environment = bench.place.environment(False, {"C4_ENGINE": "host" if bench.dry else "vendor"})
        environment.pop("NCCL_NET")
        command = [self.c4, "run", "-n", str(WORLD), "--run-dir", self.folder, "--"]
        if bench.dry:
            program = [os.path.join(jobs.HERE, "host_ranks.py"), "loop", bench.options.library]
        else:
            # Not in the environment of `c4 run`, which is no rank.
            wanted = bench.place.environment(True, {"NCCL_NET": net})
            command += ["env"] + [f"{name}={wanted[name]}" for name in ("LD_PRELOAD", "C4_VENDOR_LIBRARY", "NCCL_NET")]
            program = [os.path.join(jobs.HERE, "ranks.py"), "loop"]
        command += [sys.executable, *program, *arguments]
        self.process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=self.log,
                                        start_new_session=True)
        self.recording = None
        self.environment = environment

    def __enter__(self):
        return self

    def record(self):
        """What C4D hears is kept beside the log, so that a row that fails can be judged again."""
        self.recording = subprocess.Popen(
            [self.c4, "record", "--run-dir", self.folder, "-o", self.log.name.removesuffix(".log") + ".c4rec",
             "--seconds", "200"], env=self.environment, stdout=self.log, stderr=self.log)

    def __exit__(self, *_):
        if self.recording is not None:
            self.recording.send_signal(signal.SIGINT)
            try:
                self.recording.wait(timeout=10)
            except subprocess.TimeoutExpired:
                self.recording.kill()
        subprocess.run([self.c4, "verdicts", "-v", "--run-dir", self.folder], stdout=self.log, stderr=self.log)
        for pid in self.pids.values():
            try:
                os.kill(pid, signal.SIGCONT)
            except ProcessLookupError:
                pass
        self.process.terminate()
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def started(self):
        """The ranks' processes, once all of them have communicators."""
        deadline = time.monotonic() + 120
        os.set_blocking(self.process.stdout.fileno(), False)
        text = b""
        while len(self.pids) < WORLD and time.monotonic() < deadline and self.process.poll() is None:
            text += self.process.stdout.read() or b""
            for line in text[: text.rfind(b"\n") + 1].splitlines():
                try:
                    said = json.loads(line)
                    self.pids[said["rank"]] = said["pid"]
                except (ValueError, KeyError, TypeError):
                    continue
            time.sleep(0.2)
        if len(self.pids) < WORLD:
            raise jobs.Failed(f"{len(self.pids)} of {WORLD} ranks came: {jobs.last_line(self.log)}")
        self.record()
        return self.pids

    def verdicts(self):
        done = subprocess.run([self.c4, "verdicts", "--json", "--run-dir", self.folder], capture_output=True, text=True)
        try:
            return json.loads(done.stdout)["verdicts"] if done.stdout else []
        except (ValueError, KeyError):
            return []

    def wait_for_culprit(self, states, patience_s=PATIENCE_S):
        return wait_for_culprit(self.verdicts, states, patience_s)

    def nothing_confirmed(self, seconds):
        """Nothing is wrong with the job: C4D may suspect, and has to say nothing surer."""
        time.sleep(seconds)
        confirmed = [verdict for verdict in self.verdicts() if verdict.get("state") == "confirmed"]
        if confirmed:
            raise jobs.Failed(f"confirmed without a fault: {[verdict.get('text') for verdict in confirmed]}")


def healthy(bench):
    with Watched(bench, []) as job:
        job.started()
        job.nothing_confirmed(USUAL_S)
        return f"{WORLD} ranks at work for {USUAL_S} s: no verdict was confirmed"


def stopped(bench):
    with Watched(bench, []) as job:
        pids = job.started()
        time.sleep(5)
        os.kill(pids[CULPRIT], signal.SIGSTOP)
        return job.wait_for_culprit({"confirmed"})


def killed(bench):
    """As by the kernel's out-of-memory killer: without a last word."""
    with Watched(bench, []) as job:
        pids = job.started()
        time.sleep(5)
        os.kill(pids[CULPRIT], signal.SIGKILL)
        return job.wait_for_culprit({"confirmed"})


def spinning(bench):
    """All ranks have called the operation; on one GPU it waits behind a kernel that does not end."""
    if bench.dry:
        raise jobs.NotRun("a dry run: no GPU")
    with Watched(bench, ["spin", str(CULPRIT), "8"]) as job:
        job.started()
        time.sleep(8)
        return job.wait_for_culprit({"confirmed"}, HANG_LIMIT_S + 30)


def slow(net):
    """`net`: whose transport carries the job. NCCL's own shows neither addresses nor paths."""
    def check(bench):
        if bench.dry and net != "C4":
            raise jobs.NotRun("a dry run: no GPU")
        with Watched(bench, ["slow", str(CULPRIT), "60", str(USUAL_S)], net) as job:
            job.started()
            return job.wait_for_culprit({"suspected", "confirmed"})
    return check
