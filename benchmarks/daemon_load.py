"""Each daemon of a job under load: daemon_load.py [--build DIR] [--seconds S] [--rate N] [--connections N].

Starts a job of four ranks with agent, master and path master. Before, during and after the load on each daemon (gRPC of
both masters, HTTP of all three) a rank is stopped, and the time to the first verdict is taken from the verdict itself. One row a
daemon: what was answered, how long it took, the daemon's memory, and the three times. Needs two cores and more for the
load itself: say what else ran.
"""
import argparse
import json
import os
import pathlib
import signal
import subprocess
import tempfile
import time


def ask(words):
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    try:
        return json.loads(done.stdout)
    except json.JSONDecodeError:
        return {}


class Job:
    def __init__(self, build):
        self.c4 = str(build / "bin" / "c4")
        self.scratch = tempfile.TemporaryDirectory(prefix="c4-load-")
        self.run_dir = self.scratch.name
        command = [self.c4, "run", "-n", "4", "--c4p", "--run-dir", self.run_dir, "--log-dir", self.run_dir + "/logs", "--",
                   str(build / "bin" / "all_reduce_perf"), "-b", "64K", "-e", "64K", "-N", "0", "--pause-ms", "20"]
        self.launcher = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until = time.monotonic() + 20
        while len(self.status().get("ranks", [])) < 4 or self.status()["ranks"][0]["finished"] < 50:
            if time.monotonic() > until:
                raise SystemExit("the job does not begin")
            time.sleep(0.2)

    def status(self):
        return ask([self.c4, "status", "--json", "--run-dir", self.run_dir])

    def masters(self):
        found = {}
        for path in pathlib.Path(self.run_dir, "masters").glob("*.json"):
            entry = json.loads(path.read_text())
            found["c4p" if path.name == "c4p.json" else "c4d"] = entry
        return found

    def child(self, name):
        for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
            try:
                comm, rest = path.read_text().split("(", 1)[1].rsplit(")", 1)
            except (OSError, ValueError):
                continue
            if comm == name and int(rest.split()[1]) == self.launcher.pid:
                return int(path.parent.name)
        return 0

    def agent_http(self):
        """Where the agent's metrics are: the one socket that it listens on over TCP."""
        pid = self.child("c4a")
        inodes = set()
        for link in pathlib.Path(f"/proc/{pid}/fd").iterdir():
            try:
                target = os.readlink(link)
            except OSError:
                continue
            if target.startswith("socket:["):
                inodes.add(target[8:-1])
        for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                return "127.0.0.1:" + str(int(fields[1].split(":")[1], 16))
        return ""

    def seconds_to_verdict(self):
        """Stops rank 2, and waits for the verdict."""
        pid = next(rank["pid"] for rank in self.status()["ranks"] if rank["rank"] == 2)
        os.kill(pid, signal.SIGSTOP)
        start = time.monotonic()
        took = None
        while took is None and time.monotonic() - start < 30:
            verdicts = ask([self.c4, "verdicts", "--json", "--run-dir", self.run_dir]).get("verdicts", [])
            if any(verdict["culprit"].get("rank") == 2 for verdict in verdicts):
                took = time.monotonic() - start
        os.kill(pid, signal.SIGCONT)
        while ask([self.c4, "verdicts", "--json", "--run-dir", self.run_dir]).get("verdicts", [1]):
            if time.monotonic() - start > 60:
                break
            time.sleep(0.2)
        return took

    def end(self):
        self.launcher.send_signal(signal.SIGINT)
        self.launcher.wait(20)
        self.scratch.cleanup()


def text(seconds):
    return "none" if seconds is None else f"{seconds:.1f}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"))
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--rate", type=float, default=10000)
    parser.add_argument("--connections", type=int, default=200)
    arguments = parser.parse_args()
    job = Job(arguments.build.resolve())
    try:
        masters = job.masters()
        name = job.status()["job"]
        key = next(pathlib.Path(job.run_dir).glob("run-*/job.key"))
        grpc = ["--key-file", str(key), "--job", name]
        loads = [
            ("c4d_master, gRPC ListVerdicts", "c4d_master",
             ["--grpc", masters["c4d"]["address"], "--call", "c4.v1.C4d/ListVerdicts", *grpc]),
            ("c4d_master, HTTP /healthz", "c4d_master", ["--http", masters["c4d"]["http_address"]]),
            ("c4p_master, gRPC ListPaths", "c4p_master",
             ["--grpc", masters["c4p"]["address"], "--call", "c4.v1.C4p/ListPaths", *grpc]),
            ("c4p_master, HTTP /healthz", "c4p_master", ["--http", masters["c4p"]["http_address"]]),
            ("c4a, HTTP /healthz", "c4a", ["--http", job.agent_http()]),
        ]
        print("| daemon | answered a second | failed | median, 99 % (ms) | MiB before, most, after | a stop is named after (s) "
              "before, under load, after |")
        print("|---|---:|---:|---:|---:|---:|")
        for what, daemon, words in loads:
            before = job.seconds_to_verdict()
            command = [str(arguments.build / "bin" / "daemon_load"), "--pid", str(job.child(daemon)),
                       "--seconds", str(arguments.seconds), "--rate", str(arguments.rate),
                       "--connections", str(arguments.connections), *words]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as load:
                time.sleep(arguments.seconds / 4)
                during = job.seconds_to_verdict()
                output, _ = load.communicate()
            found = json.loads(output)
            after = job.seconds_to_verdict()
            print(f"| {what} | {found['per_second']:.0f} | {found['failed']} | {found['median_ms']:.1f}, "
                  f"{found['p99_ms']:.0f} | {found['resident_mib_first']:.0f}, {found['resident_mib_most']:.0f}, "
                  f"{found['resident_mib_last']:.0f} | {text(before)}, {text(during)}, {text(after)} |", flush=True)
    finally:
        job.end()


if __name__ == "__main__":
    main()
