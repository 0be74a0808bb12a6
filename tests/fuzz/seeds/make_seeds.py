#!/usr/bin/env python3
"""make_seeds.py: writes what the fuzzers begin with whose formats are not ours, and so have no golden files:
tests/fuzz/seeds/TARGET/NAME. Needs protoc in PATH; run it from the tree's root when a message changes."""
import io
import pathlib
import struct
import subprocess
import tarfile

SEEDS = pathlib.Path(__file__).parent
GOLDEN = pathlib.Path("tests/data/formats")


def write(target, name, data):
    (SEEDS / target).mkdir(exist_ok=True)
    (SEEDS / target / name).write_bytes(data)


def message(text):
    command = ["protoc", "-Iproto", "--encode=c4.v1.AgentToC4p", "proto/c4/v1/c4p.proto"]
    return subprocess.run(command, input=text.encode(), stdout=subprocess.PIPE, check=True).stdout


REQUEST = """connection: "a" job: "job" protocol: IP_PROTOCOL_TCP destination_port: 5000 queue_pairs: 4
             ends { source: "10.0.0.2" destination: "10.1.0.2" }"""
TUPLE = """tuple { protocol: IP_PROTOCOL_TCP source: "10.0.0.2" source_port: 20000 destination: "10.1.0.2"
           destination_port: 5000 }"""


def paths():
    session = [
        (0, "sequence: 1 request { %s }" % REQUEST),
        (1, 'sequence: 1 hello { host: "host1" nics { name: "eth1" address: "10.1.0.6" plane: 1 } }'),
        (0, """sequence: 2 probes { order: 1 last: true results { %s
               hops { ttl: 1 status: HOP_STATUS_ANSWERED address: "10.200.0.1" }
               hops { ttl: 2 status: HOP_STATUS_ANSWERED address: "10.201.0.1" }
               hops { ttl: 3 status: HOP_STATUS_ANSWERED address: "10.202.0.1" }
               hops { ttl: 4 status: HOP_STATUS_REACHED address: "10.1.0.2" } } }""" % TUPLE),
        (0, """sequence: 3 use { connection: "a" epoch: 1 queue_pairs { index: 0 use: QUEUE_PAIR_USE_LIVE %s }
               queue_pairs { index: 3 use: QUEUE_PAIR_USE_DEAD fences: 2 %s } }""" % (TUPLE, TUPLE)),
        (0xF8, 'sequence: 4 lease { connections: "a" }'),
        (2, 'sequence: 1 hello { host: "host0" nics { name: "eth0" address: "10.0.0.2" } }'),
        (2, 'sequence: 2 use { connection: "b" queue_pairs { index: 0 %s } request { %s } }' % (TUPLE, REQUEST)),
        (0, 'sequence: 5 use { connection: "a" }'),
    ]
    encoded = [struct.pack("<BH", what, len(data)) + data for what, text in session for data in [message(text)]]
    write("paths", "session", b"".join(encoded))


def http():
    write("http", "get", b"GET /v1/verdicts?job=a%20b&all HTTP/1.1\r\nHost: localhost:7400\r\nAccept: */*\r\n"
          b"Authorization: Bearer c4t1.x.y\r\n")
    write("http", "post", b"POST /api/alerts/3/silence HTTP/1.0\r\nContent-Length: 17\r\nHost: [::1]:80\r\n"
          b"Origin: http://c4d.example\r\nTransfer-Encoding: chunked\r\n")


def frame(kind, stream, payload=b"", flags=0):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def http2():
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    calls = b"".join(frame(1, 2 * i + 1, b"\x82\x86", 4) + frame(3, 2 * i + 1, b"\0\0\0\x08") for i in range(40))
    write("http2", "resets", b"\x10" + preface + frame(4, 0) + calls)
    write("http2", "call", b"\x03" + preface + frame(4, 0, b"\0\3\0\0\0\x64") + frame(6, 0, b"12345678") +
          frame(1, 1, b"\x82", 0) + frame(9, 1, b"\x86", 4) + frame(0, 1, b"\0\0\0\0\5hello", 1) +
          frame(8, 0, b"\0\0\1\0"))


def tar():
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for golden in ("flight_recorder-1.json", "flight_recorder-2.pickle"):
            archive.add(GOLDEN / golden, arcname="a" * 120 + "/" + golden)
    write("tar", "pax.tar", held.getvalue())
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w:gz", format=tarfile.GNU_FORMAT) as archive:
        archive.add(GOLDEN / "flight_recorder-3.pickle", arcname="b" * 150)
    write("tar", "gnu.tar.gz", held.getvalue())


def token():
    write("token", "token", b"c4t1.eyJraWQiOiIxZjAwYmE1ZSIsInJvbGUiOiJhZ2VudCIsImhvc3QiOiJub2RlNyIsIm5iZiI6MSwiZXhwIjo5"
          b"OTk5OTk5OTk5fQ.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA")
    write("token", "keys", b"c4k1." + b"7" * 64 + b"\nc4k1." + b"8" * 64 + b"\n")


def varint(value):
    return b"" if value is None else bytes([value]) if value < 128 else bytes([value & 127 | 128]) + varint(value >> 7)


def chakra():
    """An execution trace of Chakra's: metadata, then nodes, each behind its length."""
    def number(field, value):
        return varint(field << 3) + varint(value)

    def text(field, value):
        return varint(field << 3 | 2) + varint(len(value)) + value

    def node(name, kind, start, duration, *attributes):
        data = number(1, 7) + text(2, name) + number(3, kind) + text(4, b"\1\2") + number(6, start) + number(7, duration)
        data += b"".join(text(10, text(1, key) + value) for key, value in attributes)
        return varint(len(data)) + data

    metadata = text(1, b"1.1.1") + text(2, text(1, b"schema") + text(29, b"x"))
    nodes = [node(b"ProfilerStep#%d" % i, 1, 1000 * (i + 1), 900) + node(b"forward 0", 4, 1000 * (i + 1) + 1, 100) +
             node(b"backward", 4, 1000 * (i + 1) + 200, 100, (b"tid", number(9, 3)), (b"is_cpu_op", number(27, 1))) +
             node(b"nccl", 7, 1000 * (i + 1) + 400, 100, (b"comm_type", number(9, 0)), (b"pg_name", text(29, b"5")))
             for i in range(3)]
    write("chakra", "job.et", varint(len(metadata)) + metadata + b"".join(nodes))


for seeds in (paths, http, http2, tar, token, chakra):
    seeds()
