"""A real c4d_master that hears of a job from the logs of NCCL's Inspector alone, which the test writes as Inspector does: of eight
ranks on two hosts one computes for longer from some moment on, and is named.

inspector_source_test.py BUILD_BIN_DIR
"""
import json
import pathlib
import random
import sys
import threading
import time
import unittest

from source_master import SourceMaster

BIN = pathlib.Path(sys.argv[1]).resolve()
RANKS, HOSTS = 8, 2


class Job(threading.Thread):
    """Steps of one all-reduce, which ends when the last rank has come; each rank writes a line of it."""

    def __init__(self, folder):
        super().__init__(daemon=True)
        self.slow, self.going, self.logs = None, True, []
        for rank in range(RANKS):
            self.logs.append(open(folder / f"node{rank % HOSTS}-pid{500 + rank}.log", "w", encoding="utf-8", buffering=1))

    def run(self):
        noise, step = random.Random(4), 0
        while self.going:
            begin = time.time()
            come = [begin + 0.05 * noise.uniform(0.97, 1.03) * (3 if rank == self.slow else 1) for rank in range(RANKS)]
            end = max(come) + 0.01
            time.sleep(max(0.0, end - time.time()))
            for rank, log in enumerate(self.logs):
                print(json.dumps({
                    "header": {"id": "0xfedcba9876543210", "rank": rank, "n_ranks": RANKS, "nnodes": HOSTS},
                    "metadata": {"inspector_output_format_version": "v4.0", "git_rev": "", "rec_mechanism": "nccl_profiler_interface",
                                 "dump_timestamp_us": int(end * 1e6), "hostname": f"node{rank % HOSTS}", "pid": 500 + rank},
                    "coll_perf": {"coll": "AllReduce", "coll_sn": step, "coll_msg_size_bytes": 1 << 20,
                                  "coll_exec_time_us": int((end - come[rank]) * 1e6), "coll_timing_source": "kernel_gpu",
                                  "coll_algobw_gbs": 1.0, "coll_busbw_gbs": 1.8}}), file=log)
            step += 1


class InspectorSource(SourceMaster):
    BIN = BIN

    def test_who_is_late_is_named(self):
        logs = self.path / "logs"
        logs.mkdir()
        (logs / "metrics.prom").write_text("nccl_bus_bandwidth_gbs 1\n", encoding="utf-8")
        self.start(f"inspector={logs}")
        job = Job(logs)
        job.start()
        self.addCleanup(job.join)
        self.addCleanup(lambda: setattr(job, "going", False))
        self.wait_for_ranks(RANKS)
        time.sleep(40)  # until it is known what is usual
        self.assertEqual(self.verdicts(), [], "a job that works has no verdict")
        (logs / "node9-pid9.log").write_text("garbage\n", encoding="utf-8")
        job.slow = 5
        found = self.wait_for("verdict", 60, self.verdicts)
        self.assertEqual([(one["syndrome"], one["state"], one["culprit"]["rank"], one["culprit"]["host"]) for one in found],
                         [("non-communication slow", "suspected", 5, "node1")], found)
        self.assertIn("source", [one["kind"] for one in found[0]["evidence"]])
        self.assertIn("node9-pid9.log", self.log.read_text())
        job.slow = None
        self.wait_for("end of the verdict", 90, lambda: not self.verdicts())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
