"""Four guests on the emulated leaf-spine fabric (run.py): RoCE v2 over real ECMP, steered by a path master.

Each guest stands where a host of `c4 fabric up 4x2x1` stood: its eth1, with the RDMA device, on the host's link to
its leaf, its eth0 on the management network. The host's namespace only bridges. An agent runs in each guest, the
masters in the root namespace, as a cluster has them.
"""

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time

import guests
from checks import Failed, check

SIZE = "4x2x1"
RANKS = 4
QUEUE_PAIRS = 4
ENVIRONMENT = (
    f"C4_ALGORITHM=ring C4_QUEUE_PAIRS={QUEUE_PAIRS} C4_CHUNK_BYTES=16384 C4_WINDOW_BYTES=32768"
    " NCCL_IB_TIMEOUT=18 NCCL_IB_RETRY_CNT=2"
)
BEFORE_S = 3  # of the usual goodput, before a cut
# What a queue pair takes to give up with that.
RETRY_S = 3 * 4.096e-6 * 2**18


def _run(*command, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, **options)
    if done.returncode != 0:
        raise Failed(f"{' '.join(map(str, command))}: {(done.stderr or done.stdout).strip()[-600:]}")
    return done.stdout


class Fabric:
    """The fabric, four guests in the places of its hosts, masters and agents; a context."""

    def __init__(self, image, build, folder, ipv6=False, hashes_ports=True):
        self.image = image
        self.ipv6 = ipv6
        self.hashes_ports = hashes_ports
        self.bin = pathlib.Path(build).resolve() / "bin"
        self.folder = pathlib.Path(folder)
        self.name = f"r{os.getpid()}"
        self.job = "rdma"
        self.guests, self.processes = [], []
        self.up = False

    def __enter__(self):
        if os.geteuid() != 0:
            raise guests.Unavailable("a fabric needs root")
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        try:
            self._start()
            return self
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_):
        for guest in self.guests:
            guest.stop()
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self.processes:
            process.wait(20)
        if self.up:
            subprocess.run([self.bin / "c4", "fabric", "down", self.name], capture_output=True, check=False)

    def _start(self):
        hosts = json.loads(_run(self.bin / "c4", "fabric", "up", SIZE, "--name", self.name, "--mtu", 1500, "--json", *(["--ipv6"] if self.ipv6 else [])))["hosts"]
        self.up = True
        for leaf in range(0 if self.hashes_ports else RANKS):  # before anybody probes
            _run("ip", "netns", "exec", f"{self.name}-leaf{leaf}", "sysctl", "-q", "net.ipv4.fib_multipath_hash_policy=0")
        self.addresses = [host["addresses"][0] for host in hosts]
        self.managed = [host["management_address"] for host in hosts]
        (self.folder / "topology.json").write_text(_run(self.bin / "c4", "fabric", "topology", self.name))
        for number, host in enumerate(hosts, 1):
            self.guests.append(self._guest(number, host))
        self._masters()
        guests.steady_clocks(self.guests, limit_s=240)
        for guest in self.guests:
            shutil.copy(self.folder / "key", guest.share)
            guest.run(
                f"mkdir -p /dev/shm/c4; {self.bin / 'c4a'} --run-dir /dev/shm/c4 --master {self.master['address']}"
                f" --path-master {self.path_master['address']} --nics eth1 --key-file /mnt/share/key --token-in-clear"
                " --log-file /mnt/share/c4a.log </dev/null >/dev/null 2>&1 & echo"
            )
        self.wait_for("all agents in session", 60, lambda: all(nic["agent"] for nic in self.ask("topology")["nics"]))

    def _guest(self, number, host):
        ns = host["namespace"]
        block = re.sub(r"\d+\.\d+$", "", host["management_address"])
        route = next(line.split() for line in _run("ip", "-n", ns, "route").splitlines() if line.startswith(block) and " via " in line)
        networks = []
        for index, device in enumerate(("mgmt0", "eth0")):
            _run("ip", "-n", ns, "address", "flush", "dev", device)
            _run("ip", "-n", ns, "link", "add", f"join{index}", "type", "bridge")
            _run("ip", "-n", ns, "tuntap", "add", f"tap{index}", "mode", "tap")
            for end in (device, f"tap{index}"):
                _run("ip", "-n", ns, "link", "set", end, "master", f"join{index}", "up")
            _run("ip", "-n", ns, "link", "set", f"join{index}", "up")
            networks.append(f"tap,ifname=tap{index},script=no,downscript=no")
        data = host["addresses"][0]
        gateway = data.removesuffix("2") + "1"
        setup = "\n".join([
            f"hostname {host['name']}",
            f"ip address add {host['management_address']}/32 dev eth0; ip link set eth0 up",
            f"ip route add {route[2]} dev eth0; ip route add {route[0]} via {route[2]}",
            f"ip address add {data}/{'126 nodad' if self.ipv6 else '30'} dev eth1; ip link set eth1 up",
            f"ip {'-6' if self.ipv6 else '-4'} route add default via {gateway}",
        ])  # fmt: skip
        return guests.Guest(self.image, self.folder / f"guest{number}", number, networks, setup, ("ip", "netns", "exec", ns))

    def _masters(self):
        _run(self.bin / "c4", "pki", "key", self.folder / "key")
        listen = f"{self.managed[0].rpartition('.')[0]}.1:0"
        common = ["--listen", listen, "--http-address", "127.0.0.1:0", "--directory", self.folder / "masters", "--key-file", self.folder / "key", "--token-in-clear"]  # fmt: skip
        self.path_master = self._daemon("c4p", [self.bin / "c4p_master", "--topology", self.folder / "topology.json", *common])
        self.master = self._daemon(
            self.job, [self.bin / "c4d_master", "--job", self.job, "--c4p", self.path_master["address"], *common]
        )

    def _daemon(self, name, command):
        with open(self.folder / f"{name}.log", "wb") as log:
            process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.processes.append(process)
        entry = self.folder / "masters" / f"{name}.json"
        deadline = time.monotonic() + 20
        while not entry.exists():
            if time.monotonic() > deadline or process.poll() is not None:
                raise Failed(f"{name} does not come up: {(self.folder / f'{name}.log').read_text()[-600:]}")
            time.sleep(0.05)
        return json.loads(entry.read_text())

    def c4(self, *words):
        return _run(self.bin / "c4", *words)

    def ask(self, *words):
        """What `c4 WORDS --json` says; its exit code may tell of a verdict."""
        done = subprocess.run(
            [self.bin / "c4", *words, "--run-dir", self.folder, "--key-file", self.folder / "key", "--token-in-clear", "--json"],
            capture_output=True, text=True, check=False, timeout=30,
        )  # fmt: skip
        check(done.stdout, f"c4 {' '.join(words)}: {done.stderr}")
        return json.loads(done.stdout)

    def wait_for(self, what, limit_s, look):
        deadline = time.monotonic() + limit_s
        while not (seen := look()):
            check(time.monotonic() < deadline, f"not within {limit_s} s: {what}\n{self.logs()}")
            time.sleep(0.3)
        return seen

    def logs(self):
        files = sorted(self.folder.glob("*.log")) + sorted(self.folder.glob("guest*/c4a.log"))
        return "\n".join(f"{file.name}: {file.read_text(errors='replace')[-500:]}" for file in files)

    def start_job(self, arguments, limit_s):
        """all_reduce_perf with a rank in each guest; the perf programs look at every byte."""
        for rank, guest in enumerate(self.guests):
            guest.run(
                f"export RANK={rank} WORLD_SIZE={RANKS} NCCL_COMM_ID={self.managed[0]}:7001 NCCL_SOCKET_IFNAME=eth0 C4_ENGINE=host C4_RDMA=1"
                f" C4_RUN_DIR=/dev/shm/c4 C4_JOB_ID={self.job} NCCL_DEBUG=INFO {ENVIRONMENT}\n"
                f"(timeout {limit_s} {self.bin / 'all_reduce_perf'} {arguments} >/mnt/share/job 2>&1; echo $? >/mnt/share/job.status.new;"
                " mv /mnt/share/job.status.new /mnt/share/job.status)"
                " </dev/null >/dev/null 2>&1 & echo"
            )

    def finish_job(self, limit_s):
        ends = []
        deadline = time.monotonic() + limit_s
        for rank, guest in enumerate(self.guests):
            status = guest.share / "job.status"
            while not status.exists() and time.monotonic() < deadline:
                time.sleep(0.1)
            said = (guest.share / "job").read_text(errors="replace")
            check(status.exists(), f"rank {rank} does not end:\n{said[-1500:]}")
            ends.append((int(status.read_text()), said))
            status.unlink()
        # All of them: the one that tells the cause is seldom the first.
        failed = [f"rank {rank} ended with {status}:\n{said[-1500:]}" for rank, (status, said) in enumerate(ends) if status != 0]
        check(not failed, "\n".join(failed))
        check("Out of bounds values : 0 OK" in ends[0][1], f"wrong results:\n{ends[0][1][-2000:]}")
        return [said for _, said in ends]

    @contextlib.contextmanager
    def capture(self):
        """Headers of RoCE packets that come in at each spine: {spine: file}."""
        files, programs = {}, []
        for spine in ("spine0", "spine1"):
            files[spine] = self.folder / f"{spine}.pcap"
            command = ["ip", "netns", "exec", f"{self.name}-{spine}", "tcpdump", "-i", "any", "-Q", "in", "-n", "-U", "-s", "80", "-w", str(files[spine]), "udp dst port 4791"]  # fmt: skip
            programs.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        for file in files.values():
            while not file.exists() or file.stat().st_size == 0:
                time.sleep(0.05)
        try:
            yield files
        finally:
            for program in programs:
                program.terminate()
                program.wait(10)


def packets_of(file):
    """[(time in s, (source, source port, destination))] of a capture."""
    lines = _run("tcpdump", "-n", "-tt", "-r", file).splitlines()
    found = (re.search(r"^(\d+\.\d+) .*?IP6? ([0-9a-f.:]+)\.(\d+) > ([0-9a-f.:]+)\.\d+:", line) for line in lines)
    return [(float(one[1]), (one[2], int(one[3]), one[4])) for one in found if one]


def settled(fabric, count):
    """Of so many queue pairs that cross a spine ((source, source port, destination), spine asked for), once all have the port advised."""
    rows = []
    for connection in fabric.ask("paths")["connections"]:
        for pair in connection["queue_pairs"]:
            spines = {word for link in pair["links"] for word in re.findall(r"spine\d+", link)}
            if pair["use"] != "live" or not spines:
                continue
            used = pair["tuple"]
            check((used["protocol"], used["destination_port"]) == ("udp", 4791), f"no queue pair of RDMA: {pair}")
            if pair["advised_port"] != used["source_port"]:
                return None
            (spine,) = spines
            rows.append(((used["source"], used["source_port"], used["destination"]), spine))
    return rows if len(rows) == count else None


def check_spines(fabric, rows):
    """Each of them (settled) sends, and all that it sends takes the spine asked for."""
    with fabric.capture() as files:
        time.sleep(4)
    taken = {}
    for spine, file in files.items():
        # A source port counts towards one destination: towards another it may be another queue pair's.
        for _, way in packets_of(file):
            taken.setdefault(way, set()).add(spine)
    for way, spine in rows:
        check(taken.get(way) == {spine}, f"{way} was to take {spine} and took {taken.get(way)}")


def fabric_steering(fabric):
    """Every queue pair's packets take the spine that the path master gave it."""
    fabric.start_job("-b 256K -e 256K -n 10 -c 10 -N 4", 400)
    count = RANKS * QUEUE_PAIRS  # of the ring; each rank has a leaf of its own
    rows = fabric.wait_for(f"{count} queue pairs have their ports", 90, lambda: settled(fabric, count))
    check_spines(fabric, rows)
    shares = [sum(spine == name for _, spine in rows) for name in ("spine0", "spine1")]
    check(shares == [count // 2, count // 2], f"queue pairs by spine: {shares}")
    return f"{len(rows)} of {len(rows)} queue pairs on the spine asked for, {shares[0]} and {shares[1]}"


def fabric_silent_cut(fabric):
    """A spine's link is cut under the all-reduce: fail-over, exact bytes, and the link is named."""
    with fabric.capture() as files:
        time.sleep(BEFORE_S)
        cut_s = time.time()
        _run(fabric.bin / "c4", "fabric", "cut", "leaf0-spine0", "--name", fabric.name)
        named = fabric.wait_for("a verdict that names leaf0-spine0", 60, lambda: verdict_of(fabric, "leaf0-spine0"))
        named_s = time.time() - cut_s
        time.sleep(3 * RETRY_S)
    fabric.finish_job(200)
    back_s = recovery(sorted(at for file in files.values() for at, _ in packets_of(file)), cut_s)
    check(back_s is not None, "goodput does not come back")
    check(back_s < 2 * RETRY_S, f"goodput is back after {back_s:.2f} s; a queue pair gives up after {RETRY_S:.2f} s")
    return f"goodput is back after {back_s:.2f} s (a queue pair gives up after {RETRY_S:.2f} s); {named} after {named_s:.1f} s"


def recovery(times, cut_s):
    """Seconds from the cut until half as many packets as before come in a second; None: they do not."""

    def rate(begin_s, seconds):
        return sum(begin_s <= at < begin_s + seconds for at in times) / seconds

    usual = rate(cut_s - BEFORE_S, BEFORE_S)
    after_s = 0.0
    while cut_s + after_s + 1 <= times[-1]:
        if rate(cut_s + after_s, 1) >= usual / 2:
            return after_s
        after_s += 0.25
    return None


def verdict_of(fabric, link):
    for verdict in fabric.ask("verdicts")["verdicts"]:
        if verdict["state"] == "confirmed" and verdict["culprit"]["kind"] == "link" and link in json.dumps(verdict["culprit"]):
            return f"{verdict['syndrome']}, link {link}"
    return None


def fabric_not_steering(fabric):
    """Leaves that hash addresses alone: that ports do not steer is said, and the job runs all the same."""
    fabric.start_job("-b 256K -e 256K -n 10 -c 10 -N 4", 300)

    def said():
        notes = fabric.ask("topology")["notes"]
        return next((note for note in notes if note.startswith("udp ") and "do not steer" in note), None)

    note = fabric.wait_for("a note that ports do not steer", 90, said)
    fabric.finish_job(300)
    return note


def fabric_steering_ipv6(fabric):
    """The same over IPv6."""
    said = fabric_steering(fabric)
    fabric.finish_job(300)
    return said
