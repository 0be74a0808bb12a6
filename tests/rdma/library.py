"""The library itself over real verbs (run.py): two ranks, one a guest, and faults under their operations.

eth1 and rxe0 carry the data. Where a test wants a second path, it makes rxe1 on eth0, beside the ranks' own TCP.
"""

import shutil
import time

from checks import check

# Little at a time, and patience: this kernel's rxe, when it sends again what was only answered late, breaks its queue pair
# or delivers twice (run.py, device_once), and emulated processors answer late.
GENTLE = "C4_QUEUE_PAIRS=2 C4_CHUNK_BYTES=16384 C4_WINDOW_BYTES=32768 NCCL_IB_TIMEOUT=16 NCCL_IB_RETRY_CNT=2"
CUT = "tc qdisc add dev eth1 root netem loss 100%"
MEND = "tc qdisc del dev eth1 root"


def start_job(bench, arguments, environment="", limit_s=90, program="all_reduce_perf"):
    """Begins a job in the background of both guests, and gives back what finish_job wants."""
    bench.port += 1
    for rank, guest in enumerate((bench.one, bench.two)):
        guest.run(
            f"export RANK={rank} WORLD_SIZE=2 NCCL_COMM_ID=10.1.0.1:{bench.port} NCCL_SOCKET_IFNAME=eth0 C4_ENGINE=host C4_RDMA=1"
            f" C4_RUN_DIR=/dev/shm/c4.{bench.port} NCCL_DEBUG=INFO C4_CONTROL=0 {GENTLE}\n{'export ' + environment if environment else ''}\n"
            f"(timeout {limit_s} {bench.programs / program} {arguments} >/tmp/work/job 2>&1; echo $? >/tmp/work/job.status)"
            " & echo $! >/tmp/work/job.shell"
        )
    return limit_s


def finish_job(bench, limit_s):
    """[(exit status, output)] by rank."""
    ends = []
    for guest in (bench.one, bench.two):
        _, output = guest.run(
            "while kill -0 $(cat job.shell) 2>/dev/null; do sleep 0.1; done; cat job.status job; rm -f job*", limit_s + 20
        )
        status, _, said = output.partition("\n")
        ends.append((int(status) if status.isdigit() else None, said))
    return ends


def right(ends):
    """Both ranks ended well; the perf programs look at every byte, and say so."""
    both = "\n".join(f"rank {rank} ended with {status}:\n{output[-2500:]}" for rank, (status, output) in enumerate(ends))
    check(all(status == 0 for status, _ in ends), both)
    check("Out of bounds values : 0 OK" in ends[0][1], f"wrong results:\n{ends[0][1][-2500:]}")


def job(bench, arguments, environment="", **options):
    ends = finish_job(bench, start_job(bench, arguments, environment, **options))
    right(ends)
    return [output for _, output in ends]


def packets(guest):
    """What rxe0 has sent."""
    _, output = guest.run("cat /sys/class/infiniband/rxe0/ports/1/hw_counters/sent_pkts")
    return int(output.split()[0])


def wait_until_moving(bench, limit_s=40):
    """A guest that shares its processor takes its time to begin."""
    before = packets(bench.two)
    deadline = time.monotonic() + limit_s
    while packets(bench.two) < before + 300:
        check(time.monotonic() < deadline, "no data goes over the RDMA device")
        time.sleep(0.2)


def library_all_reduce(bench):
    before = packets(bench.two)
    job(bench, "-b 4 -e 256K -f 16 -n 2 -c 2")
    job(bench, "-b 1000 -e 30000 -f 30 -n 1 -c 1 -d all")
    sent = packets(bench.two) - before
    check(sent > 1000, f"only {sent} packets went over the RDMA device")
    return f"{sent} packets of RDMA"


def library_windows(bench):
    """What goes out with the knobs' defaults: many small chunks under way on each of four queue pairs."""
    defaults = "C4_QUEUE_PAIRS=4 C4_WINDOW_BYTES=524288 NCCL_IB_TIMEOUT=18"
    job(bench, "-b 1M -e 1M -n 4 -c 1", f"{defaults} C4_CHUNK_BYTES=16384")
    output = job(bench, "-b 4M -e 4M -n 3 -c 1", f"{defaults} C4_CHUNK_BYTES=131072")[0]
    return next(line for line in output.splitlines() if line.split()[:1] == ["4194304"])


def library_without(bench):
    """One rank without RDMA: both take TCP, and say why once."""
    before = packets(bench.two)
    outputs = job(bench, "-b 64K -e 64K -n 2", environment="NCCL_IB_DISABLE=$RANK")
    check(packets(bench.two) == before, "RDMA was used though one rank has none")
    said = [line for line in outputs[1].splitlines() if "RDMA" in line]
    check(len(said) == 1 and "NCCL_IB_DISABLE=1" in said[0], f"not one line: {said}")
    outputs = job(bench, "-b 64K -e 64K -n 2", environment="NCCL_IB_HCA=mlx9")
    check("NCCL_IB_HCA=mlx9 matches none of rxe0" in outputs[0], outputs[0])
    return "TCP"


def gave_up_in(cut_once):
    """How often a queue pair gave up in the first of these jobs that was still at work when the cut had come: on a fast machine
    a short one is over before. `cut_once`, given the rounds: whether it was, and what both ranks said at their ends."""
    for rounds in (30, 120, 480):
        was_cut, ends = cut_once(rounds)
        right(ends)
        lost = sum(output.count("did not acknowledge in time") for _, output in ends)
        if was_cut:
            check(lost > 0, f"no queue pair gave up:\n{ends[1][1][-2500:]}")
            return lost
    check(False, "each job was over before the cut came")


AT_WORK = "kill -0 $(cat job.shell) 2>/dev/null && echo at work"


def library_silent_cut(bench):
    """Nothing goes over eth1 for a second."""
    def once(rounds):
        limit_s = start_job(bench, f"-b 128K -e 128K -n {rounds} -c 30")
        wait_until_moving(bench)
        _, said = bench.two.run(f"{CUT}; sleep 1; {AT_WORK}; {MEND}")
        return "at work" in said, finish_job(bench, limit_s)

    return f"{gave_up_in(once)} queue pairs gave up, bytes exact"


def library_fail_over(bench):
    """The path over eth1 is cut for good; there is another."""
    for guest in (bench.one, bench.two):
        status, output = guest.run("rdma link add rxe1 type rxe netdev eth0; sleep 0.5; ibv_devices")
        check("rxe1" in output, output)
    took_s = 0.0

    def once(rounds):
        nonlocal took_s
        limit_s = start_job(bench, f"-b 128K -e 128K -n {rounds} -c 30")
        wait_until_moving(bench)
        _, said = bench.two.run(f"{CUT}; {AT_WORK}")
        cut_s = time.monotonic()
        ends = finish_job(bench, limit_s)
        took_s = time.monotonic() - cut_s
        bench.two.run(MEND)
        return "at work" in said, ends

    try:
        lost = gave_up_in(once)
    finally:
        bench.two.run(MEND)
        for guest in (bench.one, bench.two):
            guest.run("rdma link del rxe1")
    return f"{lost} queue pairs gave up, all went over the other path; {took_s:.1f} s after the cut"


def library_port_down(bench):
    limit_s = start_job(bench, "-b 128K -e 128K -n 30 -c 30")
    wait_until_moving(bench)
    bench.two.run("ip link set eth1 down; sleep 1; ip link set eth1 up")
    ends = finish_job(bench, limit_s)
    right(ends)
    check("port rxe0:1 is down" in ends[1][1], f"no event was said:\n{ends[1][1][-2500:]}")
    return "said at once, bytes exact"


def library_peer_killed(bench):
    limit_s = start_job(bench, "-b 256K -e 256K -n 100000")
    wait_until_moving(bench)
    bench.two.run("kill -9 $(pidof all_reduce_perf)")
    begin_s = time.monotonic()
    ends = finish_job(bench, limit_s)
    took_s = time.monotonic() - begin_s
    check(ends[0][0] not in (0, 124, None), f"rank 0 ended with {ends[0][0]}:\n{ends[0][1][-2500:]}")
    check("rank 1" in ends[0][1] and took_s < 10, f"after {took_s:.1f} s:\n{ends[0][1][-2500:]}")
    return f"rank 0 fails after {took_s:.1f} s and names rank 1"


def library_peer_stopped(bench):
    limit_s = start_job(bench, "-b 128K -e 128K -n 30 -c 30")
    wait_until_moving(bench)
    bench.two.run("kill -STOP $(pidof all_reduce_perf); sleep 4; kill -CONT $(pidof all_reduce_perf)")
    ends = finish_job(bench, limit_s)
    right(ends)
    return "goes on"


def library_net_plugin(bench):
    """The network plugin, as NCCL's core would drive it, with a cut."""
    before = packets(bench.two)
    for guest in (bench.one, bench.two):
        shutil.rmtree(guest.share / "plugin", ignore_errors=True)
        (guest.share / "plugin").mkdir()
    folder = "/mnt/share/plugin"
    environment = "env C4_RDMA=1 NCCL_NET=C4 NCCL_SOCKET_IFNAME=eth0 NCCL_DEBUG=INFO C4_CONTROL=0 C4_RUN_DIR=/dev/shm/c4.plugin " + GENTLE
    program = bench.programs.parent / "tests" / "plugin_end"
    receives = bench.one.start(f"timeout 60 {environment} {program} receive {folder}")
    handle = bench.one.share / "plugin" / "handle"
    deadline = time.monotonic() + 20
    while not handle.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    check(handle.exists(), "the receiver has no handle")
    copy = bench.two.share / "plugin" / "handle.new"
    copy.write_bytes(handle.read_bytes())
    copy.rename(bench.two.share / "plugin" / "handle")
    sends = bench.two.start(
        f"(sleep 3; {CUT}; sleep 1; {MEND}; sleep 3; touch {folder}/stop) & timeout 60 {environment} {program} send {folder}"
    )
    received = bench.one.finish(receives, 90)
    (bench.two.share / "plugin" / "over").touch()  # the receiver's own is in its guest
    ends = [bench.two.finish(sends, 30), received]
    both = "\n".join(f"{who} {status}:\n{output[-2500:]}" for who, (status, output) in zip(("sender", "receiver"), ends))
    check(all(status == 0 for status, _ in ends), both)
    sent = packets(bench.two) - before
    check(sent > 1000, f"only {sent} packets went over the RDMA device")
    messages = int((bench.one.share / "plugin" / "received").read_text().split()[0])
    check(messages > 10, f"only {messages} messages came")
    return f"{messages} messages, {sent} packets of RDMA"


TESTS = [
    library_all_reduce, library_windows, library_without, library_silent_cut, library_fail_over, library_port_down,
    library_peer_killed, library_peer_stopped, library_net_plugin,
]  # fmt: skip
