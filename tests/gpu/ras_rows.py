"""Rows of checks.py in which C4D hears of a job from NCCL's own RAS alone: nothing of C4 is in the job."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

import c4d_rows
import jobs
from c4d_rows import CULPRIT, WORLD

QUIET_S = 12  # from the start of the ranks until one of them calls no more


def ask(port, question, seconds=15):
    """All that RAS says to the lines, until it hangs up."""
    with socket.create_connection(("127.0.0.1", port), timeout=seconds) as link:
        link.sendall(question.encode())
        said = b""
        try:
            while piece := link.recv(65536):
                said += piece
        except TimeoutError:
            pass
    return said.decode(errors="replace")


class Untouched:
    """Ranks with NCCL as it is, and a master that asks their RAS."""

    def __init__(self, bench, arguments):
        bench.needs_gpu()
        self.bin = bench.options.bin
        for program in ("c4", "c4d_master"):
            if not os.access(os.path.join(self.bin, program), os.X_OK):
                raise jobs.NotRun(f"no {program} in {self.bin}: build it, or name its folder in C4_BIN")
        self.folder = tempfile.mkdtemp(prefix="c4-ras-")
        self.log = bench.place.log("ras")
        self.port = jobs.free_port()
        self.environment = bench.place.environment(False)
        rendezvous = str(jobs.free_port())
        self.ranks = []
        for rank in range(WORLD):
            settings = {"RANK": str(rank), "WORLD_SIZE": str(WORLD), "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1",
                        "MASTER_PORT": rendezvous, "NCCL_RAS_ADDR": f"127.0.0.1:{self.port}", "NCCL_DEBUG": "WARN"}
            self.ranks.append(subprocess.Popen([sys.executable, os.path.join(jobs.HERE, "ranks.py"), "loop", *arguments],
                                               env={**self.environment, **settings}, stdout=self.log, stderr=self.log))
        self.master = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.master is not None:
            subprocess.run([os.path.join(self.bin, "c4"), "verdicts", "-v", *self.where()], stdout=self.log, stderr=self.log,
                           env=self.environment)
            self.master.terminate()
            self.master.wait(timeout=20)
        for rank in self.ranks:
            rank.kill()
            rank.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def where(self):
        return ["--job", "ras", "--run-dir", self.folder]

    def started(self):
        """The text of a status in which all ranks are, by RAS."""
        text, deadline = "", time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                text = ask(self.port, "CLIENT PROTOCOL 2\nTIMEOUT 3\nSET FORMAT json\nSTATUS\n")
                if text.count('"rank"') >= WORLD:
                    return text
            except OSError:
                pass
            time.sleep(0.5)
        raise jobs.Failed(f"RAS tells of no {WORLD} ranks: {text[-300:]!r}; {jobs.last_line(self.log)}")

    def watch(self):
        masters = os.path.join(self.folder, "masters")
        os.makedirs(masters, exist_ok=True)
        self.master = subprocess.Popen(
            [os.path.join(self.bin, "c4d_master"), "--job", "ras", "--listen", "127.0.0.1:0", "--http-address", "127.0.0.1:0",
             "--c4p", "off", "--directory", masters, "--source", f"ras=127.0.0.1:{self.port}"],
            env=self.environment, stdout=self.log, stderr=self.log)

    def say(self, verb):
        done = subprocess.run([os.path.join(self.bin, "c4"), verb, "--json", *self.where()], capture_output=True, text=True,
                              env=self.environment)
        try:
            return json.loads(done.stdout)
        except ValueError:
            return {}

    def wait_for_culprit(self):
        return c4d_rows.wait_for_culprit(lambda: self.say("verdicts").get("verdicts", []), {"suspected", "confirmed"})


def behind(bench):
    """A rank that calls no more, though its process lives and answers RAS."""
    with Untouched(bench, ["slow", str(CULPRIT), "1000000000", str(QUIET_S)]) as job:
        text = job.started()
        with open(os.path.join(bench.options.out, "ras-status.json"), "w", encoding="utf-8") as file:
            file.write(text)
        with open(os.path.join(bench.options.out, "ras-status.txt"), "w", encoding="utf-8") as file:
            file.write(ask(job.port, "CLIENT PROTOCOL 2\nTIMEOUT 3\nVERBOSE STATUS\n"))
        job.watch()
        deadline = time.monotonic() + 20
        while len(job.say("status").get("ranks", [])) < WORLD and time.monotonic() < deadline:
            time.sleep(0.5)
        known = len(job.say("status").get("ranks", []))
        if known < WORLD:
            raise jobs.Failed(f"the master knows {known} ranks of {WORLD} by RAS")
        said = job.wait_for_culprit()
        with open(os.path.join(bench.options.out, "ras-behind.json"), "w", encoding="utf-8") as file:
            file.write(ask(job.port, "CLIENT PROTOCOL 2\nTIMEOUT 3\nSET FORMAT json\nSTATUS\n"))
        return f"{known} ranks known; {said}"


def killed(bench):
    with Untouched(bench, []) as job:
        job.started()
        job.watch()
        time.sleep(5)
        job.ranks[CULPRIT].send_signal(signal.SIGKILL)
        try:
            said = job.wait_for_culprit()
            # NCCL gives a process up that has not answered it for 60 s.
            said += "; " + c4d_rows.wait_for_culprit(lambda: job.say("verdicts").get("verdicts", []), {"confirmed"}, 75)
        finally:
            with open(os.path.join(bench.options.out, "ras-killed.json"), "w", encoding="utf-8") as file:
                file.write(ask(job.port, "CLIENT PROTOCOL 2\nTIMEOUT 3\nSET FORMAT json\nSTATUS\n"))
        return said
