"""Recovery with a real Slurm (Debian's packages; scripts/setup.sh slurm): slurmctld, munge and a slurmd a host, each in
namespaces of its own, a job of ours with an agent on every host, and its master with the driver `slurm`.

slurm_test.py SOURCE_DIR BIN_DIR [TEST...]. Needs root. Ends with 77, loudly, where Slurm is not installed.
C4_SLURM_JSON=FILE: the times that were measured are appended there.
"""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

SOURCE, BIN = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
CLUSTER = SOURCE / "tests/support/slurm_cluster.sh"
PREFIX, HOSTS, MASTER = "c4sl", 4, "10.77.7.1:15141"
TOOLS = ["munged", "slurmctld", "slurmd", "scontrol", "squeue", "sinfo", "sbatch", "scancel"]
TRAINER = f"{BIN}/hybrid_trainer --width 64 --hidden 32 --micro-batches 2 --tensor 1 --pipeline 1 --seconds 3000 --report-every 1"


def eventually(seconds, holds, every=0.1):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if got := holds():
            return got
        time.sleep(every)
    return None


class Slurm(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="c4-slurm-", dir="/dev/shm"))
        os.chmod(self.folder, 0o755)
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        prolog = self.folder / "task_prolog.sh"
        shutil.copy(SOURCE / "deploy/slurm/task_prolog.sh", prolog)
        extra = [f"TaskProlog={prolog}"]
        (self.folder / "systemctl").write_text(f"#!/bin/sh\necho \"$0 $*\" >>{self.folder}/systemctl.log\n", encoding="utf-8")
        (self.folder / "systemctl").chmod(0o755)
        for option, script in (("Prolog", "prolog.sh"), ("PrologSlurmctld", "prolog_slurmctld.sh"),
                               ("EpilogSlurmctld", "epilog_slurmctld.sh")):
            # systemctl and its like are ours.
            text = (SOURCE / "deploy/slurm" / script).read_text(encoding="utf-8")
            (self.folder / script).write_text(text.replace("PATH=", f"PATH={self.folder}:", 1), encoding="utf-8")
            (self.folder / script).chmod(0o755)
            extra.append(f"{option}={self.folder / script}")
        (self.folder / "systemd-run").symlink_to("systemctl")
        self.environment = {**os.environ, "SLURM_CONF": f"{self.folder}/slurm/slurm.conf",
                            "SLURM_CLUSTER_EXTRA": "\n".join(extra), "C4_RUN_DIR": f"{self.folder}/run-ctl",
                            "C4_KEY_FILE": f"{self.folder}/keys", "C4_DIRECTORY": f"{self.folder}/masters"}
        self.addCleanup(self.cluster, "stop")
        self.cluster("start", str(HOSTS))
        self.children = []
        self.addCleanup(self.end_children)

    def cluster(self, verb, *words):
        subprocess.run(["bash", CLUSTER, verb, f"{self.folder}/slurm", PREFIX, *words], env=self.environment, check=True,
                       stdout=subprocess.DEVNULL, stderr=None if verb == "start" else subprocess.DEVNULL)

    def end_children(self):
        for child in self.children:
            child.kill()
            child.wait()

    def inside(self, host, words):
        return ["nsenter", f"--net=/run/netns/{PREFIX}{host}", "unshare", "--uts", "sh", "-c",
                f'hostname {PREFIX}{host.lstrip("-")}; exec "$@"', "sh", *map(str, words)]

    def start(self, host, words, **environment):
        log = open(self.folder / f"{pathlib.Path(words[0]).name}{host}.log", "w", encoding="utf-8")
        self.children.append(subprocess.Popen(self.inside(host, words), env={**self.environment, **environment}, stdout=log,
                                              stderr=subprocess.STDOUT))

    def ask(self, *words, check=True):
        got = subprocess.run(self.inside("-ctl", words), env=self.environment, check=False, text=True, capture_output=True,
                             timeout=60)
        if check and got.returncode != 0:
            self.fail(f"{words} ended with {got.returncode}: {got.stdout}{got.stderr}")
        return got.stdout

    def c4(self, *words, check=True):
        return self.ask(f"{BIN}/c4", *words, "--master", MASTER, "--token-in-clear", check=check)

    def recovery(self):
        try:
            return json.loads(self.c4("recovery", "status", "--notes", "100", "--json", check=False))
        except json.JSONDecodeError:
            return {}

    def nodes(self):
        lines = self.ask("sinfo", "-h", "-N", "-O", "NodeList:|,StateComplete:|,Reason:|").splitlines()
        return {name: (state, reason) for name, state, reason, _ in (line.split("|") for line in lines)}

    def begin(self, sbatch, script):
        """The job, an agent a host, the master. The job's number; it trains."""
        self.ask(f"{BIN}/c4", "pki", "key", self.folder / "keys")
        for number in range(1, HOSTS + 1):
            (self.folder / f"run{number}").mkdir()
            self.start(str(number), [f"{BIN}/c4a", "--run-dir", f"{self.folder}/run{number}", "--master", MASTER,
                                     "--key-file", f"{self.folder}/keys", "--token-in-clear", "--health", "off",
                                     "--http-address", "127.0.0.1:0"])
        rank = self.folder / "rank.sh"
        rank.write_text(f"""#!/bin/sh
export RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS MASTER_PORT=29500 C4_ENGINE=host LD_LIBRARY_PATH={BIN}/../lib
export MASTER_ADDR=10.77.7.$((10 + ${{C4_FIRST#{PREFIX}}})) C4_RUN_DIR={self.folder}/run${{SLURMD_NODENAME#{PREFIX}}}
[ "$RANK" != 0 ] || echo "incarnation $C4_INCARNATION"
exec {TRAINER}
""", encoding="utf-8")
        rank.chmod(0o755)
        job = self.folder / "job.sh"
        job.write_text(f"#!/bin/bash\n{script.format(rank=rank, source=SOURCE)}\n", encoding="utf-8")
        self.output = self.folder / "job.out"
        number = self.ask("sbatch", "--parsable", "--requeue", "--open-mode=append", "-o", self.output, *sbatch, job).strip()
        config = self.folder / "recovery.json"
        config.write_text(json.dumps({"mode": "automatic", "driver": {"slurm": {"tools": os.path.dirname(shutil.which("squeue"))}},
                                      "check": False, "times": {"look_every_s": 1}}), encoding="utf-8")
        (self.folder / "run-ctl").mkdir()
        self.start("-ctl", [f"{BIN}/c4d_master", "--job", number, "--listen", MASTER, "--directory", f"{self.folder}/masters",
                            "--recovery", config, "--key-file", f"{self.folder}/keys", "--token-in-clear", "--http-address",
                            "127.0.0.1:0", "--store", f"{self.folder}/c4d.db", "--audit", f"{self.folder}/audit"])
        self.assertTrue(eventually(60, lambda: self.trained("incarnation 0")), self.tail())
        self.assertTrue(eventually(60, lambda: len(self.recovery().get("nodes", [])) == HOSTS), self.tail())
        return number

    def tail(self):
        text = ""
        for path in [self.output, self.folder / "c4d_master-ctl.log", self.folder / "c4a1.log"]:
            text += f"\n--- {path.name}\n" + (path.read_text(errors="replace")[-3000:] if path.exists() else "")
        return text + json.dumps(self.recovery(), indent=1)[-4000:]

    def trained(self, after):
        """Whether the job's output tells of an iteration after that line."""
        text = self.output.read_text(errors="replace") if self.output.exists() else ""
        return after in text and "iteration" in text[text.rindex(after) + len(after):]

    def stop_rank(self, host):
        pids = subprocess.run(["ip", "netns", "pids", f"{PREFIX}{host}"], check=True, text=True, capture_output=True).stdout
        for pid in pids.split():
            try:
                if os.readlink(f"/proc/{pid}/exe").endswith("hybrid_trainer"):
                    os.kill(int(pid), signal.SIGSTOP)
                    return time.time()
            except OSError:
                continue
        self.fail(f"no rank runs on host {host}")

    def report(self, what, stopped_at, trained_at):
        incident = self.recovery()["incidents"][0]
        unix = {name: incident[f"{name}_unix_s"] or 0 for name in ("confirmed", "isolated", "restarted", "running")}
        parts = {"what": what, "stop to verdict": unix["confirmed"] - stopped_at,
                 "verdict to drained": unix["isolated"] - unix["confirmed"],
                 "drained to restarted": unix["restarted"] - unix["isolated"],
                 "restarted to first iteration": trained_at - unix["restarted"],
                 "verdict to first iteration": trained_at - unix["confirmed"]}
        print(json.dumps({k: v if isinstance(v, str) else round(v, 2) for k, v in parts.items()}), flush=True)
        if path := os.environ.get("C4_SLURM_JSON"):
            with open(path, "a", encoding="utf-8") as file:
                file.write(json.dumps(parts) + "\n")

    def recovers(self, what, culprit, incarnation):
        stopped_at = self.stop_rank(culprit)
        self.assertTrue(eventually(150, lambda: self.trained(f"incarnation {incarnation}")), self.tail())
        trained_at = time.time()
        self.assertTrue(eventually(30, lambda: self.recovery()["incidents"][0]["phase"] == "recovered"), self.tail())
        self.report(what, stopped_at, trained_at)

    def test_requeued_on_another_node(self):
        self.ask("scontrol", "update", f"NodeName={PREFIX}4", "State=DRAIN", "Reason=fan broken")
        number = self.begin(["-N", "2"], "export C4_FIRST=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)\n"
                                         "srun --nodes=2 {rank}")
        self.recovers("requeue", 2, 1)
        state, reason = self.nodes()[f"{PREFIX}2"]
        self.assertIn("drain", state)
        self.assertTrue(reason.startswith(f"c4 job {number}: verdict "), reason)
        self.assertEqual(self.nodes()[f"{PREFIX}4"], ("idle+drain", "fan broken"))
        self.assertEqual(self.ask("squeue", "-h", "-j", number, "-o", "%N").strip(), f"{PREFIX}[1,3]")
        # What a person says wins: the one is given back, the other stays theirs.
        self.c4("recovery", "release", f"{PREFIX}2")
        self.assertTrue(eventually(30, lambda: "drain" not in self.nodes()[f"{PREFIX}2"][0]), self.tail())
        self.c4("recovery", "release", f"{PREFIX}4")
        time.sleep(3)
        self.assertEqual(self.nodes()[f"{PREFIX}4"], ("idle+drain", "fan broken"))

    def test_prolog_and_epilog(self):
        job = self.folder / "short.sh"
        job.write_text("#!/bin/sh\nsrun sh -c 'echo $C4_RUN_DIR $C4_JOB_ID $C4_INCARNATION'\n", encoding="utf-8")
        number = self.ask("sbatch", "--parsable", "--export=PATH", "-o", self.folder / "short.out", job).strip()
        log = self.folder / "systemctl.log"
        self.assertTrue(eventually(60, lambda: log.exists() and "systemd-run" in log.read_text()))
        self.assertEqual((self.folder / "short.out").read_text(), f"/dev/shm/c4 {number} 0\n")
        calls = [line.split("/")[-1] for line in log.read_text().splitlines()]
        self.assertEqual(calls[0], f"systemctl start --no-block c4d_master@{number}")
        self.assertIn("systemctl is-active --quiet c4a", calls)
        self.assertIn(f"systemd-run --quiet --on-active=600 --setenv=SLURM_JOB_ID={number} ", log.read_text().splitlines()[-1]
                      .replace(f"{self.folder}/systemd-run", "systemd-run"))
        # Ten minutes later, of a job that is over, and of one that is not.
        subprocess.run(self.inside("-ctl", [self.folder / "epilog_slurmctld.sh", "later"]), check=True,
                       env={**self.environment, "SLURM_JOB_ID": number})
        self.assertTrue(log.read_text().endswith(f"systemctl stop --no-block c4d_master@{number}\n"), log.read_text())
        held = self.ask("sbatch", "--parsable", "--hold", job).strip()
        subprocess.run(self.inside("-ctl", [self.folder / "epilog_slurmctld.sh", "later"]), check=True,
                       env={**self.environment, "SLURM_JOB_ID": held})
        self.assertNotIn(f"stop --no-block c4d_master@{held}", log.read_text())

    def test_again_in_the_allocation_on_its_spare_node(self):
        number = self.begin(["-N", "3"], "export C4_FIRST=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)\n"
                                         "{source}/deploy/slurm/c4-steps 2 {rank}")
        self.recovers("in the allocation", 2, 1)
        self.assertIn("drain", self.nodes()[f"{PREFIX}2"][0])
        self.assertEqual(self.ask("squeue", "-h", "-j", number, "-O", "RestartCnt:").strip(), "0")
        steps = self.ask("squeue", "-h", "-s", "-j", number, "-o", "%i %N")
        self.assertIn(f"{number}.1 {PREFIX}[1,3]", steps)


if __name__ == "__main__":
    absent = [tool for tool in TOOLS if shutil.which(tool) is None]
    if absent or os.geteuid() != 0:
        why = f"{', '.join(absent)} missing: scripts/setup.sh slurm installs Slurm" if absent else "it needs root"
        print(f"{'=' * 78}\nNOT RUN: the test of recovery with a real Slurm; {why}\n{'=' * 78}", file=sys.stderr)
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
