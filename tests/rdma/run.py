#!/usr/bin/env python3
"""The transport's queue pairs over real verbs, in two guests with Soft-RoCE (guests.py), and jobs over an emulated
fabric in four (fabric.py).

run.py --build BUILD [--only NAME] [--histories N] [--bench [--alternations N]]: boots the guests, runs every test,
or with --bench the measurements of docs/benchmarks.md, and ends with the line "rdma: N passed, N failed". Exit
codes: 0 nothing failed, or the guests cannot run here, which a loud line says; 1 a test failed; 2 wrong usage.
"""

import argparse
import pathlib
import re
import sys
import time

import fabric
import guests
import library
import peers
import tap
import tapped
from checks import Failed, check, number

PORT = 7000
# What a queue pair takes to give up with the knobs' defaults (ccl/transport/verbs/device.h): 7 x 4.096 us x 2^14.
RETRY_S = 7 * 4.096e-6 * 2**14


class Bench:
    """The two guests and the program in them: `one` receives, `two` sends."""

    def __init__(self, one, two, program):
        self.one, self.two, self.program = one, two, program
        self.port = PORT

    def both(self, arguments, sender="", receiver="", environment="", around="{}", limit_s=120):
        """(sender's output, receiver's output); fails unless both programs ended well."""
        results = self.try_both(arguments, sender, receiver, environment, around, limit_s)
        if any(status != 0 for status, _ in results):
            raise Failed("\n".join(f"the {who} ended with {status}:\n{output[-1500:]}" for who, (status, output) in zip(("sender", "receiver"), results)))
        return [output for _, output in results]

    def try_both(self, arguments, sender="", receiver="", environment="", around="{}", limit_s=120):
        """`around`: what the receiver's guest does with its program, which stands for the {}."""
        self.port += 1
        call = f"timeout {limit_s} env NCCL_DEBUG=INFO {environment} {self.program} {arguments}"
        listening = self.one.start(around.format(f"{call} --listen {self.port} {receiver}"))
        sending = self.two.start(f"{call} --connect 10.1.0.1:{self.port} {sender}")
        return [self.two.finish(sending, limit_s + 20), self.one.finish(listening, limit_s + 20)]


# The tests: each takes the bench and gives back a word on what it saw, or raises Failed.


def pingpong(bench):
    call = "timeout 30 ibv_rc_pingpong -d rxe0 -n 100 -g"
    listening = bench.one.start(f"{call} {peers.gid_index(bench.one)}")
    time.sleep(1)
    status, output = bench.two.run(f"{call} {peers.gid_index(bench.two)} 10.1.0.1")
    bench.one.finish(listening)
    check(status == 0, output)
    return output.strip().splitlines()[-1]


def devices(bench):
    def refusal(environment):
        status, output = bench.two.run(f"env {environment} {bench.program} faults --connect 10.1.0.1:1")
        check(status == 1, f"{environment}: {output}")
        return output

    check("NCCL_IB_HCA=mlx9 matches none of rxe0" in refusal("NCCL_IB_HCA=mlx9"), "NCCL_IB_HCA that matches nothing")
    check("no GID at index 77" in refusal("NCCL_IB_GID_INDEX=77"), "NCCL_IB_GID_INDEX that is not there")
    check("NCCL_IB_DISABLE=1" in refusal("NCCL_IB_DISABLE=1"), "NCCL_IB_DISABLE")
    check("matches none" in refusal("NCCL_IB_HCA=^rxe0"), "NCCL_IB_HCA that excludes everything")
    return "each refusal says what to do"


def no_memlock(bench):
    drop = "setpriv --reuid 65534 --clear-groups --bounding-set -all"
    bench.two.run("chmod 666 /dev/infiniband/*")
    bench.port += 1
    listening = bench.one.start(f"timeout 20 {bench.program} faults --listen {bench.port}")
    status, output = bench.two.run(
        f"ulimit -l 8; timeout 20 env C4_RDMA=1 {drop} {bench.program} faults --connect 10.1.0.1:{bench.port}", 30
    )
    bench.one.finish(listening, 30)
    check(status == 1 and "ulimit -l" in output, output)
    return output.strip().splitlines()[-1]


def faults(bench):
    sender, receiver = bench.both("faults", environment="C4_RDMA=1")
    return f"{(sender + receiver).count('right: ')} rules"


def histories(bench):
    count = bench.histories
    sender, receiver = bench.both(f"histories --count {count}", limit_s=400)
    check(number("chunks", sender) == number("chunks", receiver), "chunks were lost or doubled")
    check(number("epochs", sender) >= count / 10, "too few queue pairs broke to show anything")
    return sender.strip().splitlines()[-2]


def silent_cut(bench):
    cut = "tc qdisc add dev eth1 root netem loss 100%; (sleep 1; tc qdisc del dev eth1 root) >/dev/null 2>&1 &"
    sender, _ = bench.both("stream --messages 60", sender=f"--at 20 --command '{cut}'")
    check("status 12" in sender, f"no queue pair gave up:\n{sender}")
    gap_s = number("longest_gap_ms", sender) / 1000
    check(gap_s < 1 + 2 * RETRY_S, f"nothing came for {gap_s} s, 1 s of them cut; twice the retry time is {2 * RETRY_S:.2f} s")
    return sender.strip().splitlines()[-2]


def port_down(bench):
    down = "ip link set eth1 down; (sleep 1; ip link set eth1 up) >/dev/null 2>&1 &"
    sender, _ = bench.both("stream --messages 60", sender=f"--at 20 --command '{down}'")
    check("port rxe0:1 is down" in sender and "port rxe0:1 is up again" in sender, f"no event was said:\n{sender}")
    return sender.strip().splitlines()[-2]


def peers_port_down(bench):
    around = "{} & program=$!; sleep 0.7; ip link set eth1 down; sleep 1; ip link set eth1 up; wait $program"
    sender, receiver = bench.both("stream --messages 200", around=around)
    check("port rxe0:1 is down" in receiver, f"no event was said:\n{receiver}")
    # Whether queue pairs are given up is a matter of their timers: Soft-RoCE's bridge a second now and then.
    return sender.strip().splitlines()[-2]


def address_that_changes(bench):
    change = "ip address del 10.2.0.2/24 dev eth1; sleep 0.2; ip address add 10.2.0.2/24 dev eth1"
    sender, _ = bench.both("stream --messages 60", sender=f"--at 20 --command '{change}'")
    return sender.strip().splitlines()[-2]


def smaller_mtu(bench):
    try:
        bench.one.run("ip link set eth1 mtu 700")
        sender, receiver = bench.both("stream --messages 20")
        check("MTU 512" in receiver and "MTU 1024" in sender, f"the MTU is not what was set:\n{receiver}")
    finally:
        bench.one.run("ip link set eth1 mtu 1500")
    return sender.strip().splitlines()[-2]


def ipv6(bench):
    for guest in (bench.one, bench.two):
        guest.run(f"ip address add fd00:c4::{guest.number}/64 dev eth1 nodad; sleep 0.3")
    sender, _ = bench.both("stream --messages 20", environment="NCCL_IB_ADDR_FAMILY=AF_INET6")
    check("fd00:c4::2" in sender, f"not the GID of IPv6:\n{sender}")
    return sender.strip().splitlines()[0]


def steering(bench):
    wanted = [50000, 61234, 65535, 49152]
    capture = "tcpdump -i eth1 -n -U -w /tmp/work/steer.pcap udp port 4791 2>/dev/null & sleep 1.5; "
    # What is in tcpdump's buffer when it ends is lost.
    settle = "old=; while new=$(stat -c %s steer.pcap); [ \"$new\" != \"$old\" ]; do old=$new; sleep 1; done"
    around = capture + "{}; status=$?; " + settle + "; kill %1; wait %1 2>/dev/null; (exit $status)"
    bench.both(f"steer --ports {','.join(map(str, wanted))}", around=around)
    _, output = bench.one.run(
        "tcpdump -n -r /tmp/work/steer.pcap 2>/dev/null | awk '{print $3}' | sort | uniq -c"
    )
    seen = {1: {}, 2: {}}
    for count, guest, port in re.findall(r"(\d+) 10\.2\.0\.(\d)\.(\d+)", output):
        seen[int(guest)][int(port)] = int(count)
    check(set(seen[2]) == set(wanted), f"asked for {wanted}, seen {output}")
    check(all(seen[2][port] >= 64 for port in wanted), f"too few packets on a port: {output}")
    check(set(seen[1]) == {wanted[0]}, f"acknowledgements do not take the sender's port: {output}")
    return f"{sum(seen[2].values())} packets, none on another port"


def device_once(bench):
    """Bare writes, each posted once, both ways at a time: does the device keep the promise of a reliable connection?

    With patience, and with a retry timeout that answers come too late for, so that it sends again what was delivered.
    """
    rows = []
    for timeout in (18, 10):
        doubled = broken = 0
        call = f"timeout 60 env NCCL_IB_TIMEOUT={timeout} {bench.program} once --queue-pairs 4 --window 32 --bytes 16384 --count 300"
        for _ in range(bench.alternations):
            begun = []
            for listens, connects, address in ((bench.one, bench.two, "10.1.0.1"), (bench.two, bench.one, "10.1.0.2")):
                bench.port += 1
                begun.append((listens, listens.start(f"{call} --listen {bench.port}")))
                begun.append((connects, connects.start(f"{call} --connect {address}:{bench.port}")))
            for guest, program in begun:
                _, output = guest.finish(program, 80)
                doubled += sum(map(int, re.findall(r"doubled (\d+)", output)))
                broken += len(re.findall(r"status \d+ .* of \d+", output))
        rows.append(f"NCCL_IB_TIMEOUT={timeout}: {doubled} writes delivered twice, {broken} queue pairs broken")
    return f"of {bench.alternations * 2400} writes on {bench.alternations * 8} queue pairs: {'; '.join(rows)}"


TESTS = [
    pingpong, devices, faults, no_memlock, steering, silent_cut, port_down, peers_port_down, address_that_changes,
    smaller_mtu, ipv6, *library.TESTS, *tap.TESTS, histories,
]  # fmt: skip
# (what the fabric is like, tests one after the other on one)
FABRICS = [
    ({}, [fabric.fabric_steering, fabric.fabric_silent_cut, *tapped.TESTS]),
    ({"ipv6": True}, [fabric.fabric_steering_ipv6]),
    ({"hashes_ports": False}, [fabric.fabric_not_steering]),
]
FABRIC_TESTS = [test for _, tests in FABRICS for test in tests]
ASKED_FOR = tapped.ASKED_FOR  # on the first of these
# Speeds are judged by who reads docs/benchmarks.md: two guests share the host's cores with whatever else runs.
MEASUREMENTS = [*peers.MEASUREMENTS, *tap.MEASUREMENTS, device_once]


class Judge:
    """Runs those tests that are wanted, and counts."""

    def __init__(self, only):
        self.only = only
        self.passed = self.failed = 0
        self.faults = []  # told again at the end, where a cut log still shows them

    def wants(self, tests):
        return [test for test in tests if not self.only or test.__name__ in self.only]

    def run(self, tests, bench):
        for test in self.wants(tests):
            begin_s = time.monotonic()
            try:
                said = test(bench)
                self.passed += 1
                print(f"passed {test.__name__} ({time.monotonic() - begin_s:.1f} s): {said}", flush=True)
            except Failed as fault:
                self.failed += 1
                self.faults.append(f"FAILED {test.__name__}: {str(fault)[:1500]}")
                print(f"FAILED {test.__name__} ({time.monotonic() - begin_s:.1f} s): {fault}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--only", action="append", choices=[test.__name__ for test in TESTS + FABRIC_TESTS + ASKED_FOR + MEASUREMENTS])
    parser.add_argument("--bench", action="store_true", help="measure instead of testing")
    parser.add_argument("--histories", type=int, default=1000)
    parser.add_argument("--alternations", type=int, default=5)
    options = parser.parse_args()
    program = (options.build / "tests" / "rdma_ends").resolve()
    judge = Judge(options.only)
    try:
        if not program.exists():
            raise guests.Unavailable(f"{program} is not built")
        begin_s = time.monotonic()
        image = guests.Image(options.build.resolve() / "rdma")
        mine = MEASUREMENTS if options.bench else TESTS
        if judge.wants(mine):
            with guests.Pair(image, options.build.resolve() / "rdma" / "pair") as (one, two):
                print(f"two guests with Soft-RoCE, up after {time.monotonic() - begin_s:.1f} s", flush=True)
                bench = Bench(one, two, program)
                bench.programs = (options.build / "bin").resolve()
                bench.histories, bench.alternations = options.histories, options.alternations
                judge.run(mine, bench)
        for kind, tests in FABRICS:
            if judge.only and kind == FABRICS[0][0]:
                tests = tests + ASKED_FOR
            if options.bench or not judge.wants(tests):
                continue
            begin_s = time.monotonic()
            with fabric.Fabric(image, options.build, options.build.resolve() / "rdma" / "fabric", **kind) as cluster:
                version = "IPv6" if cluster.ipv6 else "IPv4"
                print(f"four guests on an emulated {version} fabric, up after {time.monotonic() - begin_s:.1f} s", flush=True)
                judge.run(tests, cluster)
    except guests.Unavailable as why:
        if judge.passed + judge.failed == 0:
            print("*" * 100)
            print(f"RDMA WAS NOT TESTED: {why}")
            print("*" * 100)
        else:
            judge.failed += 1
            print(f"FAILED: {why}")
    except Failed as why:  # of what a test needs
        judge.failed += 1
        print(f"FAILED: {why}")
    for fault in judge.faults:
        print(fault)
    print(f"rdma: {judge.passed} passed, {judge.failed} failed")
    return 1 if judge.failed else 0


if __name__ == "__main__":
    sys.exit(main())
