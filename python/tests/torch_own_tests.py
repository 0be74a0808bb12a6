"""PyTorch's own tests of a distributed backend (torch.testing._internal.distributed.distributed_test, which its wheel
holds), of the backend c4 and of gloo beside it: `torch_own_tests.py [--markdown FILE] [NAME...]`.

Ends with 1 where gloo passes a test that c4 fails, unless EXCUSED says why; also where a test of EXCUSED passes, so that
the list stays true. Two changes are made to what torch tests: where torch asks whether the backend is gloo or MPI by name, c4
counts as well, so that more is asked of it, and ranks are forked from a process that has imported torch, which takes a tenth
of the time that starting each takes.
"""

import argparse
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

BACKENDS = ("gloo", "c4")
MODULE = "torch.testing._internal.distributed.distributed_test"
FEATURES = ("gpu", "ddp", "subgroup", "plugin")  # torch's lists of what backends can do, in which c4 is entered
# What torch asks of the backend's name, and what is asked in its place.
WIDENED = (
    (r'BACKEND != "gloo"', 'BACKEND not in ("gloo", "c4")'),
    (r'BACKEND == "gloo"', 'BACKEND in ("gloo", "c4")'),
    (r'BACKEND != "mpi"', 'BACKEND not in ("mpi", "c4")'),
    (r'require_backend_is_available\(\{"gloo"\}\)', 'require_backend_is_available({"gloo", "c4"})'),
    (r"    dist\.Backend\.GLOO,\n", '    dist.Backend.GLOO,\n    "c4",\n'),
)

# Tests that gloo passes and c4 does not, and why that is right.
EXCUSED = {
    "test_ddp_logging_data_cpu": "torch's C++ calls every backend from outside `custom`",
}


def distributed_test():
    """torch's module with WIDENED in it."""
    from torch.testing._internal import common_distributed

    for feature in FEATURES:
        common_distributed.DistTestCases.backend_feature[feature].add("c4")
    spec = importlib.util.find_spec(MODULE)
    source = Path(spec.origin).read_text()
    for pattern, replacement in WIDENED:
        source, count = re.subn(pattern, replacement, source)
        if count == 0:
            raise SystemExit(f"{MODULE} of this torch has no {pattern}: bring WIDENED in line with it")
    module = importlib.util.module_from_spec(spec)
    sys.modules[MODULE] = module
    exec(compile(source, spec.origin, "exec"), module.__dict__)
    return module


def own_tests():
    import torch

    module = distributed_test()

    class OwnTests(module.TestDistBackend, module.DistributedTest._DistTestBase):
        def setUp(self):
            super().setUp()
            self._start_processes(torch.multiprocessing.get_context("fork").Process)

    return OwnTests


class Recorder(unittest.TextTestResult):
    """Writes each test's outcome down when it is over."""

    def __init__(self, *arguments, out=None, **named):
        super().__init__(*arguments, **named)
        self.out = out

    def note(self, test, outcome, reason=""):
        name = test.id().rsplit(".", 1)[-1]
        print(json.dumps({"test": name, "outcome": outcome, "reason": reason}), file=self.out, flush=True)

    def addSuccess(self, test):
        super().addSuccess(test)
        self.note(test, "passed")

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.note(test, "not applicable", reason)

    def addError(self, test, error):
        super().addError(test, error)
        self.note(test, "failed", str(error[1]))

    def addFailure(self, test, error):
        super().addFailure(test, error)
        self.note(test, "failed", str(error[1]))


def run_backend(out, patterns):
    """The tests of the backend that the environment names; their outcomes into the file."""
    tests = own_tests()
    names = [name for name in unittest.TestLoader().getTestCaseNames(tests) if chosen(name, patterns)]
    with open(out, "w") as lines:
        print(json.dumps({"names": names}), file=lines, flush=True)
        runner = unittest.TextTestRunner(
            verbosity=2, resultclass=lambda *arguments: Recorder(*arguments, out=lines)
        )
        runner.run(unittest.TestSuite([tests(name) for name in names]))


def chosen(name, patterns):
    return not patterns or any(re.search(pattern, name) for pattern in patterns)


def start(backend, world, folder, patterns):
    scratch = Path(folder) / backend
    (scratch / "barrier").mkdir(parents=True)
    (scratch / "test_dir").mkdir()
    environment = {
        **os.environ,
        "BACKEND": backend,
        "WORLD_SIZE": str(world),
        "INIT_METHOD": f"file://{scratch}/init",
        "TEMP_DIR": str(scratch),
        "TMPDIR": str(scratch),
        "MASTER_ADDR": "127.0.0.1",
        "C4_CONTROL": "0",
        "NCCL_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "DISTRIBUTED_TESTS_DEFAULT_TIMEOUT": "60",
    }
    with open(scratch / "log", "w") as log:
        return subprocess.Popen(
            [sys.executable, __file__, "--only", str(scratch / "outcomes"), *patterns],
            env=environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def outcomes_of(folder, backend):
    """By test; what was not reached is 'not run'."""
    path = Path(folder) / backend / "outcomes"
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    if not lines:
        raise SystemExit(f"no test of {backend} began:\n" + (Path(folder) / backend / "log").read_text()[-4000:])
    found = {name: ("not run", "the time was up") for name in lines[0]["names"]}
    for line in lines[1:]:
        # A rank may fail in more than one way: the first counts.
        if found[line["test"]][0] == "not run":
            found[line["test"]] = (line["outcome"], line["reason"])
    return found


def run_all(world, limit_s, patterns, log):
    with tempfile.TemporaryDirectory() as folder:
        jobs = {backend: start(backend, world, folder, patterns) for backend in BACKENDS}
        end = time.monotonic() + limit_s
        for job in jobs.values():
            try:
                job.wait(max(end - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                os.killpg(job.pid, 9)
                job.wait()
        for backend in BACKENDS:
            if log:
                Path(f"{log}.{backend}").write_text((Path(folder) / backend / "log").read_text())
        return {backend: outcomes_of(folder, backend) for backend in BACKENDS}


def why_skipped(reason):
    return re.sub(r"^\(|\)$", "", reason.strip().splitlines()[0] if reason.strip() else "torch says no reason")


def table(outcomes):
    """Markdown: how many, then why."""
    kinds = ("passed", "not applicable", "failed", "not run")
    lines = ["| | " + " | ".join(kinds) + " |", "|---|" + "---|" * len(kinds)]
    for backend, tests in outcomes.items():
        counts = [sum(outcome == kind for outcome, _ in tests.values()) for kind in kinds]
        lines.append(f"| {backend} | " + " | ".join(str(count) for count in counts) + " |")
    reasons = {}
    for name, (outcome, reason) in outcomes["c4"].items():
        if outcome == "not applicable":
            reasons.setdefault(why_skipped(reason), []).append(name)
    lines += ["", "| not applicable to c4, in torch's words | tests |", "|---|---|"]
    for reason, names in sorted(reasons.items(), key=lambda item: -len(item[1])):
        lines.append(f"| {reason} | {len(names)} |")
    failed = {name: gloo for name, (gloo, _) in outcomes["gloo"].items() if outcomes["c4"][name][0] == "failed"}
    if failed:
        lines += ["", "| failed with c4 | with gloo | why |", "|---|---|---|"]
    for name, with_gloo in failed.items():
        lines.append(f"| `{name}` | {with_gloo} | {EXCUSED.get(name, '')} |")
    return "\n".join(lines) + "\n"


def faults(outcomes):
    """Sentences; none where c4 does what gloo does."""
    found = []
    for name, (outcome, reason) in outcomes["c4"].items():
        if outcome == "passed" and name in EXCUSED:
            found.append(f"{name} passes: it needs no excuse")
        if outcomes["gloo"][name][0] == "passed" and outcome != "passed" and name not in EXCUSED:
            found.append(f"{name} passes with gloo, and with c4 {outcome}: {reason[-3000:]}")
    return found


def main():
    parser = argparse.ArgumentParser(description="PyTorch's own tests of a backend, of c4 and of gloo")
    parser.add_argument("names", nargs="*", help="regular expressions; those tests alone")
    parser.add_argument("--world", type=int, default=4, help="ranks (4)")
    parser.add_argument("--limit-s", type=float, default=1200, help="seconds for all of it (1200)")
    parser.add_argument("--markdown", help="a file for the table")
    parser.add_argument("--log", help="the backends' output goes to FILE.gloo and FILE.c4")
    parser.add_argument("--only", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only:
        run_backend(options.only, options.names)
        return
    if options.world < 2 or options.limit_s <= 0:
        parser.error("there are at least 2 ranks and 1 second")
    began = time.monotonic()
    outcomes = run_all(options.world, options.limit_s, options.names, options.log)
    text = table(outcomes)
    print(text)
    print(f"{len(outcomes['c4'])} tests of {options.world} ranks in {time.monotonic() - began:.0f} s")
    if options.markdown:
        Path(options.markdown).write_text(text)
    found = faults(outcomes)
    print("\n".join(found))
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
