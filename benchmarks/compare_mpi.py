#!/usr/bin/env python3
"""Our collectives beside those of Debian's Open MPI and MPICH, on this machine.

Runs our perf programs (c4 run, host engine) and benchmarks/mpi_perf.cc, compiled with each MPI library, in turn, in several
rounds, so that whatever else happens on the machine hits all alike; prints the medians in one table. Where
there are more ranks than processors, Open MPI runs with and without its setting that gives the processor away
while it waits, and the better of both counts, size by size. A row is void when the machine was busy with
something else before too many of its runs. Exit status 1 when a result was wrong, 2 when nothing was measured.

Needs the packages of `scripts/setup.sh mpi` and the release build; `make compare-mpi` sees to both.
"""
import argparse
import datetime
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "alltoall")
LIBRARIES = ("c4", "openmpi", "mpich")
TITLES = {"c4": "C4", "openmpi": "Open MPI", "mpich": "MPICH"}
# What mpi_perf is made of; c4_perf_data in benchmarks/CMakeLists.txt is the same.
SOURCES = ["benchmarks/" + name for name in (
    "mpi_perf.cc", "perf_check.cc", "perf_data.cc", "perf_options.cc", "perf_report.cc", "perf_shapes.cc",
    "perf_terms.cc", "perf_types.cc")]
FLAGS = ["-std=c++20", "-O2", "-g", "-DNDEBUG", "-Wall", "-Wextra", "-Werror",  # the release build's
         "-DOMPI_SKIP_MPICXX", "-DMPICH_SKIP_MPICXX"]


def say(text):
    print(text, file=sys.stderr, flush=True)


def parse_bytes(text):
    match = re.fullmatch(r"(\d+)([KMG]?)", text.strip().upper())
    if not match:
        raise argparse.ArgumentTypeError(f"'{text}' is no size: digits, then K, M, G or nothing")
    return int(match[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[match[2]]


def parse_sizes(text):
    """8:64K:8,1M -> [(8, 65536, 8), (1048576, 1048576, 2)]: each is one run of the programs."""
    spans = []
    for part in text.split(","):
        words = part.split(":")
        if len(words) not in (1, 3):
            raise argparse.ArgumentTypeError(f"'{part}' is neither SIZE nor FIRST:LAST:FACTOR")
        first, last = parse_bytes(words[0]), parse_bytes(words[-2] if len(words) == 3 else words[0])
        factor = int(words[2]) if len(words) == 3 and words[2].isdigit() else 2
        if first < 1 or last < first or factor < 2 or (len(words) == 3 and not words[2].isdigit()):
            raise argparse.ArgumentTypeError(f"'{part}': FIRST:LAST:FACTOR needs 1 <= FIRST <= LAST and FACTOR >= 2")
        spans.append((first, last, factor))
    return spans


def list_of(known):
    def parse(text):
        words = text.split(",")
        for word in words:
            if word not in known:
                raise argparse.ArgumentTypeError(f"'{word}' is none of {', '.join(known)}")
        return words
    return parse


def parse_ranks(text):
    words = text.split(",")
    if not all(word.isdigit() and int(word) >= 1 for word in words):
        raise argparse.ArgumentTypeError(f"'{text}': give numbers of ranks, for instance 2,4,8")
    return [int(word) for word in words]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0],
                                     formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--collectives", type=list_of(COLLECTIVES), default=list(COLLECTIVES), metavar="A,B",
                        help="of " + ", ".join(COLLECTIVES))
    parser.add_argument("--libraries", type=list_of(LIBRARIES), default=list(LIBRARIES), metavar="A,B",
                        help="of " + ", ".join(LIBRARIES))
    parser.add_argument("--ranks", type=parse_ranks, default=[2, 4, 8], metavar="N,N")
    parser.add_argument("--sizes", type=parse_sizes, default=parse_sizes("8:32K:8,256K:64M:4"),
                        metavar="FIRST:LAST:FACTOR,SIZE,...", help="each part is one run of the programs")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--iters", type=int, default=0, help="operations a size; 0: 200 up to 64 KB, else 20")
    parser.add_argument("--in-place", action="store_true", help="compare the calls in place")
    parser.add_argument("--blocking", action="store_true",
                        help="ours waits for each operation before the next call, as MPI's calls do (-z 1)")
    parser.add_argument("--no-monitor", action="store_true", help="ours without agent and master")
    parser.add_argument("--build", default=os.path.join(ROOT, "build"), help="our build folder")
    parser.add_argument("--busy", type=float, default=0.10,
                        help="a run does not count when others took more of the processors than this before it")
    parser.add_argument("--wait", type=float, default=10, metavar="SECONDS",
                        help="wait so long for the machine to be idle before each run")
    parser.add_argument("--timeout", type=float, default=180, metavar="SECONDS", help="of one run")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    parser.add_argument("--json", metavar="FILE", help="write all samples there, too; - prints them instead of the table")
    arguments = parser.parse_args()
    if arguments.rounds < 1 or arguments.iters < 0:
        parser.error("--rounds needs at least 1, --iters at least 0")
    return arguments


class Machine:
    """How busy others are, from /proc/stat."""

    def __init__(self, limit, wait_s):
        self.limit, self.wait_s = limit, wait_s

    @staticmethod
    def _ticks():
        with open("/proc/stat", encoding="ascii") as stat:
            numbers = [int(word) for word in stat.readline().split()[1:9]]
        return sum(numbers), numbers[3] + numbers[4], numbers[7]  # all; idle and iowait; steal

    def busy(self, seconds=0.5):
        before = self._ticks()
        time.sleep(seconds)
        total, idle, steal = (b - a for a, b in zip(before, self._ticks()))
        # Stolen time is no idle time: it counts here as well.
        return {"busy": 1 - idle / max(total, 1), "steal": steal / max(total, 1)}

    def await_idle(self):
        """The state right before a run, idle when it became so in time."""
        deadline = time.monotonic() + self.wait_s
        while True:
            state = self.busy()
            if state["busy"] <= self.limit or time.monotonic() > deadline:
                return state
            time.sleep(0.5)


def compile_mpi(library):
    """mpi_perf for a library, in build/mpi, anew when a source is newer."""
    folder = os.path.join(ROOT, "build", "mpi")
    program = os.path.join(folder, "mpi_perf." + library)
    os.makedirs(folder, exist_ok=True)
    files = SOURCES + [name.replace(".cc", ".h") for name in SOURCES[1:]] + ["ccl/include/nccl.h"]
    newest = max(os.path.getmtime(os.path.join(ROOT, name)) for name in files)
    if os.path.exists(program) and os.path.getmtime(program) > newest:
        return program
    say(f"compiling {os.path.relpath(program, ROOT)}")
    compiler = "mpicxx." + library
    try:
        subprocess.run([compiler, *FLAGS, "-I" + ROOT, *SOURCES, "-o", program], cwd=ROOT, check=True)
    except FileNotFoundError:
        sys.exit(f"compare_mpi: there is no {compiler}: install what is missing by scripts/setup.sh mpi")
    except subprocess.CalledProcessError:
        sys.exit(f"compare_mpi: {compiler} failed; its messages stand above")
    return program


def launchers(arguments, programs, collective, ranks):
    """Name of the variant -> command line up to the options of the perf program."""
    if "c4" in arguments.libraries:
        yield "c4", [os.path.join(arguments.build, "bin", "c4"), "run", "-n", str(ranks),
                     *(["--no-monitor"] if arguments.no_monitor else []), "--",
                     os.path.join(arguments.build, "bin", collective + "_perf"),
                     *(["-z", "1"] if arguments.blocking else [])]
    if "openmpi" in arguments.libraries:
        command = ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", str(ranks)]
        tail = [programs["openmpi"], collective]
        if ranks > len(os.sched_getaffinity(0)):
            yield "openmpi yield", [*command, "--mca", "mpi_yield_when_idle", "1", *tail]
            yield "openmpi spin", [*command, "--mca", "mpi_yield_when_idle", "0", *tail]
        else:
            yield "openmpi", command + tail
    if "mpich" in arguments.libraries:
        yield "mpich", ["mpirun.mpich", "-n", str(ranks), programs["mpich"], collective]


def run_once(command, span, iterations, timeout_s):
    """The perf program's JSON, or None with a word on standard error."""
    first, last, factor = span
    with tempfile.TemporaryDirectory() as folder:
        results = os.path.join(folder, "results.json")
        line = [*command, "-b", str(first), "-e", str(last), "-f", str(factor), "-n", str(iterations), "-w", "5",
                "--json", results]
        process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                   stdin=subprocess.DEVNULL, cwd=folder)
        try:
            output, _ = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            process.terminate()  # a launcher ends its ranks
            try:
                process.communicate(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
            say(f"  not over after {timeout_s:.0f} s: {' '.join(line)}")
            return None
        try:
            with open(results, encoding="utf-8") as file:
                found = json.load(file)
        except (OSError, ValueError):
            found = None
        if found is None or not found["results"]:
            last_words = "\n    ".join(output.strip().splitlines()[-3:])
            say(f"  failed with status {process.returncode}: {' '.join(line)}\n    {last_words}")
            return None
        return found


class Samples:
    """All that was measured: rows by (collective, ranks, bytes)."""

    def __init__(self):
        self.rows = {}
        self.versions = {}

    def add(self, key, variant, found, way, state, clean):
        self.versions[variant.split()[0]] = found.get("library", "")
        for result in found["results"]:
            measured = result[way]
            if measured is None or result["count"] == 0:
                continue
            row = self.rows.setdefault((*key, result["bytes"]), {})
            row.setdefault(variant, []).append({
                "us": measured["time_us"], "wrong": measured["wrong"] or 0, "clean": clean,
                "busy": round(state["busy"], 3), "steal": round(state["steal"], 3)})

    @staticmethod
    def summary(row, rounds):
        """Medians by library, which Open MPI was taken, and what is amiss."""
        times, taken, void, wrong = {}, None, False, False
        for variant, samples in row.items():
            clean = [sample["us"] for sample in samples if sample["clean"]]
            if 2 * len(clean) < rounds:
                void = True
                clean = [sample["us"] for sample in samples]
            wrong |= any(sample["wrong"] > 0 for sample in samples)
            library, median = variant.split()[0], statistics.median(clean)
            if library not in times or median < times[library]:
                times[library] = median
                taken = variant if library == "openmpi" else taken
        others = [us for library, us in times.items() if library != "c4"]
        ratio = times["c4"] / min(others) if "c4" in times and others and min(others) > 0 else None
        return {"us": times, "ratio": ratio, "openmpi": taken, "void": void, "wrong": wrong}


def measure(arguments, programs):
    samples = Samples()
    machine = Machine(arguments.busy, arguments.wait)
    way = "in_place" if arguments.in_place else "out_of_place"
    failed = set()
    for number in range(arguments.rounds):
        say(f"round {number + 1} of {arguments.rounds}")
        for collective in arguments.collectives:
            for ranks in arguments.ranks:
                variants = list(launchers(arguments, programs, collective, ranks))
                turn = number % max(len(variants), 1)  # who comes first changes
                for span in arguments.sizes:
                    for variant, command in variants[turn:] + variants[:turn]:
                        what = (collective, ranks, span, variant)
                        if what in failed:
                            continue
                        state = machine.await_idle()
                        iterations = arguments.iters or (200 if span[1] <= 65536 else 20)
                        found = run_once(command, span, iterations, arguments.timeout)
                        if found is None:
                            failed.add(what)  # once is enough to know
                            continue
                        samples.add((collective, ranks), variant, found, way, state,
                                    state["busy"] <= arguments.busy)
    return samples


def table(samples, arguments):
    """Head and rows, as text."""
    head = ["collective", "ranks", "bytes", *(TITLES[library] + " us" for library in arguments.libraries),
            "C4 / faster", ""]
    order = {collective: i for i, collective in enumerate(COLLECTIVES)}
    rows, wrong = [], False
    for key in sorted(samples.rows, key=lambda key: (order[key[0]], key[1:])):
        found = samples.summary(samples.rows[key], arguments.rounds)
        wrong |= found["wrong"]
        notes = [note for note, said in (("void: machine busy", found["void"]), ("WRONG RESULT", found["wrong"]))
                 if said]
        rows.append([key[0], str(key[1]), str(key[2]),
                     *(f"{found['us'][library]:.1f}" if library in found["us"] else "-"
                       for library in arguments.libraries),
                     "-" if found["ratio"] is None else f"{found['ratio']:.2f}", ", ".join(notes)])
    return head, rows, wrong


def print_table(head, rows, markdown):
    if markdown:
        print("| " + " | ".join(head) + " |")
        print("|---|" + "---:|" * (len(head) - 2) + "---|")
        for row in rows:
            print("| " + " | ".join(row) + " |")
        return
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    for row in [head, *rows]:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:-1], widths[1:-1])), row[-1]]
        print("  ".join(cells).rstrip())


def processor():
    with open("/proc/cpuinfo", encoding="utf-8") as cpuinfo:
        name = next((line.split(":")[1].strip() for line in cpuinfo if line.startswith("model name")), "?")
    return f"{len(os.sched_getaffinity(0))} x {name}"


def main():
    arguments = parse_arguments()
    if "c4" in arguments.libraries and not os.access(os.path.join(arguments.build, "bin", "c4"), os.X_OK):
        sys.exit(f"compare_mpi: there is no {arguments.build}/bin/c4: build first (make build), or give --build")
    programs = {library: compile_mpi(library) for library in arguments.libraries if library != "c4"}
    samples = measure(arguments, programs)
    if not samples.rows:
        say("compare_mpi: nothing was measured; the reasons stand above")
        return 2
    head, rows, wrong = table(samples, arguments)
    versions = "; ".join(f"{TITLES[library]}: {version}" for library, version in sorted(samples.versions.items()))
    about = (f"{datetime.date.today()}, {processor()}, {arguments.rounds} rounds, medians, "
             f"{'in place' if arguments.in_place else 'out of place'}; {versions}")
    if arguments.json:
        text = json.dumps({"about": about, "rows": [
            {"collective": key[0], "ranks": key[1], "bytes": key[2],
             **samples.summary(row, arguments.rounds), "samples": row}
            for key, row in samples.rows.items()]}, indent=1)
        if arguments.json == "-":
            print(text)
            return 1 if wrong else 0
        with open(arguments.json, "w", encoding="utf-8") as file:
            file.write(text + "\n")
    print(about + ("\n" if arguments.markdown else ""))
    print_table(head, rows, arguments.markdown)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
