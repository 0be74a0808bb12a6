"""Floods of one client: flood.py KIND TARGET SECONDS. KIND: loris, body or garbage (HOST:PORT), control (a socket)."""
import os
import socket
import sys
import time


def connect(target):
    if target.startswith("/"):
        client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        client.settimeout(0.2)
        client.connect(target)
        return client
    host, port = target.rsplit(":", 1)
    client = socket.create_connection((host, int(port)), timeout=0.2)
    return client


def first_bytes(kind):
    if kind == "loris":
        return b"GET /healthz HTTP/1.1\r\nHost: "
    if kind == "body":
        return b"GET /healthz HTTP/1.1\r\nContent-Length: 2000000000\r\n\r\n" + b"x" * 65536
    return os.urandom(4096) if kind == "garbage" else b""


def main():
    kind, target, until = sys.argv[1], sys.argv[2], time.monotonic() + float(sys.argv[3])
    most = 1500 if kind == "control" else 400
    held, begun = [], 0
    while time.monotonic() < until:
        try:
            client = connect(target)
            begun += 1
            held.append(client)
            if data := first_bytes(kind):
                client.sendall(data)
        except OSError:
            time.sleep(0.001)
        if len(held) > most or (kind in ("body", "garbage") and len(held) > 20):
            held.pop(0).close()
        elif len(held) % 100 == 0:
            time.sleep(0.01)
    print(f"{begun} connections")


main()
