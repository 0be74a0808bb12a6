#!/usr/bin/env python3
"""Fail-slows of the reference trainer on the emulated fabric, told from its calls, judged against what was injected.

    failslow_e2e.py layouts [SECONDS]      the time of an iteration by its calls against the trainer's own marks, six layouts
    failslow_e2e.py faults [N [SEED]]      N seeded fail-slows: less processor, a slow link, both at once

As root. Prints a line a run and a table; exit status 1 where a target is missed.
"""

import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time

BIN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "build", "bin")
LAYOUTS = [(1, 1), (2, 1), (1, 2), (2, 2), (4, 2), (2, 4)]  # tensor, pipeline; eight ranks
MOST_ERROR = 0.01


class Job:
    """A trainer that runs below `c4 run` until it is ended."""

    def __init__(self, ranks, options, trainer):
        self.folder = tempfile.TemporaryDirectory(prefix="failslow_e2e.")
        self.log = open(os.path.join(self.folder.name, "log"), "w", encoding="utf-8")
        command = [os.path.join(BIN, "c4"), "run", "-n", str(ranks), "--run-dir", self.folder.name, *options, "--",
                   os.path.join(BIN, "hybrid_trainer"), "--seconds", "900", *trainer]
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log)

    def c4(self, *words):
        done = subprocess.run([os.path.join(BIN, "c4"), *words, "--run-dir", self.folder.name], capture_output=True,
                              text=True, timeout=60, check=False)
        return done.stdout

    def iterations(self):
        try:
            return json.loads(self.c4("iterations", "--json"))
        except json.JSONDecodeError:
            return {"iterations": 0, "ranks": [], "times": []}

    def fail_slows(self, since):
        try:
            verdicts = json.loads(self.c4("verdicts", "--all", "--json"))["verdicts"]
        except (json.JSONDecodeError, KeyError):
            return []
        return [v for v in verdicts if v["syndrome"] == "fail-slow" and (v["confirmed_unix_s"] or 0) > since]

    def wait(self, limit_s, holds):
        until = time.time() + limit_s
        while time.time() < until and self.process.poll() is None:
            if holds():
                return True
            time.sleep(0.5)
        return False

    def end(self):
        self.process.send_signal(2)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self.log.close()
        self.folder.cleanup()


def error_of(layout, seconds):
    """Of each iteration that was marked, the time by its calls against the mark: medians over the same time."""
    tensor, pipeline = layout
    # Nothing lies between two steps but a report now and then: the marks and the calls see the same time.
    job = Job(8, [], ["--tensor", str(tensor), "--pipeline", str(pipeline), "--report-every", "1000000"])
    try:
        job.wait(60, lambda: job.iterations()["iterations"] > 50)
        job.c4("level", "fine")
        errors = []
        until = time.time() + seconds
        while time.time() < until:
            for rank in job.iterations()["ranks"]:
                if rank["marked"] > 20 and rank["calls_newest_s"]:
                    errors.append(rank["calls_newest_s"] / rank["marked_newest_s"] - 1)
            time.sleep(1)
        return job.iterations().get("period"), errors
    finally:
        job.end()


def layouts(seconds):
    print("| tensor x pipeline x data | calls | samples | median error | of 95 % at most |\n|---|---|---|---|---|")
    good = True
    for layout in LAYOUTS:
        period, errors = error_of(layout, seconds)
        if not errors:
            print(f"| {layout[0]} x {layout[1]} | {period} | 0 | - | - |", flush=True)
            good = False
            continue
        median = statistics.median(errors)
        worst = sorted(abs(error) for error in errors)[int(0.95 * (len(errors) - 1))]
        good = good and abs(median) <= MOST_ERROR
        print(f"| {layout[0]} x {layout[1]} x {8 // (layout[0] * layout[1])} | {period} | {len(errors)} | "
              f"{100 * median:+.2f} % | {100 * worst:.2f} % |", flush=True)
    return good


def right(verdict, rank, cable):
    culprit = verdict["culprit"]
    names = {link.replace("<", "-").replace(">", "-") for link in culprit["links"]} | {culprit["cable"]}
    by_rank = culprit["kind"] == "rank" and culprit["rank"] == rank
    by_link = cable is not None and cable in names
    if rank is not None and cable is not None:
        return by_rank or by_link
    return by_rank if rank is not None else by_link


def faults(count, seed):
    chance = random.Random(seed)
    results = []
    job = None
    try:
        for number in range(count):
            kind = ("processor", "link", "both")[number % 3]
            if job is None or job.process.poll() is not None:
                job = Job(8, ["--fabric", "2x2x4"], [])
                job.wait(60, lambda: job.iterations()["iterations"] > 100)
                time.sleep(25)
            rank = chance.randrange(8) if kind != "link" else None
            cable = f"leaf{chance.randrange(2)}-spine{chance.randrange(2)}" if kind != "processor" else None
            began = time.time()
            if rank is not None:
                job.c4("inject", "slow-rank", f"host{rank}", "--percent", str(chance.randrange(6, 11)), "--no-plan")
            if cable is not None:
                job.c4("inject", "slow-link", cable, "--no-plan")
            known = job.wait(60, lambda: any(v["fail_slow"]["known_from"] for v in job.fail_slows(began)))
            named_s = time.time() - began if known else None
            time.sleep(10)
            told = job.fail_slows(began)
            is_right = bool(told) and right(told[-1], rank, cable)
            job.c4("inject", "heal", "--no-plan")
            healed = time.time()
            relieved = job.wait(60, lambda: all(v["state"] == "cleared" for v in job.fail_slows(began)))
            relief_s = time.time() - healed if relieved and told else None
            time.sleep(20)
            false = len(job.fail_slows(healed))
            results.append((kind, bool(told), is_right, named_s, relief_s, len(told), false))
            what = told[-1]["culprit"] if told else {}
            print(f"{number} {kind} rank {rank} {cable}: told {len(told)}, right {is_right}, named {named_s}, "
                  f"relief {relief_s}, later {false}, {what.get('kind')} {what.get('rank')} {what.get('cable')} "
                  f"{what.get('links')} {told[-1]['fail_slow']['cause'] if told else ''}", flush=True)
    finally:
        if job is not None:
            job.end()
    print("| fault | runs | told | culprit right | named after, median | relief after, median | told later, none expected |"
          "\n|---|---|---|---|---|---|---|")
    for kind in ("processor", "link", "both"):
        of_kind = [r for r in results if r[0] == kind]
        if not of_kind:
            continue
        median = lambda values: f"{statistics.median(values):.1f} s" if values else "-"
        print(f"| {kind} | {len(of_kind)} | {sum(r[1] for r in of_kind)} | {sum(r[2] for r in of_kind)} | "
              f"{median([r[3] for r in of_kind if r[3]])} | {median([r[4] for r in of_kind if r[4]])} | "
              f"{sum(r[6] for r in of_kind)} |")
    return all(r[2] for r in results)


def main():
    words = sys.argv[1:]
    if not words or words[0] not in ("layouts", "faults"):
        sys.exit(__doc__)
    if words[0] == "layouts":
        return layouts(float(words[1]) if len(words) > 1 else 20)
    return faults(int(words[1]) if len(words) > 1 else 30, int(words[2]) if len(words) > 2 else 1)


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
