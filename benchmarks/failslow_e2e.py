#!/usr/bin/env python3
"""Fail-slows of the reference trainer on the emulated fabric, told from its calls, judged against what was injected.

    failslow_e2e.py layouts [SECONDS]      the time of an iteration by its calls against the trainer's own clock, six layouts
    failslow_e2e.py faults [N [SEED [FILE [SECONDS]]]]
                                           N seeded fail-slows: less processor, a slow link, both at once; each job is
                                           validated meanwhile, and its results are compared with an undisturbed run's.
                                           What FILE has of them is not run again, what is run is added to it; none is
                                           begun after SECONDS: so it can be run in pieces

As root. Prints a line a run and a table; exit status 1 where a target is missed.
"""

import collections
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
BLOCK = 20  # iterations between two lines of the trainer
LEAST_BLOCKS = 12
MOST_BLOCKS = 60
LONGEST_HELD_S = 3.0
FABRIC = ["--fabric", "2x2x4"]
ITERATIONS = 3000  # of a job with a fault in it: some two minutes


class Job:
    """A trainer that runs below `c4 run` until it is ended."""

    def __init__(self, ranks, options, trainer):
        self.folder = tempfile.TemporaryDirectory(prefix="failslow_e2e.")
        self.log = open(os.path.join(self.folder.name, "log"), "w", encoding="utf-8")
        command = [os.path.join(BIN, "c4"), "run", "-n", str(ranks), "--run-dir", self.folder.name, *options, "--",
                   os.path.join(BIN, "hybrid_trainer"), "--seconds", "900", *trainer]
        environment = {**os.environ, "C4D_FAIL_SLOW": "true"}  # the verdict is on trial
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log, env=environment)

    def output(self):
        with open(self.log.name, encoding="utf-8") as log:
            return log.read()

    def processes(self):
        """All that runs below the launcher."""
        children = {}
        for name in os.listdir("/proc"):
            if not name.isdigit():
                continue
            try:
                with open(f"/proc/{name}/stat", encoding="ascii", errors="replace") as stat:
                    parent = int(stat.read().rsplit(")", 1)[1].split()[1])
            except (FileNotFoundError, ProcessLookupError):
                continue
            children.setdefault(parent, []).append(int(name))
        found = [self.process.pid]
        for pid in found:
            found.extend(children.get(pid, []))
        return found

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


def trainer_blocks(text):
    """Seconds of an iteration by the trainer's own clock, over each BLOCK iterations."""
    blocks = []
    for line in text.splitlines():
        if line.startswith("iteration ") and line.endswith(" ms an iteration"):
            blocks.append(float(line.split()[-4]) / 1e3)
    return blocks[1:]  # of the first there is one iteration


def block_errors(times, blocks, offset):
    errors = []
    for i, block in enumerate(blocks):
        begin = offset + BLOCK * i
        part = times[begin:begin + BLOCK] if begin >= 0 else []
        if len(part) == BLOCK:
            errors.append(sum(part) / BLOCK / block - 1)
    return errors


def error_of(layout, seconds):
    """The time of an iteration by its calls against the trainer's own clock, each BLOCK iterations.

    Which iteration the first one told is, nobody says: the two series are laid over each other where they fit best.
    """
    tensor, pipeline = layout
    job = Job(8, [], ["--tensor", str(tensor), "--pipeline", str(pipeline), "--report-every", str(BLOCK)])
    try:
        job.wait(60, lambda: job.iterations()["iterations"] > 50)
        job.wait(5 * seconds, lambda: len(trainer_blocks(job.output())) >= MOST_BLOCKS)
        told = job.iterations()
        times = longest_run(told["times"])
        blocks = trainer_blocks(job.output())
        best = min((block_errors(times, blocks, offset) for offset in range(-len(blocks) * BLOCK, BLOCK)),
                   key=lambda errors: statistics.mean(abs(e) for e in errors) if len(errors) >= LEAST_BLOCKS else 1e9)
        return told["period"], best if len(best) >= LEAST_BLOCKS else []
    finally:
        job.end()


def longest_run(points):
    """Of the iterations told, the longest run of one shape in which none is missing."""
    runs = [[]]
    for before, point in zip([None, *points], points):
        follows = before is not None and before["shape"] == point["shape"] and \
            abs(before["began_unix_s"] + before["time_s"] - point["began_unix_s"]) < 0.5 * point["time_s"]
        if not follows:
            runs.append([])
        runs[-1].append(point["time_s"])
    return max(runs, key=len)


def layouts(seconds):
    print(f"| tensor x pipeline x data | calls | blocks of {BLOCK} | error of all | median of a block | of 95 % of the blocks "
          "at most |\n|---|---|---|---|---|---|")
    good = True
    for layout in LAYOUTS:
        period, errors = error_of(layout, seconds)
        if not errors:
            print(f"| {layout[0]} x {layout[1]} x {8 // (layout[0] * layout[1])} | {period} | 0 | - | - | - |", flush=True)
            good = False
            continue
        all_of_it = statistics.mean(errors)
        median = statistics.median(abs(error) for error in errors)
        worst = sorted(abs(error) for error in errors)[int(0.95 * (len(errors) - 1))]
        good = good and abs(all_of_it) <= MOST_ERROR and median <= MOST_ERROR
        print(f"| {layout[0]} x {layout[1]} x {8 // (layout[0] * layout[1])} | {period} | {len(errors)} | "
              f"{100 * all_of_it:+.2f} % | {100 * median:.2f} % | {100 * worst:.2f} % |", flush=True)
    return good


def right(verdict, rank, cable):
    culprit = verdict["culprit"]
    names = {link.replace("<", "-").replace(">", "-") for link in culprit["links"]} | {culprit["cable"]}
    by_rank = culprit["kind"] == "rank" and culprit["rank"] == rank
    by_link = cable is not None and cable in names
    if rank is not None and cable is not None:
        return by_rank or by_link
    return by_rank if rank is not None else by_link


def validated(job, rank, cable):
    """How long the job stood still for a validation, how many parts were tested, whether what it finds slow is to blame."""
    try:
        result = json.loads(job.c4("validate", "--json"))
    except json.JSONDecodeError:
        return None
    slow = {device["rank"] for device in result["devices"] if device["slow"]}
    by_rank = rank is None or rank in slow
    others = slow - ({rank} if rank is not None else set())
    return {"held_s": result["held_s"], "state": result["state"], "why": result["why"], "rank_found": by_rank,
            "others": sorted(others), "links_slow": sum(link["slow"] for link in result["links"]),
            "tested": sum(not device["fault"] for device in result["devices"])}


def last_line(text):
    lines = [line for line in text.splitlines() if "iterations, loss" in line]
    return lines[-1].strip() if lines else None


def others_busy(job):
    """Of the machine's processors, the share that programs outside of the job take, over five seconds."""

    def ticks():
        with open("/proc/stat", encoding="ascii") as stat:
            total = [int(word) for word in stat.readline().split()[1:8]]
        own = 0
        for pid in job.processes():
            try:
                with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
                    fields = stat.read().rsplit(")", 1)[1].split()
                own += int(fields[11]) + int(fields[12])
            except (FileNotFoundError, ProcessLookupError):
                continue
        return sum(total), total[3] + total[4], own

    before = ticks()
    time.sleep(5)
    after = ticks()
    passed, idle, own = (b - a for a, b in zip(before, after))
    return max(0.0, (passed - idle - own) / passed)


Plan = collections.namedtuple("Plan", "number kind rank cable percent")


def plan(number, chance):
    kind = ("processor", "link", "both")[number % 3]
    rank = chance.randrange(8) if kind != "link" else None
    cable = f"leaf{chance.randrange(2)}-spine{chance.randrange(2)}" if kind != "processor" else None
    return Plan(number, kind, rank, cable, str(chance.randrange(6, 11)))


def one_fault(fault):
    """A job of its own for each fault, so that its results can be compared."""
    number, kind, rank, cable, percent = fault
    job = Job(8, FABRIC, ["--iterations", str(ITERATIONS)])
    found = {"number": number, "kind": kind, "percent": percent, "told": 0, "right": False, "named_s": None, "relief_s": None, "later": 0, "held": None}
    try:
        job.wait(60, lambda: job.iterations()["iterations"] > 100)
        time.sleep(25)
        found["others_busy"] = others_busy(job)
        began = time.time()
        if rank is not None:
            job.c4("inject", "slow-rank", f"host{rank}", "--percent", percent, "--no-plan")
        if cable is not None:
            job.c4("inject", "slow-link", cable, "--no-plan")
        known = job.wait(60, lambda: any(v["fail_slow"]["known_from"] for v in job.fail_slows(began)))
        found["named_s"] = time.time() - began if known else None
        time.sleep(5)
        told = job.fail_slows(began)
        found["told"] = len(told)
        found["right"] = bool(told) and right(told[-1], rank, cable)
        found["cause"] = told[-1]["fail_slow"]["cause"] if told else ""
        found["culprit"] = {k: told[-1]["culprit"][k] for k in ("kind", "rank", "cable", "links")} if told else {}
        found["slowdown"] = told[-1]["fail_slow"]["slowdown"] if told else None
        found["held"] = validated(job, rank, cable)
        job.c4("inject", "heal", "--no-plan")
        healed = time.time()
        relieved = job.wait(60, lambda: all(v["state"] == "cleared" for v in job.fail_slows(began)))
        found["relief_s"] = time.time() - healed if relieved and told else None
        job.wait(15, lambda: False)
        found["later"] = len(job.fail_slows(healed))
        job.process.wait(300)
        found["end"] = last_line(job.output())
    except subprocess.TimeoutExpired:
        found["end"] = None
    finally:
        job.end()
    print(number, kind, f"rank {rank}", cable, json.dumps(found), flush=True)
    return found


def undisturbed():
    job = Job(8, [*FABRIC, "--no-monitor"], ["--iterations", str(ITERATIONS)])
    try:
        job.process.wait(600)
        return last_line(job.output())
    finally:
        job.end()


def kept(path):
    if path is None or not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def keep(path, what):
    if path is None:
        return
    with open(path, "a", encoding="utf-8") as lines:
        lines.write(json.dumps(what) + "\n")


def faults(count, seed, path, seconds):
    until = time.time() + seconds
    chance = random.Random(seed)
    plans = [plan(number, chance) for number in range(count)]
    before = kept(path)
    usual = next((one["undisturbed"] for one in before if "undisturbed" in one), None)
    if usual is None:
        usual = undisturbed()
        keep(path, {"undisturbed": usual})
    print("undisturbed:", usual, flush=True)
    results = [one for one in before if "number" in one]
    done = {one["number"] for one in results}
    for fault in plans:
        if fault.number in done or time.time() > until:
            continue
        results.append(one_fault(fault))
        keep(path, results[-1])
    print("| fault | runs | told | culprit right | named after, median | relief after, median | told later, none "
          "expected | held, longest | results equal |\n|---|---|---|---|---|---|---|---|---|")
    for kind in ("processor", "link", "both"):
        of_kind = [r for r in results if r["kind"] == kind]
        if not of_kind:
            continue
        def median(values):
            return f"{statistics.median(values):.1f} s" if values else "-"
        held = [r["held"]["held_s"] for r in of_kind if r["held"]]
        print(f"| {kind} | {len(of_kind)} | {sum(r['told'] > 0 for r in of_kind)} | {sum(r['right'] for r in of_kind)} | "
              f"{median([r['named_s'] for r in of_kind if r['named_s']])} | "
              f"{median([r['relief_s'] for r in of_kind if r['relief_s']])} | {sum(r['later'] for r in of_kind)} | "
              f"{max(held, default=0):.2f} s | {sum(r.get('end') == usual for r in of_kind)} |")
    good = all(r["right"] and r.get("end") == usual and r["held"] and r["held"]["held_s"] <= LONGEST_HELD_S
               for r in results)
    return good and len(results) >= count


def main():
    words = sys.argv[1:]
    if not words or words[0] not in ("layouts", "faults"):
        sys.exit(__doc__)
    if words[0] == "layouts":
        return layouts(float(words[1]) if len(words) > 1 else 20)
    return faults(int(words[1]) if len(words) > 1 else 30, int(words[2]) if len(words) > 2 else 1,
                  words[3] if len(words) > 3 else None, float(words[4]) if len(words) > 4 else 1e9)


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
