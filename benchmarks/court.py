#!/usr/bin/env python3
"""The yardstick: simulated incidents with their truth, and several diagnosers that judge them.

build/bin/court makes the incidents and tells what C4D says of each, by its agents, by NCCL's RAS alone, and by NCCL's Inspector alone. Here the others judge:
PyTorch's torchfrtrace (of the wheel, in this Python) and `c4 hang`, on the Flight Recorder dumps of the ranks that live; and a plain
time-out of ten minutes, which names nobody. A judge is *right* when it names ranks, and only such as the fault is at; *ambiguous* when the
culprit is among at most three that it names; else *wrong*. It is *none* when it names nobody. Of what a judge has no input for it says
none. docs/benchmarks.md has the table.

  benchmarks/court.py --out DIR [--incidents 312] [--seed S] [--ranks 64] [--jobs 2]    needs torch: build/torch/venv/bin/python
"""
import argparse
import collections
import contextlib
import io
import json
import logging
import pathlib
import pickle
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
WATCHDOG_S = 600  # torch's default; the dumps are written then
OUTCOMES = ("right", "ambiguous", "wrong", "none")


def verdict(named, accepted):
    named, accepted = set(named), set(accepted)
    if not named:
        return "none"
    if named <= accepted:
        return "right"
    return "ambiguous" if named & accepted and len(named) <= 3 else "wrong"


def dumps_of(folder, target, p2p):
    """The rank's dumps as torch writes them. Lists stay lists, but a group is a pair."""
    target.mkdir()
    for path in folder.glob("rank-*.json"):
        dump = json.loads(path.read_text(encoding="utf-8"))
        dump["entries"] = [entry for entry in dump["entries"] if p2p or not entry["is_p2p"]]
        for entry in dump["entries"]:
            entry["process_group"] = tuple(entry["process_group"])
        with open(target / f"nccl_trace_rank_{path.stem.split('-')[1]}", "wb") as out:
            pickle.dump(dump, out, protocol=2)


def torchfrtrace(folder):
    """Ranks by what it says: those that are missing in a collective, a culprit, those that wrote no dump."""
    from torch.distributed.flight_recorder import fr_trace

    said = io.StringIO()
    handler = logging.StreamHandler(said)
    logging.getLogger().addHandler(handler)
    loggers = [logging.getLogger(name) for name in list(logging.root.manager.loggerDict)]
    for logger in loggers:
        logger.addHandler(handler)
    failed = ""
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            fr_trace.main([str(folder), "-p", "nccl_trace_rank_", "--allow-incomplete-ranks"])
    except BaseException as error:  # it ends the program where it does not understand a dump
        failed = f"{type(error).__name__}: {str(error)[:200]}"
    finally:
        for logger in [logging.getLogger(), *loggers]:
            logger.removeHandler(handler)
    text = said.getvalue()
    for pattern in (r"missed FR dumps from ranks \(([^)]*)\)", r"Culprit rank (\d+)", r"missing ranks: \{([^}]*)\}"):
        found = re.findall(pattern, text)
        if found:
            return {int(number) for number in re.findall(r"\d+", found[0])}, text, failed
    return set(), text, failed


def c4_hang(folder):
    done = subprocess.run([ROOT / "build/bin/c4", "hang", folder, "--json"], capture_output=True, text=True, check=False)
    try:
        said = json.loads(done.stdout)
    except ValueError:
        return set(), done.stdout + done.stderr
    return set(said.get("ranks", [])), done.stdout


def judge_dumps(incident, out):
    folder = out / str(incident["id"])
    if not folder.is_dir() or not any(folder.iterdir()):
        return {"torchfrtrace": ("none", None), "c4_hang": ("none", None)}
    with tempfile.TemporaryDirectory() as place:
        # torchfrtrace matches sends and receives by their numbers in the group, which those of several peers do not share, and
        # gives the group up: it is spared them.
        dumps_of(folder, pathlib.Path(place) / "collectives", False)
        dumps_of(folder, pathlib.Path(place) / "all", True)
        named, text, failed = torchfrtrace(pathlib.Path(place) / "collectives")
        hang, _ = c4_hang(pathlib.Path(place) / "all")
        (folder / "torchfrtrace.txt").write_text(text, encoding="utf-8")
    incident["torchfrtrace_named"], incident["torchfrtrace_failed"] = sorted(named), failed
    incident["c4_hang_named"] = sorted(hang)
    return {"torchfrtrace": (verdict(named, incident["accepted"]), WATCHDOG_S),
            "c4_hang": (verdict(hang, incident["accepted"]), WATCHDOG_S)}


def by_c4d(trial):
    if trial["right"]:
        return "right", trial["after_s"]
    if trial["ambiguous"]:
        return "ambiguous", trial["after_s"]
    return ("wrong" if trial["wrong"] else "none"), None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("--incidents", type=int, default=312)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--judge-only", action="store_true", help="the incidents are in --out already")
    options = parser.parse_args()
    if not options.judge_only:
        shutil.rmtree(options.out, ignore_errors=True)
        subprocess.run([ROOT / "build/bin/court", "--out", options.out, "--incidents", str(options.incidents), "--seed",
                        str(options.seed), "--ranks", str(options.ranks), "--jobs", str(options.jobs)], check=True)
    incidents = [json.loads(line) for line in (options.out / "incidents.jsonl").read_text(encoding="utf-8").splitlines()]
    judges = ("c4d", "c4d_ras", "c4d_inspector", "torchfrtrace", "c4_hang", "timeout")
    totals = {judge: collections.Counter() for judge in judges}
    times = {judge: [] for judge in judges}
    alarms = collections.Counter()
    kinds = collections.defaultdict(lambda: {judge: collections.Counter() for judge in judges})
    for incident in incidents:
        answers = {judge: by_c4d(incident[judge]) for judge in ("c4d", "c4d_ras", "c4d_inspector")}
        answers |= {**judge_dumps(incident, options.out), "timeout": ("none", None)}
        incident["answers"] = answers
        for judge, (outcome, seconds) in answers.items():
            if incident["harmless"]:
                wrong = incident[judge]["wrong"] if judge in incident else outcome != "none"
                alarms[judge] += bool(wrong)
                continue
            totals[judge][outcome] += 1
            kinds[incident["kind"]][judge][outcome] += 1
            if outcome in ("right", "ambiguous") and seconds is not None:
                times[judge].append(seconds)
    with open(options.out / "judged.json", "w", encoding="utf-8") as file:
        json.dump(incidents, file, indent=1)
    faults = sum(totals["c4d"].values())
    print(f"{len(incidents)} incidents, {faults} faults, {len(incidents) - faults} harmless; seed {options.seed}, {options.ranks} ranks\n")
    print("| judge | reads | right | ambiguous | wrong | none | false alarms | median s |")
    print("|---|---|---:|---:|---:|---:|---:|---:|")
    reads = {"c4d": "C4's agents", "c4d_ras": "NCCL's RAS", "c4d_inspector": "NCCL's Inspector", "torchfrtrace": "Flight Recorder", "c4_hang": "Flight Recorder",
             "timeout": "nothing"}
    titles = {"c4d": "C4D", "c4d_ras": "C4D", "c4d_inspector": "C4D", "torchfrtrace": "torchfrtrace", "c4_hang": "`c4 hang`", "timeout": "time-out of 600 s"}
    for judge in judges:
        median = f"{statistics.median(times[judge]):.1f}" if times[judge] else ""
        counts = " | ".join(str(totals[judge][outcome]) for outcome in OUTCOMES)
        print(f"| {titles[judge]} | {reads[judge]} | {counts} | {alarms[judge]} | {median} |")
    print("\n| kind | faults | " + " | ".join(f"{titles[j]}, {reads[j]}" for j in judges[:-1]) + " |")
    print("|---|---:|" + "---:|" * (len(judges) - 1))
    for kind, of_kind in kinds.items():
        cells = [f"{of_kind[judge]['right']}+{of_kind[judge]['ambiguous']}, {of_kind[judge]['wrong']} wrong" for judge in judges[:-1]]
        print(f"| {kind} | {sum(of_kind['c4d'].values())} | " + " | ".join(cells) + " |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
