"""The backend c4 of PyTorch, in jobs of four ranks that `c4 run` starts. Needs torch, c4_torch and C4's programs:
`make test-torch` sees to all three. C4_BUILD_DIR: the build folder."""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
BUILD = Path(os.environ.get("C4_BUILD_DIR", HERE.parents[1] / "build"))
C4 = str(BUILD / "bin" / "c4")
RANKS = 4
LIMIT_S = 300
START_S, NAMED_S = 200, 60  # most of it is for a machine that does other things


def environment(**more):
    return {**os.environ, "OMP_NUM_THREADS": "1", "TORCH_FR_BUFFER_SIZE": "2000", **more}


def command(name, *arguments, c4_arguments=()):
    job = [sys.executable, str(HERE / "torch_job.py"), name, *arguments]
    return [C4, "run", "-n", str(RANKS), *c4_arguments, "--", *job]


class TorchTest(unittest.TestCase):
    def run_job(self, name, *arguments, **more):
        done = subprocess.run(
            command(name, *arguments),
            env=environment(**more),
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def test_collectives(self):
        output = self.run_job("collectives")
        self.assertEqual(len(re.findall(r"check_work in a half", output)), RANKS, output)

    def test_training(self):
        output = self.run_job("training")
        for way in ("data_parallel", "fully_sharded", "tensor_parallel", "pipeline", "meshes"):
            self.assertEqual(output.count(way), RANKS, output)

    def test_mixed_backends_and_split(self):
        self.assertEqual(self.run_job("mixed_backends").count("mixed and split"), RANKS)

    def test_time_out(self):
        """PyTorch's Flight Recorder writes its dumps by itself then."""
        with tempfile.TemporaryDirectory() as folder:
            output = self.run_job("time_out", TORCH_FR_DUMP_TEMP_FILE=f"{folder}/nccl_trace_rank_")
            self.assertGreaterEqual(output.count("timed out"), 1)
            self.assertEqual(output.count("failed for good"), RANKS - 1)
            self.assertEqual(len(list(Path(folder).iterdir())), RANKS - 1)
            self.assert_hang_names(folder, "rank 1")

    def assert_hang_names(self, folder, culprit):
        hang = subprocess.run([C4, "hang", folder], capture_output=True, text=True, check=False)
        self.assertIn(culprit, hang.stdout, hang.stdout + hang.stderr)

    def test_destroyed_while_work_is_pending(self):
        self.assertEqual(self.run_job("pending").count("destroyed"), RANKS)

    def test_exceptions_end_the_process_in_order(self):
        """No rank that raises while work is under way dies by a signal in the library's or torch's threads."""
        done = subprocess.run(
            [sys.executable, str(HERE / "torch_exits.py"), "5"],
            env=environment(C4_CONTROL="0"),
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("10 with status 1", done.stdout)

    def test_fork(self):
        self.assertEqual(self.run_job("forked").count("forked"), RANKS)

    def test_flight_recorder(self):
        with tempfile.TemporaryDirectory() as folder:
            self.run_job("dump", folder)
            self.assert_hang_names(folder, "rank 2")

    def named(self, fault, expected):
        """Breaks rank 2 of a job that trains, and waits until C4 names it."""
        with tempfile.TemporaryDirectory() as folder, open(Path(folder) / "log", "w+") as log:
            job = subprocess.Popen(command("loop"), env=environment(), stdout=log, stderr=log)
            try:
                self.await_text(log, "rank 2: trains", job, START_S)
                pid = self.pid_of_rank(job, 2)
                subprocess.run(["kill", fault, str(pid)], check=True)
                self.await_text(log, expected, job, NAMED_S)
            finally:
                job.terminate()
                job.wait(timeout=30)

    def test_marks(self):
        """A recording of a marked job says which rank computes longer, and what that costs."""
        with tempfile.TemporaryDirectory() as folder, open(Path(folder) / "log", "w+") as log:
            own = environment(C4_RUN_DIR=f"{folder}/run")
            job = subprocess.Popen(command("marked"), env=own, stdout=log, stderr=log)
            try:
                self.await_text(log, "rank 2: trains", job, START_S)
                recording = str(Path(folder) / "job.c4rec")
                subprocess.run([C4, "record", "--fine", "-o", recording, "--seconds", "10"], env=own, check=True)
            finally:
                job.terminate()
                job.wait(timeout=30)
            whatif = subprocess.run([C4, "whatif", recording, "--json"], capture_output=True, text=True, check=False)
            self.assertEqual(whatif.returncode, 0, whatif.stdout + whatif.stderr)
            report = json.loads(whatif.stdout)
            slow = [cause for cause in report["causes"] if cause["cause"] == "worker"]
            self.assertTrue(any(cause["ranks"] == [2] for cause in slow), report["causes"])
            self.assertGreater(report["slowdown"], 1.1)
            self.assertFalse(report["doubtful"], report["notes"])
            for kind in ("forward-compute", "backward-compute", "optimizer", "grads-reduce-scatter"):
                self.assertIn(kind, report["slowdown_by_type"])

    def await_text(self, log, pattern, job, limit_s):
        end = time.monotonic() + limit_s
        while True:
            log.seek(0)
            text = log.read()
            if re.search(pattern, text):
                return
            self.assertLess(time.monotonic(), end, f"{pattern} is not in:\n{text}")
            self.assertTrue(job.poll() is None or re.search(pattern, text), text)
            time.sleep(0.2)

    def pid_of_rank(self, job, rank):
        for process in Path("/proc").iterdir():
            if not process.name.isdigit():
                continue
            try:
                variables = (process / "environ").read_bytes().split(b"\0")
                parent = (process / "stat").read_text().rsplit(")", 1)[1].split()[1]
            except OSError:
                continue
            if int(parent) == job.pid and f"RANK={rank}".encode() in variables:
                return int(process.name)
        raise AssertionError(f"there is no rank {rank}")

    def test_killed_rank_is_named(self):
        self.named("-KILL", r"crash: rank 2 ")

    def test_stopped_rank_is_named(self):
        self.named("-STOP", r"non-communication hang: rank 2 ")


if __name__ == "__main__":
    unittest.main(verbosity=2)
