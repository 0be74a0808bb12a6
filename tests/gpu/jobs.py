"""Starts jobs for checks.py: the ranks of one, with C4's library in front of PyTorch's NCCL or without it."""

import json
import os
import signal
import socket
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


class Failed(Exception):
    """A job that did not do what it was started for; the text says why."""


class NotRun(Exception):
    """What cannot be run here; the text says why."""


class Place:
    """Where things are: the library, the vendor's, and where logs go."""

    def __init__(self, library, vendor, out, patience_s):
        self.library, self.vendor, self.out, self.patience_s = library, vendor, out, patience_s
        self.jobs = 0

    def environment(self, ours, settings=None):
        """`ours`: C4's library takes the place of NCCL's, by its name, for the process and its libraries."""
        environment = dict(os.environ)
        for name in [name for name in environment if name.startswith(("C4_", "NCCL_"))]:
            del environment[name]
        # What NCCL says of its start is kept: which plugins it took, and why not another.
        environment.update({"PYTHONUNBUFFERED": "1", "NCCL_DEBUG": "INFO",
                            "NCCL_DEBUG_FILE": os.path.join(self.out, f"{self.jobs:02}-nccl.%p.log")})
        if ours:
            environment.update({"LD_PRELOAD": self.library, "C4_VENDOR_LIBRARY": self.vendor, "C4_ENGINE": "vendor",
                                "NCCL_NET": "C4", "C4_RUN_DIR": self.run_dir()})
        else:
            environment["NCCL_NET"] = "Socket"
        environment.update(settings or {})
        return environment

    def run_dir(self):
        folder = os.path.join(self.out, "run")
        os.makedirs(folder, exist_ok=True)
        return folder

    def log(self, name):
        self.jobs += 1
        return open(os.path.join(self.out, f"{self.jobs:02}-{name}.log"), "w+b")


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def ranks(place, mode, ours=True, world=2, settings=None, arguments=(), seconds=None):
    """Runs them to their end. What each said, by rank; a rank that fails or hangs fails the job."""
    seconds = seconds or place.patience_s
    port = free_port()
    log = place.log(f"{mode}-{'c4' if ours else 'plain'}")
    started = []
    for rank in range(world):
        environment = place.environment(ours, settings)
        environment.update({"RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_RANK": "0",
                            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)})
        started.append(subprocess.Popen([sys.executable, os.path.join(HERE, "ranks.py"), mode, *arguments],
                                        env=environment, stdout=subprocess.PIPE, stderr=log))
    said, fault = [], None
    for rank, process in enumerate(started):
        try:
            text, _ = process.communicate(timeout=seconds)
            if process.returncode != 0:
                fault = fault or f"rank {rank} ended with {process.returncode}"
            said.append(text.decode(errors="replace").strip().splitlines())
        except subprocess.TimeoutExpired:
            fault = fault or f"rank {rank} was not done after {seconds} s"
            break
    for process in started:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            process.communicate()
    if fault:
        raise Failed(f"{fault}: {last_line(log)}")
    try:
        return [json.loads(lines[-1]) for lines in said]
    except (IndexError, ValueError) as error:
        raise Failed(f"a rank said nothing that can be read ({error}); {log.name}") from error


def last_line(log):
    log.flush()
    log.seek(0)
    lines = [line for line in log.read().decode(errors="replace").splitlines() if line.strip()]
    lines = [line for line in lines if "Error" in line] or lines  # PyTorch's advice comes after the error
    return f"{lines[-1] if lines else 'nothing was said'} ({os.path.basename(log.name)})"
