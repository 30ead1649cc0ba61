#!/usr/bin/env python3
"""Between a client and a server: kills the server in the middle of a transfer.

usage: breaking_relay.py PORT_FILE SERVER_PORT SERVER_PID up|down BYTES: when so many bytes have gone to the server
(up) or come from it (down), it is killed, and what was to come after them never does.
"""

import os
import signal
import socket
import sys
import threading

port_file, server_port, server_pid, breaking, limit = sys.argv[1:]
left = [int(limit)]


def pump(source, sink, way):
    try:
        while data := source.recv(1024):
            if way == breaking:
                data = data[: left[0]]
                left[0] -= len(data)
            sink.sendall(data)
            if way == breaking and left[0] == 0:
                os.kill(int(server_pid), signal.SIGKILL)
                break
    except OSError:  # a side is gone
        pass
    for side in source, sink:
        try:
            side.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


listener = socket.create_server(("127.0.0.1", 0))
with open(port_file, "w", encoding="utf-8") as file:
    file.write(f"{listener.getsockname()[1]}\n")
while True:
    client = listener.accept()[0]
    try:
        server = socket.create_connection(("127.0.0.1", int(server_port)))
    except OSError:
        client.close()
        continue
    for pair in (client, server, "up"), (server, client, "down"):
        threading.Thread(target=pump, args=pair, daemon=True).start()
