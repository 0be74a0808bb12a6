"""A real c4d_master that hears of its job from sources alone, for the tests of these."""
import json
import os
import pathlib
import subprocess
import tempfile
import time
import unittest


class SourceMaster(unittest.TestCase):
    BIN = None  # the folder of the programs

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="c4-source-")
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name)
        self.run_dir, self.log = self.path / "run", self.path / "log"

    def start(self, source):
        environment = {key: value for key, value in os.environ.items() if not key.startswith("C4")}
        environment["C4_RUN_DIR"] = str(self.run_dir)
        with open(self.log, "w", encoding="utf-8") as log:
            master = subprocess.Popen([self.BIN / "c4d_master", "--job", "source", "--listen", "127.0.0.1:0", "--http-address",
                                       "127.0.0.1:0", "--source", source],
                                      env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.addCleanup(master.wait)
        self.addCleanup(master.terminate)

    def c4(self, *words):
        return subprocess.run([self.BIN / "c4", *words, "--run-dir", self.run_dir, "--job", "source"], capture_output=True,
                              text=True, check=False, timeout=30)

    def verdicts(self):
        said = self.c4("verdicts", "--json")
        return json.loads(said.stdout)["verdicts"] if said.stdout else []

    def wait_for(self, what, seconds, ask):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            answer = ask()
            if answer:
                return answer
            time.sleep(0.2)
        raise AssertionError(f"no {what} within {seconds} s; the master said: {self.log.read_text()}")

    def wait_for_ranks(self, count):
        def ranks():
            said = self.c4("status", "--json")
            return said.returncode == 0 and len(json.loads(said.stdout)["ranks"]) == count
        self.wait_for("ranks", 30, ranks)
