"""The systemd units: what they forbid, and that the agent works with the capabilities that its unit gives, no more.

units_test.py SOURCE_DIR BIN_DIR. The second half needs root: it runs c4a by setpriv as another user, and a job of a
third user, whose rank the agent has to see.
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

SOURCE, BIN = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]).resolve()
UNITS = sorted((SOURCE / "deploy" / "systemd").glob("*.service"))
AGENT_UID, JOB_UID = 23461, 23462
FORBIDDEN = {"NoNewPrivileges": "yes", "ProtectSystem": "strict", "ProtectHome": "yes", "PrivateDevices": "yes",
             "ProtectKernelTunables": "yes", "ProtectKernelModules": "yes", "ProtectKernelLogs": "yes",
             "ProtectControlGroups": "yes", "MemoryDenyWriteExecute": "yes", "RestrictSUIDSGID": "yes",
             "RestrictNamespaces": "yes", "SystemCallArchitectures": "native", "LockPersonality": "yes",
             "UMask": "0077", "User": "c4"}
CAPABILITIES = {"c4a": {"CAP_NET_RAW", "CAP_SYS_PTRACE", "CAP_DAC_READ_SEARCH"}}
# systemd's own measure, 0 (shut) to 10.
MOST_EXPOSED = 3.5


def settings(unit):
    found = {}
    for line in unit.read_text(encoding="utf-8").splitlines():
        if "=" in line and not line.startswith("#"):
            name, value = line.split("=", 1)
            found.setdefault(name, []).append(value)
    return found


def eventually(seconds, holds):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            if got := holds():
                return got
        except (OSError, ValueError, KeyError):
            pass
        time.sleep(0.1)
    return None


class Units(unittest.TestCase):
    def test_each_program_has_one(self):
        self.assertEqual([u.stem for u in UNITS], ["c4a", "c4d_master@", "c4p_master"])

    def test_what_they_forbid(self):
        for unit in UNITS:
            got = settings(unit)
            for name, value in FORBIDDEN.items():
                self.assertEqual(got.get(name), [value], f"{unit.name}: {name}")
            wanted = CAPABILITIES.get(unit.stem, set())
            for name in ("CapabilityBoundingSet", "AmbientCapabilities"):
                self.assertEqual(set(got[name][0].split()), wanted, f"{unit.name}: {name}")
            self.assertIn("@system-service", got["SystemCallFilter"])
            self.assertTrue(any(f.startswith("~") and "@mount" in f for f in got["SystemCallFilter"]))

    @unittest.skipUnless(shutil.which("systemd-analyze"), "no systemd-analyze")
    def test_systemd_understands_them(self):
        with tempfile.TemporaryDirectory() as folder:
            for unit in UNITS:
                # verify looks for the program.
                text = unit.read_text(encoding="utf-8").replace("/usr/bin/", f"{BIN}/")
                name = unit.name.replace("@.", "@job.")
                pathlib.Path(folder, name).write_text(text, encoding="utf-8")
                checked = subprocess.run(["systemd-analyze", "verify", "--man=no", f"{folder}/{name}"],
                                         capture_output=True, text=True, check=False)
                ours = [line for line in checked.stderr.splitlines() if name in line]
                self.assertEqual(ours, [])
                rated = subprocess.run(["systemd-analyze", "security", "--offline=true", "--threshold",
                                        str(int(MOST_EXPOSED * 10)), f"{folder}/{name}"],
                                       capture_output=True, text=True, check=False)
                self.assertEqual(rated.returncode, 0, rated.stdout[-300:] + rated.stderr)


@unittest.skipUnless(os.geteuid() == 0 and shutil.which("setpriv"), "needs root and setpriv")
class Agent(unittest.TestCase):
    def as_user(self, uid, capabilities, command, **options):
        names = ",".join(f"+{name.removeprefix('CAP_').lower()}" for name in sorted(capabilities))
        caps = f"-all,{names}" if names else "-all"
        words = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", f"--inh-caps={caps}",
                 f"--ambient-caps={caps}", f"--bounding-set={caps}", "--no-new-privs", *command]
        process = subprocess.Popen(words, **options)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def sees_the_rank(self, capabilities):
        folder = tempfile.mkdtemp(prefix="c4-test-", dir="/dev/shm")
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        run = pathlib.Path(folder, "run")
        run.mkdir()
        os.chmod(folder, 0o755)
        os.chown(run, AGENT_UID, AGENT_UID)
        os.chmod(run, 0o1777)
        log = pathlib.Path(folder, "agent.log")
        with open(log, "wb") as errors:
            self.as_user(AGENT_UID, capabilities,
                         [str(BIN / "c4a"), "--run-dir", str(run), "--http-address", "127.0.0.1:0"], stderr=errors)
        self.assertTrue(eventually(10, (run / "agent.sock").exists), log.read_text())
        mine = pathlib.Path(folder, "mine")
        mine.mkdir()
        os.chown(mine, JOB_UID, JOB_UID)
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": mine}
        # The master's own user makes its key, and the agent reads it although it is 0600.
        key = self.as_user(JOB_UID, set(), [str(BIN / "c4"), "pki", "key", str(mine / "job.key")], **quiet)
        self.assertEqual(key.wait(10), 0)
        self.as_user(JOB_UID, set(), [str(BIN / "c4d_master"), "--key-file", str(mine / "job.key"), "--job", "units", "--listen", "127.0.0.1:0",
                                      "--http-address", "127.0.0.1:0", "--c4p", "off", "--directory",
                                      str(run / "masters"), "--store", str(mine / "s.db"), "--audit",
                                      str(mine / "audit")], **quiet)
        entry = run / "masters" / "units.json"
        self.assertTrue(eventually(10, entry.exists))
        environment = {**os.environ, "LD_LIBRARY_PATH": str(BIN.parent / "lib"), "C4_RUN_DIR": str(run),
                       "C4_JOB_ID": "units", "C4_ENGINE": "host"}
        self.as_user(JOB_UID, set(), [str(BIN / "all_reduce_perf"), "-b", "64K", "-e", "64K", "-N", "0",
                                      "--pause-ms", "20"], env=environment, **quiet)
        segment = eventually(10, lambda: next(run.glob("*.c4seg"), None) or next(run.glob("[0-9]*-*"), None))
        self.assertIsNotNone(segment, list(run.iterdir()))
        self.assertEqual(segment.stat().st_mode & 0o777, 0o600, "others can read the segment")

        def ranks():
            asked = subprocess.run([BIN / "c4", "status", "--json", "--master",
                                    json.loads(entry.read_text())["address"]], user=JOB_UID, group=JOB_UID,
                                   capture_output=True, text=True, check=False, env=environment)
            return json.loads(asked.stdout)["ranks"]
        return bool(eventually(10 if capabilities else 4, ranks)), log.read_text()

    def test_three_capabilities_are_enough(self):
        seen, log = self.sees_the_rank(CAPABILITIES["c4a"])
        self.assertTrue(seen, log)

    def test_without_them_it_sees_nobody_elses_rank_and_says_so(self):
        seen, log = self.sees_the_rank(set())
        self.assertFalse(seen)
        self.assertIn("cannot open it", log)


unittest.main(argv=sys.argv[:1], verbosity=1)
