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


def command(name, *arguments, c4_arguments=(), ranks=RANKS):
    job = [sys.executable, str(HERE / "torch_job.py"), name, *arguments]
    return [C4, "run", "-n", str(ranks), *c4_arguments, "--", *job]


def available_gib():
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) >> 20
    return 0


class TorchTest(unittest.TestCase):
    def run_job(self, name, *arguments, c4_arguments=(), ranks=RANKS, **more):
        done = subprocess.run(
            command(name, *arguments, c4_arguments=c4_arguments, ranks=ranks),
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

    @unittest.skipIf(os.geteuid() != 0, "namespaces want root")
    def test_training_across_a_fabric(self):
        """Each rank on a host of its own, behind leaves and spines; C4's engine over TCP."""
        output = self.run_job("training", c4_arguments=("--fabric", "2x2x2"), GLOO_SOCKET_IFNAME="eth0")
        for way in ("data_parallel", "fully_sharded", "tensor_parallel", "pipeline", "meshes"):
            self.assertEqual(output.count(way), RANKS, output)

    @unittest.skipIf(available_gib() < 14, "wants 14 GiB of memory")
    def test_tensors_beyond_four_gigabytes(self):
        self.assertEqual(self.run_job("huge", ranks=2).count("4 GiB and 8 B"), 2)

    def run_launcher(self, module, *arguments):
        """It knows nothing of C4."""
        own = environment(C4_TORCH_LIBRARY=str(BUILD / "lib" / "libnccl.so.2"), C4_CONTROL="0")
        done = subprocess.run(
            [sys.executable, "-m", module, *arguments], env=own, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def run_torchrun(self, name):
        job = ("--nproc-per-node", str(RANKS), "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0")
        return self.run_launcher("torch.distributed.run", *job, str(HERE / "torch_job.py"), name)

    def test_torchrun(self):
        output = self.run_torchrun("collectives")
        self.assertEqual(len(re.findall(r"check_work in a half", output)), RANKS, output)

    def test_accelerate(self):
        """Its own launcher starts several processes on CPUs by mpirun only."""
        self.assertEqual(self.run_torchrun("accelerated").count("accelerated"), RANKS)

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
            env=environment(C4_CONTROL="0", C4_TORCH_LIBRARY=str(BUILD / "lib" / "libnccl.so.2")),  # no `c4 run` here
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
            # PyTorch's own analyser reads them as it reads NCCL's.
            said = subprocess.run(
                [sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace", folder, "-p", "nccl_trace_rank_"],
                env=environment(),
                capture_output=True,
                text=True,
                timeout=LIMIT_S,
                check=False,
            )
            self.assertEqual(said.returncode, 0, said.stdout + said.stderr)
            self.assertRegex(said.stdout + said.stderr, r"missing ranks: \{2\}")

    def named(self, fault, expected, job="loop"):
        """Breaks rank 2 of a job that trains, and waits until C4 names it. No `fault`: it breaks by itself."""
        with tempfile.TemporaryDirectory() as folder, open(Path(folder) / "log", "w+") as log:
            job = subprocess.Popen(command(job), env=environment(), stdout=log, stderr=log)
            try:
                self.await_text(log, "rank 2: trains", job, START_S)
                if fault:
                    subprocess.run(["kill", fault, str(self.pid_of_rank(job, 2))], check=True)
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

    def test_stacks_on_request(self):
        """Of a job that offers them, `c4 stacks` shows where Python is; a rank that hangs in a collective answers as well."""
        with tempfile.TemporaryDirectory() as folder, open(Path(folder) / "log", "w+") as log:
            own = environment(C4_RUN_DIR=f"{folder}/run", C4_PYTHON_STACKS="1")
            job = subprocess.Popen(command("loop"), env=own, stdout=log, stderr=log)
            try:
                self.await_text(log, "rank 2: trains", job, START_S)
                pid = self.pid_of_rank(job, 2)
                subprocess.run(["kill", "-STOP", str(pid)], check=True)
                self.await_text(log, "non-communication hang: rank 2 ", job, NAMED_S)
                said = subprocess.run([C4, "stacks", "--json"], env=own, capture_output=True, text=True, check=True)
                places = {place["rank"]: place for place in json.loads(said.stdout)["ranks"]}
                self.assertEqual(len(places), RANKS, said.stdout)
                self.assertIn("stopped", {thread["state"] for thread in places[2]["threads"]})
                self.assertIn("is it stopped", places[2]["why_no_python"])
                for rank in {0, 1, 3}:
                    self.assertTrue(any("in loop" in line for line in places[rank]["python"]), places[rank])
                subprocess.run(["kill", "-CONT", str(pid)], check=True)
                one = subprocess.run([C4, "stacks", "2"], env=own, capture_output=True, text=True, check=True)
                self.assertIn("in loop", one.stdout)
            finally:
                job.terminate()
                job.wait(timeout=30)

    def test_killed_rank_is_named(self):
        self.named("-KILL", r"crash: rank 2 ")

    def test_stopped_rank_is_named(self):
        self.named("-STOP", r"non-communication hang: rank 2 ")

    def test_slow_rank_is_named(self):
        self.named(None, r"CONFIRMED non-communication slow: rank 2 ", job="slowing")


if __name__ == "__main__":
    unittest.main(verbosity=2)
