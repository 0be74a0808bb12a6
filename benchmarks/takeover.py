#!/usr/bin/env python3
"""What a takeover of the path master costs jobs that run: takeover.py [--build DIR] [--jobs N] [--rounds N] [--out FILE].

An emulated fabric of 2 leaves, 2 spines and 2 hosts a leaf, an etcd, two path masters that share it, and N jobs of four ranks each, all
of whose agents know both addresses. Each round is a pair: a while without a takeover, and one in which the leader is killed. Of each
half the operations of each job in 5 s are counted. Told are: how long until the other master serves, until all agents are in session
with it, how many queue pairs took another path, and the ratio of the jobs' operations with and without. Needs root, and etcd.
"""
import argparse
import json
import os
import pathlib
import random
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

SECONDS = 5.0


def free_port(host):
    with socket.socket() as probe:
        probe.bind((host, 0))
        return probe.getsockname()[1]


def wait_for(what, seconds, ask):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        answer = ask()
        if answer:
            return answer
        time.sleep(0.02)
    raise SystemExit(f"no {what} within {seconds} s")


class Bench:
    def __init__(self, build, jobs, path):
        self.bin, self.path, self.children = build / "bin", path, []
        self.fabric = f"tk{os.getpid() % 100000}"
        self.jobs, self.masters, self.logs = [], [None, None], [None, None]
        self.starts = 0
        self.job_count = jobs

    def c4(self, *words):
        return subprocess.run([self.bin / "c4", *map(str, words)], capture_output=True, text=True, check=False)

    def start(self, words, log, environment=None):
        with open(log, "w", encoding="utf-8") as out:
            child = subprocess.Popen([str(word) for word in words], stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                     env={**os.environ, **(environment or {})})
        self.children.append(child)
        return child

    def up(self):
        made = self.c4("fabric", "up", "2x2x2", "--name", self.fabric, "--rate", 100, "--json")
        if made.returncode != 0:
            raise SystemExit(made.stderr)
        hosts = json.loads(made.stdout)["hosts"]
        self.root = hosts[0]["management_address"].rsplit(".", 1)[0] + ".1"
        (self.path / "topology.json").write_text(self.c4("fabric", "topology", self.fabric).stdout, encoding="utf-8")
        self.c4("pki", "key", self.path / "key")
        client, peer = (f"http://127.0.0.1:{free_port('127.0.0.1')}" for _ in range(2))
        self.start(["etcd", "--name", "m0", "--data-dir", self.path / "etcd", "--listen-client-urls", client, "--advertise-client-urls",
                    client, "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"m0={peer}"],
                   self.path / "etcd.log")
        self.store = client.replace("http://", "etcd://")
        self.places = [f"{self.root}:{20000 + random.randrange(20000)}" for _ in range(2)]
        time.sleep(2)
        self.start_master(0)
        wait_for("leader", 30, lambda: "serving paths" in self.said(0))
        self.start_master(1)
        wait_for("standby", 30, lambda: "standing by" in self.said(1))
        for number in range(self.job_count):
            run_dir = self.path / f"job{number}"
            run_dir.mkdir()
            job = self.start([self.bin / "c4", "run", "-n", 4, "--fabric", self.fabric, "--job", f"takeover{number}", "--no-c4p",
                              "--key-file", self.path / "key", "--run-dir", run_dir, "--no-log", "--",
                              self.bin / "all_reduce_perf", "-b", "128K", "-e", "128K", "-N", "0", "--pause-ms", "5"],
                             self.path / f"job{number}.log", {"C4A_PATH_MASTER": ",".join(self.places)})
            self.jobs.append((job, run_dir, f"takeover{number}"))
        for number in range(self.job_count):
            try:
                wait_for(f"job {number}", 60, lambda n=number: self.finished(n) > 100)
            except SystemExit as why:
                raise SystemExit(f"{why}; it said: {(self.path / f'job{number}.log').read_text(encoding='utf-8')}") from None

    def start_master(self, at):
        self.starts += 1
        self.logs[at] = self.path / f"master{at}.{self.starts}.log"
        self.masters[at] = self.start([self.bin / "c4p_master", "--listen", self.places[at], "--http-address", "127.0.0.1:0", "--directory",
                                       self.path / "masters", "--key-file", self.path / "key", "--topology",
                                       self.path / "topology.json", "--store", self.store], self.logs[at],
                                      {"C4_RUN_DIR": str(self.path / f"master{at}")})

    def said(self, at):
        return self.logs[at].read_text(encoding="utf-8")

    def finished(self, number):
        _, run_dir, name = self.jobs[number]
        said = self.c4("status", "--json", "--run-dir", run_dir, "--job", name)
        try:
            ranks = json.loads(said.stdout)["ranks"]
        except (ValueError, KeyError):
            return 0
        return min((rank["finished"] for rank in ranks), default=0) if len(ranks) == 4 else 0

    def paths(self):
        """Of each queue pair its port and links."""
        said = self.c4("paths", "--json", "--run-dir", self.path, "--key-file", self.path / "key")
        try:
            connections = json.loads(said.stdout)["connections"]
        except (ValueError, KeyError):
            return {}
        return {(connection["connection"], index): (pair["tuple"]["source_port"], tuple(pair["links"]))
                for connection in connections for index, pair in enumerate(connection["queue_pairs"])}

    def settled(self, queue_pairs=0):
        known = self.paths()
        return known if len(known) >= max(queue_pairs, 1) and all(links for _, links in known.values()) else None

    def learn(self):
        """Until no more queue pairs have come to be known for a while."""
        end = time.monotonic() + 120
        known, since = None, time.monotonic()
        while time.monotonic() < end:
            now = self.settled()
            if now is None or known is None or len(now) != len(known):
                known, since = now, time.monotonic()
            if known and time.monotonic() - since > 15:
                return
            time.sleep(0.5)
        raise SystemExit("the queue pairs' paths are not known within 120 s")

    def rates(self):
        """Operations of each job in a while, by the ranks' own counts."""
        begin = [(self.finished(number), time.monotonic()) for number in range(self.job_count)]
        yield
        while time.monotonic() < begin[0][1] + SECONDS:
            time.sleep(0.05)
        end = [(self.finished(number), time.monotonic()) for number in range(self.job_count)]
        yield [(after[0] - before[0]) / (after[1] - before[1]) for before, after in zip(begin, end)]

    def down(self):
        for child in reversed(self.children):
            if child.poll() is None:
                child.send_signal(signal.SIGTERM)
        for child in self.children:
            try:
                child.wait(20)
            except subprocess.TimeoutExpired:
                child.kill()
        self.c4("fabric", "down", self.fabric)

    def round(self, leader):
        other = 1 - leader
        quiet = self.rates()
        next(quiet)
        without = next(quiet)
        before = wait_for("paths", 60, self.settled)
        taken = self.rates()
        next(taken)
        sessions = len(re.findall("is in session", self.said(other)))
        killed = time.monotonic()
        self.masters[leader].send_signal(signal.SIGKILL)
        wait_for("takeover", 30, lambda: "serving paths" in self.said(other))
        serves_s = time.monotonic() - killed
        hosts = 4  # an agent each
        wait_for("sessions", 60, lambda: len(re.findall("is in session", self.said(other))) - sessions >= hosts)
        session_s = time.monotonic() - killed
        within = next(taken)
        after = wait_for("paths", 60, lambda: self.settled(len(before)))
        moved = sum(after.get(key) != value for key, value in before.items())
        self.masters[leader].wait()
        self.start_master(leader)
        wait_for("standby", 30, lambda: "standing by" in self.said(leader))
        return {"serves_s": serves_s, "session_s": session_s, "queue_pairs": len(before), "moved": moved,
                "without_per_s": without, "with_per_s": within,
                "ratio": statistics.median(b / a for a, b in zip(without, within) if a > 0)}


def busy():
    """Processor time of the machine, used and in all."""
    values = [int(word) for word in pathlib.Path("/proc/stat").read_text(encoding="utf-8").splitlines()[0].split()[1:9]]
    return sum(values) - values[3] - values[4], sum(values)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"))
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="c4-takeover-", dir="/dev/shm") as folder:
        bench = Bench(options.build.resolve(), options.jobs, pathlib.Path(folder))
        try:
            bench.up()
            bench.learn()
            used, whole = busy()
            rounds = [bench.round(number % 2) for number in range(options.rounds)]
            used_after, whole_after = busy()
        finally:
            bench.down()
    result = {"jobs": options.jobs, "processors_busy": (used_after - used) / (whole_after - whole), "rounds": rounds}
    for key, unit in (("serves_s", "s"), ("session_s", "s"), ("moved", ""), ("ratio", "")):
        values = [one[key] for one in rounds]
        print(f"{key}: median {statistics.median(values):.2f} {unit}, most {max(values):.2f}, least {min(values):.2f}")
    print(f"{rounds[0]['queue_pairs']} queue pairs; processors {100 * result['processors_busy']:.0f} % busy")
    if options.out:
        options.out.write_text(json.dumps(result, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
