#!/usr/bin/env python3
"""A trace of fail-slows played into a job that learns, with mitigation and without, both at the same time.

    mitigation_trace.py make SEED [FILE]         writes a trace of 12 fail-slows
    mitigation_trace.py run [TRACE [RUN.json [N]]]
                                                 plays it (benchmarks/mitigation_trace.json), or its first N fail-slows, on the
                                                 emulated fabric, as root; RUN.json is what `c4-figures falcon` draws
    mitigation_trace.py tell RUN.json            the figures of a stored run

The committed trace was made before anything was measured by it, and is not tuned. A job is four groups of two stages on
eight hosts below two leaves; a worker computes slower by a factor, or the uplink of a leaf has little of its rate left.
Throughput counts from the first fail-slow to the end of the last, in micro-batches done; what is removed of the
slow-down is (without - with) / (without - healthy) of the mean iteration. Exit status 1 where a target is missed.
"""

import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
BIN = os.path.join(HERE, "..", "build", "bin")
TRACE = os.path.join(HERE, "mitigation_trace.json")
RANKS = 8
EVENTS = 12
LINK = "leaf0-spine0"
LEAST_RATIO = 1.5
LEAST_REMOVED = 0.65
TRAINER = ["--pipeline", "2", "--width", "64", "--hidden", "512", "--layers", "4", "--sequence", "4", "--batch", "1",
           "--micro-batches", "32", "--device-ms", "10", "--report-every", "1"]
START_S = 20  # healthy iterations before the first fail-slow
END_S = 10


def make(seed):
    chance = random.Random(seed)
    at = float(START_S)
    events = []
    kinds = ["compute"] * 8 + ["link"] * 4
    chance.shuffle(kinds)
    for kind in kinds:
        at += chance.uniform(15, 35)
        event = {"kind": kind, "from_s": round(at, 1), "until_s": round(at + chance.uniform(80, 160), 1)}
        if kind == "compute":
            event |= {"rank": chance.randrange(RANKS), "factor": round(chance.uniform(1.5, 3.5), 2)}
        else:
            event["rate_mbps"] = round(chance.uniform(10, 40), 1)
        events.append(event)
        at = event["until_s"]
    return {"seed": seed, "seconds": round(at + END_S, 1), "events": events}


class Run:
    """A job with the trace in it, from its start to its end."""

    def __init__(self, trace, mitigate, folder):
        self.trace = trace
        self.mitigate = mitigate
        self.folder = os.path.join(folder, "on" if mitigate else "off")
        os.mkdir(self.folder)
        self.iterations = []
        self.lines = []
        self.began = threading.Event()
        self.injected = []

    def play(self):
        slow = os.path.join(self.folder, "slow")
        with open(slow, "w", encoding="utf-8") as file:
            for event in self.trace["events"]:
                if event["kind"] == "compute":
                    print(event["rank"], event["factor"], event["from_s"], event["until_s"], file=file)
        word = "true" if self.mitigate else "false"
        environment = {**os.environ, "C4D_FAIL_SLOW": "true", "C4_MITIGATE": word, "C4_ALGORITHM": "ring"}
        command = [os.path.join(BIN, "c4"), "run", "-n", str(RANKS), "--fabric", "2x1x4", "--ranks-per-host", "1", "--job",
                   f"trace-{word}", "--run-dir", self.folder, "--log-dir", os.path.join(self.folder, "logs"), "--",
                   os.path.join(BIN, "lm_trainer"), "--slow-file", slow, "--seconds", str(self.trace["seconds"]), *TRAINER]
        errors = open(os.path.join(self.folder, "errors"), "w", encoding="utf-8")
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment) as job:
            links = threading.Thread(target=self.slow_links, daemon=True)
            for line in job.stdout:
                now = time.time()
                self.lines.append(line)
                told = re.match(r"iteration (\d+): loss ([\d.]+), ([\d.]+) ms", line)
                if not told:
                    continue
                if not self.iterations:
                    self.began_s = now - float(told.group(3)) / 1e3
                    links.start()
                self.iterations.append((now - self.began_s, float(told.group(3)), float(told.group(2))))
        errors.close()
        self.status = job.returncode
        self.ledger = json.loads(self.c4("ledger", "trace-" + word, "--json") or "{}")
        self.text = self.c4("ledger", "trace-" + word)

    def c4(self, *words):
        done = subprocess.run([os.path.join(BIN, "c4"), *words, "--run-dir", self.folder, "--log-dir",
                               os.path.join(self.folder, "logs")], capture_output=True, text=True, check=False)
        return done.stdout

    def slow_links(self):
        for event in self.trace["events"]:
            if event["kind"] != "link":
                continue
            time.sleep(max(0.0, self.began_s + event["from_s"] - time.time()))
            last = event["until_s"] - event["from_s"]
            done = subprocess.run(
                [os.path.join(BIN, "c4"), "inject", "slow-link", LINK, "--rate", str(event["rate_mbps"]), "--for",
                 str(last), "--no-plan", "--run-dir", self.folder], capture_output=True, text=True, check=False)
            self.injected.append(done.returncode)

    def stored(self):
        actions = []
        for event in self.ledger.get("events", []):
            for action in event["actions"]:
                if action["failed"]:
                    continue
                why = (f"{action['before_s']:.3f} s, promised {action['promised_s']:.3f} s, brought "
                       f"{action['brought_s'] or 0:.3f} s, cost {action['cost_s']:.3f} s")
                actions.append({"at_s": max(0, action["at_unix_s"] - self.began_s), "strategy": action["strategy"],
                                "kind": "act", "why": why})
                if action["taken_back_unix_s"]:
                    actions.append({"at_s": action["taken_back_unix_s"] - self.began_s, "strategy": action["strategy"],
                                    "kind": "step-back", "why": ""})
        return {
            "name": "with mitigation" if self.mitigate else "without mitigation",
            "mitigated": self.mitigate,
            "iterations": [{"at_s": round(at, 3), "ms": ms, "loss": loss} for at, ms, loss in self.iterations],
            "events": [{"from_s": e["from_s"], "until_s": e["until_s"], "what": named(e)} for e in self.trace["events"]],
            "actions": actions,
            "ledger": self.ledger,
        }


def named(event):
    if event["kind"] == "compute":
        return f"rank {event['rank']} computes {event['factor']} times as long"
    return f"{LINK} at {event['rate_mbps']} Mbit/s"


def tell(stored):
    runs = {run["mitigated"]: run for run in stored["runs"]}
    first, last = stored["trace"]["events"][0]["from_s"], stored["trace"]["events"][-1]["until_s"]
    healthy = statistics.median(
        i["ms"] for run in runs.values() for i in run["iterations"] if 5 < i["at_s"] < first
    )
    means = {}
    for mitigated, run in runs.items():
        during = [i["ms"] for i in run["iterations"] if first <= i["at_s"] < last]
        means[mitigated] = statistics.mean(during)
        print(f"{run['name']}: {len(during)} iterations from {first:.0f} s to {last:.0f} s, {means[mitigated]:.1f} ms in the "
              f"mean; {len(run['actions'])} actions")
    ratio = means[False] / means[True]
    removed = (means[False] - means[True]) / (means[False] - healthy)
    for number, event in enumerate(stored["trace"]["events"], 1):
        parts = []
        for mitigated in (False, True):
            during = [i["ms"] for i in runs[mitigated]["iterations"] if event["from_s"] <= i["at_s"] < event["until_s"]]
            done = [f"{a['strategy']} {a['kind']}" for a in runs[mitigated]["actions"]
                    if event["from_s"] <= a["at_s"] < event["until_s"] + 15]
            parts.append(f"{statistics.mean(during):.0f} ms" + (f" ({', '.join(done)})" if done else ""))
        print(f"{number}: {named(event)} for {event['until_s'] - event['from_s']:.0f} s: {parts[0]} without, {parts[1]} with")
    print(f"healthy {healthy:.1f} ms; throughput {ratio:.2f} times that without (target {LEAST_RATIO}), "
          f"{removed:.1%} of the slow-down removed (target {LEAST_REMOVED:.0%})")
    return 0 if ratio >= LEAST_RATIO and removed >= LEAST_REMOVED else 1


def run(trace_path, run_path, first):
    with open(trace_path, encoding="utf-8") as file:
        trace = json.load(file)
    if first < len(trace["events"]):
        trace["events"] = trace["events"][:first]
        trace["seconds"] = trace["events"][-1]["until_s"] + END_S
    with tempfile.TemporaryDirectory(prefix="mitigation_trace.") as folder:
        runs = [Run(trace, mitigate, folder) for mitigate in (False, True)]
        players = [threading.Thread(target=one.play) for one in runs]
        for player in players:
            player.start()
            time.sleep(2)  # two fabrics are not made at the same moment
        for player in players:
            player.join()
        for one in runs:
            with open(os.path.join(one.folder, "errors"), encoding="utf-8") as errors:
                text = errors.read()
            if one.status != 0 or any(one.injected):
                sys.exit(f"{one.folder}: status {one.status}, injections {one.injected}\n{text[-3000:]}")
        print(runs[1].text)
        stored = {"title": f"{len(trace['events'])} fail-slows, seed {trace['seed']}", "trace": trace,
                  "runs": [one.stored() for one in runs]}
    with open(run_path, "w", encoding="utf-8") as file:
        json.dump(stored, file)
    return tell(stored)


def main():
    words = sys.argv[1:] + [None, None, None, None]
    if words[0] == "make" and words[1] is not None:
        with open(words[2] or TRACE, "w", encoding="utf-8") as file:
            json.dump(make(int(words[1])), file, indent=1)
            file.write("\n")
        return 0
    if words[0] == "run":
        return run(words[1] or TRACE, words[2] or "mitigation_run.json", int(words[3] or EVENTS))
    if words[0] == "tell" and words[1] is not None:
        with open(words[1], encoding="utf-8") as file:
            return tell(json.load(file))
    print(__doc__)
    return 2


if __name__ == "__main__":
    sys.exit(main())
