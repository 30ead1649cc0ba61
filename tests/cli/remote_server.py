#!/usr/bin/env python3
"""A cache server that misbehaves: the first part of a path says how.

usage: remote_server.py PORT_FILE LOG_FILE; a line a request in the log. It is as strict as bazel's: a file has to have
the SHA-256 that it is stored under, and an answer (ac) has to name a file that is there.
"""

import hashlib
import http.server
import re
import sys
import time

store = {}
counts = {}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def reply(self, status, body=b"", length=None):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        self.wfile.write(body)
        if length is not None and length > len(body):  # the rest never comes
            self.close_connection = True

    def note(self):
        _, how, kind, name = self.path.split("/", 3)
        with open(sys.argv[2], "a", encoding="utf-8") as log:
            print(self.command, how, kind, file=log)
        return how, kind, name

    def misbehaves(self, how, kind):
        counts[how] = counts.get(how, 0) + 1
        if how == "hang":
            time.sleep(20)
        elif how == "drop":
            self.close_connection = True
            self.connection.close()
        elif how == "error" or (how == "flaky" and counts[how] % 2):
            self.reply(503)
        elif how == "page":
            self.reply(200, b"<html>Welcome</html>")
        elif how == "answers" and kind == "ac":  # bytes of any kind
            self.reply(200, b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\x7f" + bytes(200))
        elif how == "huge" and kind == "ac":
            self.reply(200, bytes(1 << 20))
        else:
            return False
        return True

    def do_GET(self):
        how, kind, name = self.note()
        if self.misbehaves(how, kind):
            return
        body = store.get((kind, name))
        if body is None:
            self.reply(404)
        elif how == "truncate" and kind == "cas":
            self.reply(200, body[: len(body) // 2], len(body))
        elif how == "short" and kind == "cas":
            self.reply(200, body[:-1])
        elif how == "wrong" and kind == "cas":
            self.reply(200, body[:-40] + bytes([body[-40] ^ 1]) + body[-39:])
        elif how == "slow" and kind == "cas":
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            for at in range(0, len(body), 64):
                self.wfile.write(body[at : at + 64])
                time.sleep(0.05)
        else:
            self.reply(200, body)

    def do_PUT(self):
        how, kind, name = self.note()
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.misbehaves(how, kind):
            return
        if kind == "cas" and hashlib.sha256(body).hexdigest() != name:
            self.reply(400)
        elif kind == "ac" and not any(("cas", hash.decode()) in store for hash in re.findall(b"[0-9a-f]{64}", body)):
            self.reply(400)
        else:
            store[kind, name] = body
            self.reply(200)


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
server.daemon_threads = True
with open(sys.argv[1], "w", encoding="utf-8") as file:
    file.write(f"{server.server_port}\n")
server.serve_forever()
