#!/usr/bin/env python3
"""Runs the commands of docs/claims.md and says of each claim: pass, fail or not run.

claims.py [--only ID[,ID...]] [--long] [--build DIR] [--page FILE] [--list]

Without --only, commands run whose limit is 60 s or less; --long runs all. --only takes ids or the beginning of ids, and
runs them whatever their limit is. DIR (default: build) takes the place of `build/` in a command. The exit code is 0 when
no command failed, 1 when one did, 64 when the page or the words are wrong.
"""

import argparse
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import time

COLUMNS = ("id", "claim", "lives in", "command", "passes when", "limit", "published", "ours", "run on")
PLACES = ("machine", "emulated", "modelled", "not")
SHORT_S = 60
NOT_RUN = 77  # what a test ends with that cannot run here
TAIL_LINES = 4  # of a failed command, which are shown
VOID = 3  # of c4-figures: the processors were the limit


class PageError(Exception):
    pass


class Claim:
    def __init__(self, line, cells):
        if len(cells) != len(COLUMNS):
            raise PageError(f"line {line}: {len(cells)} columns where there are {len(COLUMNS)}")
        self.id, self.text, places, command, bound, limit, self.published, self.ours, self.run_on = cells
        self.places = re.findall(r"`([^`]+)`", places)
        self.command = command.strip("`") if command != "-" else ""
        self.root = limit.endswith(", root")
        seconds = re.fullmatch(r"(\d+) s(, root)?", limit)
        if self.run_on not in PLACES:
            raise PageError(f"line {line}: '{self.run_on}' is none of {', '.join(PLACES)}")
        if not self.command:
            if (bound, limit) != ("-", "-"):
                raise PageError(f"line {line}: a claim without a command has neither a bound nor a limit")
            return
        if not seconds:
            raise PageError(f"line {line}: '{limit}' is no limit: write '60 s' or '600 s, root'")
        self.limit_s = int(seconds.group(1))
        number = re.fullmatch(r"`(.+)` (>=|<=) ([0-9.]+)", bound)
        if not number and bound != "exit 0":
            raise PageError(f"line {line}: '{bound}' is no bound: write 'exit 0' or '`PATTERN` >= NUMBER'")
        self.bound = None
        if number:
            try:
                pattern = re.compile(number.group(1))
            except re.error as error:
                raise PageError(f"line {line}: '{number.group(1)}' is no pattern: {error}") from error
            if pattern.groups != 1:
                raise PageError(f"line {line}: the pattern needs one group, around the number")
            self.bound = (pattern, number.group(2), float(number.group(3)))


def read(page):
    claims, seen, inside = [], {}, False
    for line, text in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        cells = [cell.strip() for cell in text.strip().strip("|").split("|")] if text.startswith("|") else []
        if tuple(cells) == COLUMNS:
            inside = True
        elif not cells:
            inside = False
        elif inside and not set(text) <= set("|-"):
            claim = Claim(line, cells)
            if claim.id in seen:
                raise PageError(f"line {line}: {claim.id} stands on line {seen[claim.id]} already")
            seen[claim.id] = line
            claims.append(claim)
    if not claims:
        raise PageError("no table of claims")
    return claims


def judge(claim, code, output):
    """('pass', 'fail' or 'not run', why) of a command that has ended with `code` and said `output`."""
    if code == NOT_RUN or (code == VOID and "c4-figures" in claim.command):
        return "not run", f"it cannot be measured here: exit {code}"
    if claim.bound is None:
        return ("pass", "") if code == 0 else ("fail", f"exit {code}")
    pattern, sign, bound = claim.bound
    found = pattern.search(output)
    if found is None:
        return "fail", f"exit {code}, and nothing matches '{pattern.pattern}'"
    value = float(found.group(1))
    good = value >= bound if sign == ">=" else value <= bound
    return ("pass" if good else "fail"), f"{value:g}, bound {sign} {bound:g}"


def run(claim, root, build):
    words = [re.sub(r"^build/", f"{build}/", word) for word in shlex.split(claim.command)]
    program = pathlib.Path(root, words[0])
    if "/" in words[0] and not program.is_file():
        return "not run", f"{words[0]} is not built: make"
    if claim.root and os.geteuid() != 0:
        return "not run", "needs root"
    environment = dict(os.environ, C4_SOURCE_DIR=str(root), C4_BUILD_DIR=str(pathlib.Path(root, build)))
    with subprocess.Popen(words, cwd=root, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True) as process:
        try:
            output, _ = process.communicate(timeout=claim.limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.communicate(timeout=5)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
            return "fail", f"not over after {claim.limit_s} s"
    result, why = judge(claim, process.returncode, output)
    if result == "fail":
        why += "".join(f"\n{'':18}| {line[:160]}" for line in output.strip().splitlines()[-TAIL_LINES:])
    return result, why


def chosen(claims, only, everything):
    """[(claim, why it does not run, or '')]"""
    names = [name for name in only.split(",") if name]
    for name in names:
        if not any(claim.id == name or claim.id.startswith(name + "-") for claim in claims):
            raise PageError(f"no claim is called '{name}': --list shows them")
    for claim in claims:
        if names and not any(claim.id == name or claim.id.startswith(name + "-") for name in names):
            continue
        why = ""
        if not claim.command:
            why = "nothing here shows it"
        elif not names and not everything and claim.limit_s > SHORT_S:
            why = f"takes up to {claim.limit_s} s: LONG=1 or ONLY={claim.id}"
        yield claim, why


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    parser = argparse.ArgumentParser(description="Runs the commands of docs/claims.md.")
    parser.add_argument("--only", default="", metavar="ID[,ID...]")
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--build", default="build", metavar="DIR")
    parser.add_argument("--page", type=pathlib.Path, default=root / "docs/claims.md", metavar="FILE")
    parser.add_argument("--list", action="store_true")
    try:
        options = parser.parse_args()
    except SystemExit as end:
        return 64 if end.code else 0
    counts = {"pass": 0, "fail": 0, "not run": 0}
    try:
        for claim, why in list(chosen(read(options.page), options.only, options.long)):
            if options.list:
                print(f"{claim.id:22} {claim.command or '-'}")
                continue
            begin = time.monotonic()
            result, why = ("not run", why) if why else run(claim, root, options.build)
            counts[result] += 1
            took = f"{time.monotonic() - begin:6.1f} s" if result != "not run" else " " * 8
            print(f"{result:8} {took}  {claim.id:22} {why}".rstrip(), flush=True)
    except (PageError, OSError) as error:
        print(f"claims.py: {options.page}: {error}", file=sys.stderr)
        return 64
    if not options.list:
        print("claims: " + ", ".join(f"{count} {result}" for result, count in counts.items()))
    return 1 if counts["fail"] else 0


if __name__ == "__main__":
    sys.exit(main())
