#!/usr/bin/env python3
"""A job that is none: it answers as docs/control.md says, from recorded answers, well or badly.

    stub.py SOCKET ANSWERS MANNER      prints "ready" when it listens, ends with its standard input

The body of the last command is left in SOCKET.body.
"""
import json, os, pathlib, re, socket, sys, threading, time

FILES = {"/v1": "greeting.json", "/v1/status": "status.json", "/v1/ranks": "ranks.json", "/v1/memory": "memory.json",
         "/v1/config": "config.json", "/v1/samples": "samples.json", "/v1/logs": "log.txt", "/v1/events": "events.txt",
         "/v1/metrics/history": "history.json"}
CHECKPOINT = {"path": "out/quickstart/checkpoint-000120"}
RESULTS = {"checkpoint": CHECKPOINT, "stop": CHECKPOINT, "eval": {"eval_loss": 2.375}, "pause": {}, "resume": {},
           "sample": {"samples": [{"prompt": "Once", "text": " upon a \x1b[31mtime"}]},
           "set": {"learning_rate": 1e-4, "save_steps": 50, "eval_steps": None, "note": "it warms up", "warning": "it rises"},
           "profile": {"path": "out/quickstart/trace.json"}}
REFUSALS = {"readonly": (403, "the job takes no commands", "control.readonly = true"),
            "busy": (409, "the job is already paused", "zerodctl \x1b[31mresume"),
            "failing": (500, "no room for a checkpoint", None),
            "ending": (503, "the run is ending", None)}
HEAD = b"HTTP/1.1 200 OK\r\n"
RAW = {"garbage": b"SSH-2.0-OpenSSH\r\n\r\n", "version-2": b"HTTP/2 200 OK\r\n\r\n", "no-number": b"HTTP/1.1 OK\r\n\r\n",
       "minus": HEAD + b"Content-Length: -1\r\n\r\n", "letters": HEAD + b"Content-Length: 12x\r\n\r\n",
       "huge": HEAD + b"Content-Length: 99999999999999999999\r\n\r\n",
       "endless": HEAD + b"X: " + b"a" * 100000}


class Stub:
    def __init__(self, path, answers, manner="plain"):
        self.path, self.answers, self.manner, self.body = path, pathlib.Path(answers), manner, None
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        self.listener.listen(16)
        threading.Thread(target=self.serve, daemon=True).start()

    def stop(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        os.unlink(self.path)

    def serve(self):
        while True:
            try:
                peer = self.listener.accept()[0]
            except OSError:
                return
            threading.Thread(target=self.answer, args=(peer,), daemon=True).start()

    def answer(self, peer):
        with peer:
            try:
                request = self.read(peer)
                if request and self.manner == "hang":
                    peer.recv(1)  # until the client leaves
                elif request:
                    self.send(peer, *self.result(*request))
            except OSError:
                pass  # the client left

    def read(self, peer):
        text = b""
        while self.manner != "deaf":
            head, end, body = text.partition(b"\r\n\r\n")
            length = re.search(rb"Content-Length: (\d+)", head)
            if end and len(body) >= (int(length[1]) if length else 0):
                return (*head.decode().split(" ")[:2], body.decode())
            data = peer.recv(1 << 16)
            if not data:
                break
            text += data

    def result(self, method, target, body):
        path = target.partition("?")[0]
        command = path[len("/v1/"):]
        if self.manner in REFUSALS and (method == "POST" or self.manner == "ending"):
            status, message, hint = REFUSALS[self.manner]
        elif method == "GET" and path in FILES:
            text = (self.answers / FILES[path]).read_bytes()
            return 200, b"<html>" if self.manner == "no-json" else text
        elif method == "POST" and command in RESULTS:
            pathlib.Path(self.path + ".body").write_text(body)
            time.sleep(1.5 if self.manner == "slow" else 0)
            if json.loads(body)["wait"]:
                return 200, {"done": True, "id": 7, "command": command, "step": 120, "result": RESULTS[command]}
            return 202, {"accepted": True, "id": 7, "command": command}
        else:
            status, message, hint = 404, "there is no such path", "GET /v1/ranks lists them"
        return status, {"error": {"code": "E", "message": message, "hint": hint}}

    def send(self, peer, status, body):
        if not isinstance(body, bytes):
            body = json.dumps(body).encode()
        length = "" if self.manner == "close" else "Content-Length: %d\r\n" % (len(body) + 10 * (self.manner == "cut"))
        text = RAW.get(self.manner, ("HTTP/1.0 %d Status\r\ncontent-type: text/plain\r\n%s\r\n" % (status, length)).encode() + body)
        step = 1 if self.manner == "dribble" else len(text)
        for at in range(0, len(text), step):
            peer.sendall(text[at : at + step])


if __name__ == "__main__":
    stub = Stub(*sys.argv[1:])
    print("ready", flush=True)
    sys.stdin.read()
    stub.stop()
