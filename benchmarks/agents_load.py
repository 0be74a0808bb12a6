"""What certificates, tokens and checks cost the master of a large job: agents_load.py [--build DIR] [--hosts N]
[--seconds S] [--rounds N].

Starts c4d_master by itself and a job's agents (agents_load) beside it, in turn without key and certificates, and with a
key, tokens and mutual TLS. Shares are of one core; the door's thread (c4-ingress) counts frames and ends TLS, so that what it
takes is told by itself. Weighing has a figure of its own (c4d_master_load). Medians over the rounds.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile
import time


def run(words):
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def identity(build, scratch, hosts):
    """Options of master and agents: a key, an authority, and a certificate for the master and for each host."""
    c4 = str(build / "bin" / "c4")

    def issue(name, *words):
        run([c4, "pki", "issue", "--dir", f"{scratch}/authority", *words, "--job", "load", f"{scratch}/{name}"])

    run([c4, "pki", "key", f"{scratch}/job.key"])
    run([c4, "pki", "init", f"{scratch}/authority"])
    issue("master", "--role", "job-master")
    for host in range(hosts):
        issue(f"node{host}", "--role", "agent", "--host", f"node{host}")
    key = ["--key-file", f"{scratch}/job.key"]
    tls = ["--tls-ca", f"{scratch}/authority/ca.pem", "--tls-cert", f"{scratch}/master.pem", "--tls-key", f"{scratch}/master.key"]
    return key + tls, [*key, "--certificates", scratch]


def measure(build, scratch, master_options, agent_options, arguments):
    directory = f"{scratch}/masters"
    pathlib.Path(directory).mkdir(exist_ok=True)
    master = subprocess.Popen(
        [str(build / "bin" / "c4d_master"), "--job", "load", "--listen", "127.0.0.1:0", "--http-address", "127.0.0.1:0",
         "--directory", directory, "--store", f"{scratch}/c4d.db", "--audit", f"{scratch}/audit", "--log-level", "error", *master_options])  # fmt: skip
    try:
        entry = pathlib.Path(directory, "load.json")
        until = time.monotonic() + 10
        while not entry.exists():
            if time.monotonic() > until:
                raise SystemExit("c4d_master does not come up")
            time.sleep(0.05)
        address = json.loads(entry.read_text())["address"]
        told = run([str(build / "bin" / "agents_load"), "--master", address, "--pid", str(master.pid), "--hosts", str(arguments.hosts),
                    "--seconds", str(arguments.seconds), *agent_options])  # fmt: skip
        return json.loads(told)
    finally:
        master.terminate()
        master.wait(20)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"))
    parser.add_argument("--hosts", type=int, default=128)
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    build = arguments.build.resolve()
    rows = {"open": [], "everything on": []}
    with tempfile.TemporaryDirectory(prefix="c4-agents-load-") as scratch:
        master_options, agent_options = identity(build, scratch, arguments.hosts)
        for _ in range(arguments.rounds):
            rows["open"].append(measure(build, scratch, [], [], arguments))
            rows["everything on"].append(measure(build, scratch, master_options, agent_options, arguments))
    print("| | of a core | of that the door | batches a second | MB/s |\n|---|---:|---:|---:|---:|")
    for name, told in rows.items():
        median = {key: statistics.median(row[key] for row in told) for key in ("core_share", "batches_per_s", "megabytes_per_s")}
        door = statistics.median(row["threads"].get("c4-ingress", 0) for row in told)
        print(f"| {name} | {100 * median['core_share']:.1f} % | {100 * door:.1f} % | {median['batches_per_s']:.0f} | {median['megabytes_per_s']:.1f} |")
    ratios = [on["core_share"] / off["core_share"] for off, on in zip(rows["open"], rows["everything on"])]
    print(f"everything on / open, median of {len(ratios)}: {statistics.median(ratios):.3f}")


if __name__ == "__main__":
    main()
