"""The rows of tests/gpu/run.sh: runs each, and writes the table."""

import argparse
import datetime
import json
import os
import shutil
import statistics
import subprocess
import sys
import time

import c4d_rows
import jobs
import machine
import ras_rows

PASSED, FAILED, NOT_RUN = "passed", "failed", "not run"


class Bench:
    def __init__(self, options):
        self.options = options
        self.dry = options.dry_run
        self.vendor = machine.vendor_library()
        self.place = jobs.Place(options.library, self.vendor or "", options.out, options.patience)
        self.rows = []

    def needs_gpu(self):
        if self.dry:
            raise jobs.NotRun("a dry run: no GPU")
        if self.vendor is None:
            raise jobs.NotRun("no NCCL of the vendor's on this machine: name it in C4_VENDOR_LIBRARY")

    def row(self, name, check):
        if self.options.only and not any(part in name for part in self.options.only):
            return
        begin = time.monotonic()
        try:
            state, text = PASSED, check(self)
        except jobs.NotRun as reason:
            state, text = NOT_RUN, str(reason)
        except (jobs.Failed, AssertionError, OSError, subprocess.SubprocessError, ValueError, KeyError) as fault:
            state, text = FAILED, f"{type(fault).__name__}: {fault}" if not isinstance(fault, jobs.Failed) else str(fault)
        text = " ".join(str(text).split()).replace("|", "\\|")
        self.rows.append((name, state, text, time.monotonic() - begin))
        print(f"{state}: {name}: {text}", file=sys.stderr, flush=True)

    def table(self):
        torch = machine.torch_version()
        lines = [f"C4 on {machine.gpu_name()}, PyTorch {torch[0] if torch else 'none'}, NCCL {self.vendor or 'none'}, "
                 f"{datetime.date.today().isoformat()}{', a dry run' if self.dry else ''}", "",
                 "| what | result | figures, or why not | s |", "|---|---|---|---:|"]
        lines += [f"| {name} | {state} | {text} | {seconds:.0f} |" for name, state, text, seconds in self.rows]
        return "\n".join(lines) + "\n"


def require(condition, text):
    if not condition:
        raise jobs.Failed(text)


def version_of(library, environment=None):
    code = ("import ctypes, sys; v = ctypes.c_int(); l = ctypes.CDLL(sys.argv[1]); "
            "sys.exit(l.ncclGetVersion(ctypes.byref(v))) if l.ncclGetVersion(ctypes.byref(v)) else print(v.value)")
    done = subprocess.run([sys.executable, "-c", code, library], env=environment, capture_output=True, text=True)
    require(done.returncode == 0, f"{library} cannot be asked for its version: {done.stderr.strip()[-300:]}")
    return int(done.stdout)


def loads(bench):
    if bench.vendor is None:
        environment = {**os.environ, "C4_ENGINE": "host"}
        return f"host engine, NCCL's interface {version_of(bench.options.library, environment)}"
    theirs = version_of(bench.vendor)
    ours = version_of(bench.options.library, {**os.environ, "C4_VENDOR_LIBRARY": bench.vendor, "C4_ENGINE": "vendor"})
    require(ours == theirs, f"the front door says {ours}, the vendor's library {theirs}")
    return f"the front door answers as NCCL {theirs}"


def programs_start(bench):
    """Without PyTorch or a GPU: each fails by saying what it lacks."""
    done = subprocess.run([sys.executable, os.path.join(jobs.HERE, "ranks.py")], capture_output=True, text=True)
    require(done.returncode == 1 and "usage: ranks.py" in done.stderr, f"ranks.py: {done.stderr[-200:]}")
    ends = subprocess.run([sys.executable, os.path.join(jobs.HERE, "ranks.py"), "allreduce"], capture_output=True,
                          text=True, env={**os.environ, "RANK": "0", "WORLD_SIZE": "1"})
    if bench.dry:
        require(ends.returncode != 0, "a rank ran without a GPU")
    return "ranks.py starts"


def host_ranks(bench, mode):
    """What two ranks of our own engine, in one process, say of themselves."""
    environment = {**os.environ, "C4_ENGINE": "host", "C4_RUN_DIR": bench.place.run_dir(), "C4_CONTROL": "0",
                   "NCCL_SOCKET_IFNAME": "lo"}
    done = subprocess.run([sys.executable, os.path.join(jobs.HERE, "host_ranks.py"), mode, bench.options.library],
                          env=environment, capture_output=True, text=True, timeout=60)
    require(done.returncode == 0 and done.stdout, f"two ranks of our own engine: {done.stderr.strip()[-300:]}")
    return json.loads(done.stdout.splitlines()[-1])


def own_engine(bench):
    bench.needs_gpu()
    said = host_ranks(bench, "gpu")
    require(said["faults"] == 0, str(said))
    return f"all right; {said['mib_a_second']:.0f} MiB/s of {said['mib']:.0f} MiB, copies included"


def counters_read(bench):
    said = host_ranks(bench, "both")
    require((said["communicators"], said["finished"], said["records"]) == (2, 8, 16) and said["sent_bytes"] > 0, str(said))
    return f"2 ranks on host memory: 8 all-reduces each, {said['sent_bytes']} bytes, read from shared memory"


def all_reduce(bench):
    bench.needs_gpu()
    said = jobs.ranks(bench.place, "allreduce", world=3)
    require(all(one["wrong"] == 0 for one in said), f"wrong elements: {[one['wrong'] for one in said]}")
    return f"3 ranks on one GPU, NCCL {said[0]['nccl']}: all right"


def on_our_transport(bench):
    bench.needs_gpu()
    said = jobs.ranks(bench.place, "allreduce")
    sent = [(one["counters"] or {}).get("sent_bytes", {}) for one in said]
    require(all(one.get("tcp", 0) + one.get("shm", 0) + one.get("verbs", 0) > 1 << 20 for one in sent),
            f"queue pairs of ours sent {sent}")
    return f"bytes sent by rank: {sent}"


def gradients(bench):
    bench.needs_gpu()
    ours = [one["gradients"] for one in jobs.ranks(bench.place, "ddp")]
    plain = [one["gradients"] for one in jobs.ranks(bench.place, "ddp", ours=False)]
    require(len(set(ours)) == 1, "the ranks' gradients differ among themselves")
    require(ours == plain, f"{ours[0][:12]} with C4, {plain[0][:12]} without")
    return f"20 steps, 2 ranks: sha256 {ours[0][:12]} with C4 and without"


def kernel_times(stamps):
    def check(bench):
        bench.needs_gpu()
        said = jobs.ranks(bench.place, "stamps", settings={"C4_KERNEL_STAMPS": stamps})[0]
        events, seen = said["events"], said["operations"]
        require(len(seen) == len(events), f"{len(seen)} of {len(events)} operations have times")
        require([one["count"] for one in seen] == [one["count"] for one in events], "the operations do not match")
        apart = [one["finished_us"] - one["started_us"] - event["us"] for one, event in zip(seen, events)]
        allowed = max(30.0, 0.1 * statistics.median(event["us"] for event in events))
        middle = statistics.median(apart)
        require(abs(middle) <= allowed, f"median {middle:.1f} us off CUDA's events, {allowed:.0f} are allowed")
        error = max(slot["kernel_error_ns"] for slot in said["counters"]["communicators"])
        return (f"median {middle:+.1f} us against CUDA's events (which lie around it), "
                f"90 % within {sorted(map(abs, apart))[int(0.9 * len(apart))]:.1f}; own bound {error / 1000:.1f} us")
    return check


def graphs(stamps):
    def check(bench):
        bench.needs_gpu()
        for one in jobs.ranks(bench.place, "graph", settings={"C4_KERNEL_STAMPS": stamps}):
            require(one["finished"] == one["replays"] + 1,
                    f"{one['finished']} finished for a capture and {one['replays']} launches")
        return "10 launches of a captured all-reduce, and its capture: 11 finished"
    return check


def call_cost(bench):
    bench.needs_gpu()
    # A rank alone uses no network: its own is asked for, which is there also where our plugins are not.
    alone = {"NCCL_NET": "Socket"}
    kinds = {"plain": (False, {}), "front door": (True, {"C4_PLUGINS": "0", "C4_KERNEL_STAMPS": "off"}),
             "with profiler": (True, {"C4_KERNEL_STAMPS": "profiler"}), "with stamps": (True, {"C4_KERNEL_STAMPS": "stamp"})}
    best = {}
    for _round in range(3):  # alternating, so that what drifts meets all
        for kind, (ours, settings) in kinds.items():
            spent = jobs.ranks(bench.place, "call", ours=ours, world=1, settings={**settings, **alone})[0]["us"]
            best[kind] = min(best.get(kind, spent), spent)
    return "us a call of one rank, best of 3: " + ", ".join(f"{kind} {us:.2f}" for kind, us in best.items())


# What a job pays for each part of C4, beside the untouched library over its own sockets: the first.
JOB_KINDS = {
    "NCCL alone": (False, {}),
    "front door": (True, {"NCCL_NET": "Socket", "C4_PLUGINS": "0", "C4_KERNEL_STAMPS": "off"}),
    "and profiler": (True, {"NCCL_NET": "Socket"}),
    "our transport": (True, {"C4_KERNEL_STAMPS": "off"}),
    "one queue pair": (True, {"C4_KERNEL_STAMPS": "off", "C4_QUEUE_PAIRS": "1"}),
    "both": (True, {}),
}
SHOWN = (8, 1024, 1 << 16, 1 << 20, 1 << 24, 1 << 28)


def job_cost(bench):
    bench.needs_gpu()
    control = shutil.which("nvidia-cuda-mps-control")
    if control is None:
        raise jobs.NotRun("no MPS here: kernels of several processes are not resident together, so times would mean nothing")
    folder = os.path.join(bench.options.out, "mps")
    os.makedirs(folder, exist_ok=True)
    mps = {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
    environment = {**os.environ, **mps}
    if subprocess.run([control, "-d"], env=environment, capture_output=True).returncode != 0:
        raise jobs.NotRun("the MPS daemon does not start here")
    times = {}
    try:
        for _round in range(2):  # alternating
            for kind, (ours, settings) in JOB_KINDS.items():
                said = jobs.ranks(bench.place, "cost", ours=ours, settings={**settings, **mps})[0]["us"]
                times.setdefault(kind, []).append({int(size): us for size, us in said.items()})
    finally:
        subprocess.run([control], input=b"quit\n", env=environment, capture_output=True, timeout=30)
    with open(os.path.join(bench.options.out, "cost.json"), "w", encoding="utf-8") as file:
        json.dump(times, file, indent=1)
    best = {kind: {size: min(one[size] for one in rounds) for size in SHOWN} for kind, rounds in times.items()}
    return "us an all-reduce of " + ", ".join(map(str, SHOWN)) + " B, 2 ranks under MPS, best of 2: " + "; ".join(
        f"{kind} " + " ".join(f"{one[size]:.0f}" for size in SHOWN) for kind, one in best.items()) + " (cost.json has all)"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--library", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--bin", required=True)
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--only", action="append")
    parser.add_argument("--patience", type=int, default=180)
    bench = Bench(parser.parse_args())
    bench.row("the library loads, and answers as the vendor's", loads)
    bench.row("the programs of this test start", programs_start)
    bench.row("counters are read from shared memory", counters_read)
    bench.row("our own engine: a rank on memory of the GPU meets one on the host's", own_engine)
    bench.row("PyTorch's all-reduce is right", all_reduce)
    bench.row("traffic goes over our transport", on_our_transport)
    bench.row("DDP: gradients equal those of the untouched library, bit for bit", gradients)
    bench.row("NCCL's kernel times against CUDA's events", kernel_times("profiler"))
    bench.row("our stamps against CUDA's events", kernel_times("stamp"))
    bench.row("graphs, by NCCL's profiler", graphs("profiler"))
    bench.row("graphs, by our stamps", graphs("stamp"))
    bench.row("C4D confirms nothing of a healthy job", c4d_rows.healthy)
    bench.row("C4D names a stopped rank", c4d_rows.stopped)
    bench.row("C4D names a killed rank", c4d_rows.killed)
    bench.row("C4D names a rank whose kernel spins", c4d_rows.spinning)
    bench.row("C4D names a slow rank", c4d_rows.slow("C4"))
    bench.row("C4D names a slow rank of a job on NCCL's own sockets", c4d_rows.slow("Socket"))
    bench.row("NCCL's own RAS alone: a rank that calls no more", ras_rows.behind)
    bench.row("NCCL's own RAS alone: a killed rank", ras_rows.killed)
    bench.row("cost of a call", call_cost)
    bench.row("cost of a job, 8 B to 256 MB", job_cost)
    text = bench.table()
    with open(os.path.join(bench.options.out, "results.md"), "w", encoding="utf-8") as file:
        file.write(text)
    print(text)
    return 1 if any(state == FAILED for _, state, _, _ in bench.rows) else 0


if __name__ == "__main__":
    sys.exit(main())
