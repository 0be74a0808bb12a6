"""Ranks of the host engine answer NCCL's RAS protocol: what a client reads of them equals what the master knows by it, and a
stopped rank is missing there, and named by a master that has no other source.

ras_server_test.py BUILD_BIN_DIR
"""
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

BIN = pathlib.Path(sys.argv[1]).resolve()
RANKS = 4
STOPPED = 2


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def ask(port, *words):
    """As NCCL's own client: where the process that the kernel picked says nothing for a second, another try."""
    for _ in range(60):
        with socket.create_connection(("127.0.0.1", port), timeout=1) as link:
            link.sendall(b"CLIENT PROTOCOL 2\n")
            try:
                hello = link.recv(100)
            except TimeoutError:
                continue
            assert hello == b"SERVER PROTOCOL 2\n", hello
            link.settimeout(30)
            link.sendall(("\n".join(words) + "\n").encode())
            said = b""
            while piece := link.recv(65536):
                said += piece
            return said.decode()
    raise AssertionError("nobody answers")


def status(port, timeout_s=5):
    said = ask(port, f"TIMEOUT {timeout_s}", "SET FORMAT json", "STATUS")
    assert said.startswith("OK\nOK\n"), said
    return json.loads(said[len("OK\nOK\n"):])


def calls(told):
    return {rank["rank"]: sum(rank["collective_counts"].values()) for rank in told["communicators"][0]["ranks"]}


class RasServer(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="c4-ras-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.port = free_port()
        self.environment = {key: value for key, value in os.environ.items() if not key.startswith(("C4", "NCCL"))}
        self.environment["C4_RUN_DIR"] = str(self.folder / "run")
        meeting = f"127.0.0.1:{free_port()}"
        self.ranks = []
        for rank in range(RANKS):
            mine = {"NCCL_COMM_ID": meeting, "NCCL_RAS_ADDR": f"localhost:{self.port}", "RANK": str(rank),
                    "WORLD_SIZE": str(RANKS), "LOCAL_RANK": str(rank)}
            with open(self.folder / f"rank{rank}", "w", encoding="utf-8") as log:
                self.ranks.append(subprocess.Popen(
                    [BIN / "all_reduce_perf", "-b", "64K", "-e", "64K", "-n", "50", "-N", "0", "--pause-ms", "2"],
                    env={**self.environment, **mine}, stdin=subprocess.DEVNULL, stdout=log, stderr=log))
        self.addCleanup(self.end)

    def end(self):
        for rank in self.ranks:
            rank.kill()
            rank.wait()

    def wait_for(self, what, seconds, look):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                found = look()
            except (OSError, KeyError, IndexError):
                found = None
            if found:
                return found
            time.sleep(0.2)
        logs = "".join(path.read_text(encoding="utf-8")[-500:] for path in sorted(self.folder.glob("*")) if path.is_file())
        raise AssertionError(f"no {what} within {seconds} s; logs: {logs}")

    def c4(self, *words):
        done = subprocess.run([BIN / "c4", *words, "--json", "--run-dir", str(self.folder / "run"), "--job", "ras"],
                              capture_output=True, text=True, check=False, timeout=30, env=self.environment)
        try:
            return json.loads(done.stdout)
        except ValueError:
            return {}

    def test_what_clients_read(self):
        told = self.wait_for("ranks", 30, lambda: (lambda said: said if len(calls(said)) == RANKS else None)(status(self.port)))
        self.assertEqual(told["communicators_count"], 1)
        world = told["communicators"][0]
        self.assertEqual((world["size"], world["missing_ranks_count"]), (RANKS, 0))
        self.assertEqual([rank["pid"] for rank in world["ranks"]], [rank.pid for rank in self.ranks])
        text = ask(self.port, "VERBOSE STATUS")
        self.assertIn("RUNNING", text)
        self.assertIn("Job summary", text)

        with open(self.folder / "master", "w", encoding="utf-8") as log:
            master = subprocess.Popen([BIN / "c4d_master", "--job", "ras", "--listen", "127.0.0.1:0", "--http-address",
                                       "127.0.0.1:0", "--c4p", "off", "--source", f"ras=127.0.0.1:{self.port}"],
                                      env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.addCleanup(master.wait)
        self.addCleanup(master.terminate)
        self.wait_for("ranks of the master", 30, lambda: len(self.c4("status")["ranks"]) == RANKS)
        self.wait_for("calls that agree", 30, self.agree)
        self.assertEqual(self.c4("verdicts").get("verdicts"), [], "a job that works has no verdict")

        os.kill(self.ranks[STOPPED].pid, signal.SIGSTOP)
        os.waitpid(self.ranks[STOPPED].pid, os.WUNTRACED)  # until each of its threads has heard of it
        missing = status(self.port, 2)["communicators"][0]["missing_ranks"]
        self.assertEqual([(rank["rank"], rank["pid"], rank["status"]) for rank in missing],
                         [(STOPPED, self.ranks[STOPPED].pid, {"unresponsive": True, "considered_dead": False})])
        found = self.wait_for("verdict", 60, lambda: self.c4("verdicts")["verdicts"])
        self.assertEqual([(one["syndrome"], one["culprit"]["rank"]) for one in found], [("non-communication hang", STOPPED)])

    def agree(self):
        """What the master knows lies between what RAS said before it and after."""
        before = calls(status(self.port))
        time.sleep(2.5)  # it asks once a second
        known = {rank["rank"]: rank["called"] for rank in self.c4("status")["ranks"]}
        after = calls(status(self.port))
        return len(known) == RANKS and all(before[rank] <= known[rank] <= after[rank] for rank in range(RANKS))

    def test_who_is_told_no_is_answered_by_nobody(self):
        self.wait_for("ranks", 30, lambda: len(calls(status(self.port))) == RANKS)
        self.assertIn("ERROR: Unknown command", ask(self.port, "MONITOR", "STATUS"))
        self.assertIn("ERROR: Invalid format", ask(self.port, "SET FORMAT xml", "STATUS"))
        # One that connects and says nothing holds nobody up, nor do many.
        idle = [socket.create_connection(("127.0.0.1", self.port)) for _ in range(50)]
        self.assertEqual(len(calls(status(self.port))), RANKS)
        for link in idle:
            link.close()


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
