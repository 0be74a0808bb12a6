#!/usr/bin/env python3
"""Guilt proved by intervention, on the emulated fabric: a slow link that one queue pair alone loads.

    intervention_e2e.py [RUNS [SPINES]]

What is seen cannot tell such a link from the links, NICs and ranks before and behind it. Each run starts a job of six ranks below
three leaves (`c4 run --fabric 3xSPINESx2 --intervene`), slows a cable that carries the gradients of one connection, and waits
100 s for the verdict. As root. Prints a line a run and how they ended: `right` and `wrong` by what the experiment named, `known
without` where C4D named the link by itself, else how the last experiment ended (docs/verdicts.md). Exit status 1 where one was wrong.
"""

import collections
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

BIN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "build", "bin")
RANKS = 6
LEARNT_S = 90
LIMIT_S = 100


class Job:
    def __init__(self, spines):
        self.folder = tempfile.TemporaryDirectory(prefix="c4-intervention.", dir="/dev/shm")
        self.log = open(os.path.join(self.folder.name, "log"), "w", encoding="utf-8")
        command = [os.path.join(BIN, "c4"), "run", "-n", str(RANKS), "--fabric", f"3x{spines}x2", "--intervene",
                   "--run-dir", self.folder.name, "--no-log", "--",
                   os.path.join(BIN, "hybrid_trainer"), "--tensor", "1", "--pipeline", "1", "--seconds", "300",
                   "--report-every", "1000"]
        environment = {**os.environ, "C4_QUEUE_PAIRS": "1", "C4_CHANNELS": "2"}
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log, env=environment)

    def c4(self, *words):
        done = subprocess.run([os.path.join(BIN, "c4"), *words, "--run-dir", self.folder.name], text=True,
                              capture_output=True, timeout=30, check=False)
        return done.stdout

    def asked(self, *words):
        try:
            return json.loads(self.c4(*words, "--json"))
        except json.JSONDecodeError:
            return {}

    def end(self):
        self.process.send_signal(signal.SIGINT)
        self.process.wait(timeout=60)
        self.log.close()
        self.folder.cleanup()


def neighbours(one):
    return (one["from_rank"] + 1) % RANKS == one["to_rank"]


def eventually(limit_s, holds):
    until = time.time() + limit_s
    while time.time() < until:
        found = holds()
        if found:
            return found
        time.sleep(0.5)
    return None


def learnt(job):
    cells = job.asked("matrix").get("cells", [])
    return sum(1 for cell in cells if neighbours(cell) and cell["chunks"] > 20 and cell["usual_ns_per_kib"] > 0) >= RANKS


def cable_of_one(paths):
    """A cable that carries the gradients of one connection: those of the communicator whose ranks talk to neighbours alone."""
    others = {one["communicator_id"] for one in paths["connections"] if not neighbours(one)}
    uses = collections.Counter()
    for one in paths["connections"]:
        if one["communicator_id"] in others:
            continue
        for queue_pair in one["queue_pairs"]:
            uses.update(link.replace(">", "-").replace("<", "-") for link in queue_pair["links"] if "spine" in link)
    return next((cable for cable, times in sorted(uses.items()) if times == 1), None)


def run(spines):
    job = Job(spines)
    try:
        if not eventually(LEARNT_S, lambda: learnt(job)):
            return "not learnt", {}
        cable = cable_of_one(job.asked("paths"))
        if cable is None:
            return "no such cable", {}
        job.c4("inject", "slow-link", cable, "--no-plan")
        began = time.time()

        def moved():
            return [one for one in job.asked("verdicts", "--all").get("verdicts", []) if one["confirmed_by"] == "moved"]

        verdicts = eventually(LIMIT_S, moved)
        if verdicts:
            culprit = verdicts[0]["culprit"]
            what = {"cable": cable, "named": culprit["cable"] or culprit["kind"], "s": round(time.time() - began, 1)}
            return ("right" if culprit["cable"] == cable else "ambiguous" if cable in str(culprit["links"]).replace(
                ">", "-").replace("<", "-") else "wrong"), what
        told = job.asked("verdicts", "--all").get("verdicts", [])
        ends = [one["outcome"] for verdict in told for one in verdict["interventions"]]
        named = {one["culprit"]["cable"] for one in told if one["state"] == "confirmed" and one["culprit"]["cable"]}
        how = "known without" if named == {cable} else ends[-1] if ends else "no experiment"
        return how, {"cable": cable, "told": [one["culprit"]["kind"] for one in told]}
    finally:
        job.end()


def main():
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 8
    spines = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    results = collections.Counter()
    for number in range(runs):
        result, what = run(spines)
        results[result] += 1
        print(number, result, json.dumps(what), flush=True)
    print(dict(results))
    return 1 if results["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
