"""A real c4d_master that hears of a job from RAS alone: a server of the test writes what NCCL's RAS writes. One rank
falls behind the others and is named; the port goes away and comes back.

ras_source_test.py BUILD_BIN_DIR
"""
import json
import pathlib
import socketserver
import sys
import threading
import time
import unittest

from source_master import SourceMaster

BIN = pathlib.Path(sys.argv[1]).resolve()
RANKS = 8


class Job:
    """What the ranks have launched: more with each question, until `behind` stays where it is."""

    def __init__(self):
        self.steps, self.behind, self.held = 0, None, 0

    def status(self):
        if self.behind is None:
            self.steps += 10
            self.held = self.steps
        ranks = [{"rank": rank, "host": f"10.0.0.{1 + rank // 4}", "pid": 1000 + rank, "cuda_dev": rank % 4, "nvml_dev": rank % 4,
                  "status": {"init_state": 0, "async_error": 0, "finalize_called": False, "destroy_flag": False,
                             "abort_flag": False},
                  "collective_counts": {"AllReduce": self.held if rank == self.behind else self.held + 2, "AllGather": 3}}
                 for rank in range(RANKS)]
        world = {"hash": "0xfa93daea854b060b", "secondary_hash": "0x1:0x2", "size": RANKS, "ranks_count": RANKS,
                 "missing_ranks_count": 0, "ranks": ranks, "missing_ranks": []}
        return json.dumps({"nccl_version": "2.28.9", "cuda_runtime_version": 13000, "cuda_driver_version": 13000,
                           "timestamp": "2026-11-26 06:00:00", "communicators_count": 1, "communicators": [world],
                           "ras": {"collection_time_sec": 0.01, "timeouts_count": 0}})


class Ras(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            words = line.decode().strip().upper()
            if words.startswith("CLIENT PROTOCOL"):
                self.wfile.write(b"SERVER PROTOCOL 2\n")
            elif words.startswith(("TIMEOUT ", "SET FORMAT ")):
                self.wfile.write(b"OK\n")
            elif words == "STATUS":
                self.wfile.write(self.server.job.status().encode() + b"\n")
                return


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


class RasSource(SourceMaster):
    BIN = BIN

    def serve(self, port=0):
        server = Server(("127.0.0.1", port), Ras)
        server.job = self.job
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return server

    def test_whom_ras_shows_behind_is_named(self):
        self.job = Job()
        server = self.serve()
        port = server.server_address[1]
        self.start(f"ras=127.0.0.1:{port}")
        self.wait_for_ranks(RANKS)
        time.sleep(5)
        self.assertEqual(self.c4("verdicts").returncode, 0, "a job that works has no verdict")

        self.job.behind = 5

        found = self.wait_for("verdict", 30, self.verdicts)
        self.assertEqual(len(found), 1, found)
        self.assertEqual(found[0]["syndrome"], "non-communication hang")
        self.assertEqual((found[0]["culprit"]["rank"], found[0]["culprit"]["host"]), (5, "10.0.0.2"))
        self.assertIn("source", [one["kind"] for one in found[0]["evidence"]])

        server.shutdown()
        server.server_close()
        self.wait_for("word of the silence", 20, lambda: "nobody listens at" in self.log.read_text())
        self.job.behind = None
        server = self.serve(port)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        self.wait_for("end of the verdict", 40, lambda: not self.verdicts())
        self.assertIn("RAS answers again", self.log.read_text())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
