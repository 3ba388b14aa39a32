#!/usr/bin/env python3
"""zerodctl web between a browser and a job, both played here: who may pass, and what passes. TAP.

    test_web.py ZERODCTL
"""
import contextlib, http.client, os, queue, signal, socket, subprocess, sys, tempfile, threading, time, urllib.parse

program = sys.argv[1]
folder = tempfile.TemporaryDirectory(prefix="zerod-web-", dir="/tmp")
path = folder.name + "/s"


class Job:
    """`asked` gets a connection and its request; the look whether a job is there, which asks nothing, is passed over."""

    def __init__(self):
        self.asked, self.is_described = queue.Queue(), True
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        self.listener.listen(100)
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=self.take, args=self.listener.accept()[:1], daemon=True).start()

    def take(self, peer):
        text = peer.recv(1 << 16).decode()
        if text and not self.is_described:  # zerodctl itself asks what the job is
            self.is_described = True
            send(peer, '{"job": "tested"}', "Content-Length: 17")
            peer.close()
        elif text:
            self.asked.put((peer, text))

    def stop(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        os.unlink(path)


class Relay:
    def __init__(self, job):
        job.is_described = False
        self.process = subprocess.Popen([program, "web", "-S", path], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.address = urllib.parse.urlsplit(self.process.stdout.readline().strip())
        self.secret, self.port = self.address.path.rstrip("/"), self.address.port

    def ask(self, target, method="GET", body=b"", **headers):
        """What a browser sends; a header of None is left out."""
        browser = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        browser.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
        for name, value in ({"Host": "127.0.0.1:%d" % self.port, "Content-Length": str(len(body))} | headers).items():
            if value is not None:
                browser.putheader(name.replace("_", "-"), value)
        browser.endheaders(body)
        return browser

    def inside(self, target, *more, **headers):
        return self.ask(self.secret + target, *more, **headers)

    def end(self, number=signal.SIGINT):
        self.process.send_signal(number)
        return self.process.wait(60)


def send(job, body, *head):
    job.sendall("\r\n".join(("HTTP/1.0 200 OK", *head, "", body)).encode())


def refused(job, codes, browser):
    status = browser.getresponse().status
    assert status in codes and job.asked.empty(), "%d, not %s" % (status, codes)


def passes(job, browser):
    peer, request = job.asked.get(timeout=60)
    send(peer, "{}", "Content-Length: 2")
    assert browser.getresponse().read() == b"{}"
    return request


def raw(relay, target):
    """The status; 0: the connection was closed."""
    browser = http.client.HTTPConnection("127.0.0.1", relay.port, timeout=60)
    browser.connect()
    browser.sock.sendall(b"GET " + target + b" HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % relay.port)
    answer = http.client.HTTPResponse(browser.sock)
    with contextlib.suppress(http.client.RemoteDisconnected):
        answer.begin()
        return answer.status
    return 0


def the_secret_passes_for_paths_of_the_job(job, relay):
    for target in ("/v1/status", "/v1/logs?rank=1&follow=1", "/"):
        assert passes(job, relay.inside(target)).startswith("GET %s HTTP" % target)
    own = {"Host": "LocalHost:%d" % relay.port, "Origin": "http://localhost:%d" % relay.port}
    passes(job, relay.inside("/v1/pause", "POST", **own))


def other_names_of_this_machine_are_refused(job, relay):
    p = str(relay.port)
    for host in ("", "127.0.0.1", "127.0.0.1:1", "127.0.0.1:" + p + "0", "evil.example:" + p, "127.0.0.1.evil.example:" + p,
                 "localhost.:" + p, "[::1]:" + p, "127.0.0.1:" + p + "@evil", "user@127.0.0.1:" + p):
        refused(job, (403,), relay.inside("/v1/status", Host=host))
    refused(job, (400, 403), relay.inside("/v1/status", Host=None))


def requests_of_other_pages_are_refused(job, relay):
    own = "http://127.0.0.1:%d" % relay.port
    for origin in ("", "null", "http://evil.example", "http://127.0.0.1", "http://127.0.0.1:1", own.replace("http", "https"),
                   own + ".evil.example", own + "/", own + " http://evil.example"):
        refused(job, (403,), relay.inside("/v1/stop", "POST", Origin=origin))


def each_relay_has_a_secret_of_its_own(job, relay):
    other = Relay(job)
    passes(job, other.inside("/v1/status"))
    assert len(other.secret) == 65 and other.secret != relay.secret
    refused(job, (401,), other.ask(relay.secret + "/v1/status"))
    other.end()


def without_the_secret_nothing_passes(job, relay):
    s = relay.secret
    for target in ("/v1/status", "/", "//v1/status", s + "0/v1/status", s[:-1] + "/v1/status", "/" + s + "/v1/status", s, s + "?/v1/status",
                   s + "%2fv1/status"):
        refused(job, (401,), relay.ask(target))
    refused(job, (401,), relay.ask("/v1/stop", "POST"))


def what_is_no_request_does_not_pass(job, relay):
    for target in (b"/v1/logs?a= b", b"/v1/status HTTP/1.1\r\nHost: evil.example"):
        assert raw(relay, relay.secret.encode() + target) in (0, 400, 403) and job.asked.empty(), target
    refused(job, (413,), relay.inside("/v1/set", "POST", b"a" * 65537))


def a_request_and_its_answer_go_through(job, relay):
    browser = relay.inside("/v1/set", "POST", b'{"learning_rate": 1e-4}', Accept="text/plain", Last_Event_ID="17", X_Own="1", Cookie="a=b")
    peer, request = job.asked.get(timeout=60)
    for line in ("POST /v1/set HTTP/1.0\r\n", "\r\nContent-Length: 23\r\n", "\r\nLast-Event-ID: 17\r\n", "1e-4}"):
        assert line in request, request
    assert not any(name in request for name in ("Accept", "Cookie", "X-Own")), "other headers stay here"
    peer.sendall(b"HTTP/1.1 409 Conflict\r\nContent-Type: application/json\r\nContent-Length: 12\r\n\r\n{\"error\": 1}")
    answer = browser.getresponse()
    assert answer.status == 409 and answer.read() == b'{"error": 1}' and answer.getheader("Content-Type") == "application/json"
    assert answer.getheader("Content-Security-Policy").startswith("default-src 'none'")
    assert answer.getheader("Cache-Control") == "no-store" and not answer.getheader("Access-Control-Allow-Origin")


def a_stream_passes_event_by_event(job, relay):
    browser = relay.inside("/v1/events?since=3", Connection="close")
    peer, request = job.asked.get(timeout=60)
    assert request.startswith("GET /v1/events?since=3 HTTP/1.0")
    send(peer, "data: one\n", "Content-Type: text/event-stream")
    answer = browser.getresponse()
    assert answer.getheader("Content-Type") == "text/event-stream" and answer.readline() == b"data: one\n"
    peer.sendall(b"data: two\n")  # the first was read before
    assert answer.readline() == b"data: two\n"
    answer.close()
    browser.close()
    assert peer.recv(1) == b"", "the reader has gone: so does the connection to the job"


def an_answer_that_breaks_off_is_not_whole_for_the_browser(job, relay):
    browser = relay.inside("/v1/logs")
    peer = job.asked.get(timeout=60)[0]
    send(peer, "half", "Content-Length: 100")
    answer = browser.getresponse()
    peer.close()
    with contextlib.suppress(http.client.IncompleteRead, ConnectionError):
        answer.read()
        assert False, "it was taken for whole"


def a_large_answer_is_the_same_on_both_sides(job, relay):
    text = "".join("%07d\n" % i for i in range(20000))
    browser = relay.inside("/v1/logs")
    peer = job.asked.get(timeout=60)[0]
    threading.Thread(target=send, args=(peer, text, "Content-Length: %d" % len(text)), daemon=True).start()
    assert browser.getresponse().read().decode() == text


def the_end_of_the_job_is_told_and_ends_it(job, relay):
    job.stop()
    answer = relay.inside("/v1/status").getresponse()
    assert answer.status == 503 and b'"E_ENDING"' in answer.read()
    assert relay.process.wait(60) == 0 and "tested has ended" in relay.process.stderr.read()


def a_signal_ends_it_and_open_streams(job, relay):
    browser = relay.inside("/v1/events")
    job.asked.get(timeout=60)
    assert relay.end() == 0
    with contextlib.suppress(http.client.HTTPException, ConnectionError):
        browser.getresponse()


def idle_connections_of_others_do_not_keep_the_owner_out(job, relay):
    def idle():
        return [socket.create_connection(("127.0.0.1", relay.port)) for _ in range(80)]

    relay.end()
    relay = Relay(job)
    others = idle()
    browser = relay.inside("/v1/events")
    peer = job.asked.get(timeout=60)[0]
    for other in others:  # more of them while the owner reads
        other.close()
    others = idle()
    send(peer, "1234", "Content-Length: 4")
    assert browser.getresponse().read() == b"1234"
    relay.end()


def a_stream_of_the_owner_stays_while_his_others_are_idle(job, relay):
    others = [socket.create_connection(("127.0.0.1", relay.port)) for _ in range(14)]
    stream = relay.inside("/v1/events")  # begun while many strangers were there
    peer = job.asked.get(timeout=60)[0]
    send(peer, "data: one\n", "Content-Type: text/event-stream")
    answer = stream.getresponse()
    assert answer.readline() == b"data: one\n"
    for other in others:
        other.close()
    idle = []
    for _ in range(20):
        idle.append(relay.inside("/v1/status"))
        passes(job, idle[-1])
    time.sleep(0.6)  # two sweeps
    peer.sendall(b"data: two\n")
    assert answer.readline() == b"data: two\n"


def a_port_that_is_taken_is_an_error(job, relay):
    job.is_described = False
    second = subprocess.run([program, "web", "-S", path, "--port", str(relay.port)], capture_output=True, text=True, timeout=60)
    assert second.returncode == 73 and "E1102" in second.stderr, second


tests = [value for value in list(globals().values()) if callable(value) and getattr(value, "__code__", None)
         and value.__code__.co_varnames[:2] == ("job", "relay")]
failures = 0
for number, test in enumerate(tests, 1):
    job = Job()
    relay = Relay(job)
    try:
        test(job, relay)
        print("ok %d - %s" % (number, test.__name__), flush=True)
    except (AssertionError, OSError, queue.Empty, http.client.HTTPException) as error:
        failures += 1
        print("not ok %d - %s\n# %r" % (number, test.__name__, error), flush=True)
    relay.process.kill()
    relay.process.communicate()
    if os.path.exists(path):
        job.stop()
print("1..%d" % len(tests))
sys.exit(failures > 0)
