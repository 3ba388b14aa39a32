#!/usr/bin/env python3
"""The HTTP server byte by byte: requests, streams, limits, and its socket in the file system. TAP.

    test_http.py HTTP_SERVER
"""
import os, shutil, signal, socket, stat, subprocess, sys, tempfile, time

program = sys.argv[1]
HEAD = " HTTP/1.1\r\nHost: zerod\r\n"
STRANGER, GRACE, LIMIT = 65534, 0.02, 64
is_root = os.geteuid() == 0


class Skip(Exception):
    pass


class Client:
    def __init__(self, path, request=None, until=None):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)
        self.socket.settimeout(30)
        if request is not None:
            self.send(request)
        self.text = self.read(until) if until else ""

    def send(self, request):
        self.socket.sendall(request if isinstance(request, bytes) else request.encode())

    def read(self, until=None):
        """What comes, up to `until`, or to the end."""
        data = b""
        while until is None or until.encode() not in data:
            try:
                more = self.socket.recv(1 << 16)
            except ConnectionError:
                more = b""
            if not more:
                break
            data += more
        return data.decode()

    def is_closed(self, seconds=30.0):
        self.socket.settimeout(seconds)
        try:
            while self.socket.recv(1 << 16):
                pass
        except TimeoutError:
            return False
        except ConnectionError:
            pass
        return True


class Server:
    def __init__(self, *options, path=None, **how):
        self.folder = tempfile.mkdtemp(prefix="zerod-http-", dir="/tmp")
        self.path = path or self.folder + "/zerod/job.sock"
        self.process = subprocess.Popen([program, self.path, *options], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, **how)
        said = self.process.stdout.readline()
        self.port = int(said.split()[1]) if said else 0

    def connect(self, request=None, until=None):
        return Client(self.path, request, until)

    def ask(self, request):
        client = self.connect(request)
        client.socket.shutdown(socket.SHUT_WR)
        return client.read()

    def get(self, target):
        return self.ask("GET " + target + HEAD + "\r\n")

    def post(self, target):
        return self.ask("POST " + target + HEAD + "\r\n")

    def answers(self, wait=0.0):
        client = self.connect()
        time.sleep(wait)
        try:
            client.send(get("/echo?fresh"))
            return "[fresh]" in client.read("last=-\n")
        except ConnectionError:
            return False

    def count(self, name):
        return int(self.get("/count").split(name + "=")[1].split()[0])

    def wait(self, name, count):
        until(lambda: self.count(name) >= count)

    def descriptors(self):
        return len(os.listdir("/proc/%d/fd" % self.process.pid))

    def end(self):
        """Its last words; no handle of the loop is left."""
        said = self.process.communicate(timeout=60)[0]
        shutil.rmtree(self.folder, ignore_errors=True)
        assert self.process.returncode == 0, self.process.returncode
        return said


def until(is_true, seconds=30):
    end = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < end, "in vain"
        time.sleep(0.002)


def get(target):
    return "GET " + target + HEAD + "\r\n"


def expect(server, request, wanted):
    reply = server.ask(request)
    assert wanted in reply, (request[:60], reply[:400], wanted)


def refuses(server, request, wanted):
    """And closes the connection though the client would go on."""
    client = server.connect()
    try:
        client.send(request)
    except ConnectionError:
        pass
    reply = client.read()
    assert wanted in reply, (request[:60], reply[:400], wanted)
    return reply


# --- requests ---


def a_request_is_answered(server):
    expect(server, get("/echo?a=1&b=x%20y+z"), "path=/echo body=0: [a]=[1] [b]=[x y z]")
    expect(server, get("/echo"), "HTTP/1.1 200 OK\r\n")
    expect(server, get("/echo"), "Content-Type: application/json\r\n")
    expect(server, "POST /echo" + HEAD + "Content-Length: 5\r\n\r\nhello", "method=POST path=/echo body=5:hello")
    expect(server, "GET /echo" + HEAD + "Accept: a/b\r\nLast-Event-ID: 7\r\n\r\n", "last=7")
    expect(server, "GET /echo HTTP/1.0\r\n\r\n", "path=/echo")


def a_connection_is_one_request(server):
    reply = server.ask(get("/echo?n=1") + get("/echo?n=2"))
    assert "[n]=[1]" in reply and "[n]=[2]" not in reply and "\r\nConnection: close\r\n" in reply, reply


def a_slow_writer_is_understood(server):
    client = server.connect()
    for at, byte in enumerate("POST /echo?slow=1" + HEAD + "Content-Length: 5\r\n\r\nhello"):
        client.send(byte)
        assert at > 40 or server.count("gone") == 0  # the server looks between the bytes
    assert "body=5:hello [slow]=[1]" in client.read("last=-\n")


def garbage_is_refused(server):
    for request in ("hello\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"):
        refuses(server, request, "")
    for request in ("GET /echo HTTP/1.1\r\n\r\n", "GET /echo HTTP/1.1\r\nHost z\r\n\r\n"):
        refuses(server, request, " 400 ")
    refuses(server, "GET /echo HTTP/9.9\r\nHost: z\r\n\r\n", "HTTP/1.1 505")
    reply = refuses(server, "GET /echo?a" + 16 * "&a=1" + HEAD + "\r\n", "more than 16 parameters")
    assert '{"error":{"code":"E_BAD_REQUEST","message":"' in reply and "Content-Type: application/json\r\n" in reply, reply


def bodies_have_a_limit(server):
    for length in ("five", "-5", "5x"):
        refuses(server, "POST /echo" + HEAD + "Content-Length: " + length + "\r\n\r\nhello", " 400 ")
    expect(server, "POST /echo" + HEAD + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", "body=5:hello")
    for more, wanted in ("", "body=65536:0123456789"), ("x", "E_TOO_LARGE"), (300000 * "x", " 413 "):
        body = 4096 * "0123456789abcdef" + more
        refuses(server, "POST /echo" + HEAD + "Content-Length: %d\r\n\r\n" % len(body) + body, wanted)


def headers_have_a_limit(server):
    expect(server, "GET /echo" + HEAD + "X: " + 8000 * "x" + "\r\n\r\n", "path=/echo")
    for request, wanted in (("GET /echo" + HEAD + "X: " + 8200 * "x" + "\r\n\r\n", "E_TOO_LARGE"), ("GET /echo" + HEAD + 1400 * "A: 1\r\n" + "\r\n", " 431 "),
                            ("GET /echo" + HEAD + "X: " + 90000 * "x" + "\r\n\r\n", " 431 "), (get("/" + 8200 * "x"), " 431 "),
                            (get("/" + 90000 * "x"), " 414 ")):
        refuses(server, request, wanted)


def a_large_answer_arrives_whole(server):
    assert len(server.ask(get("/big?bytes=3145728")).partition("\r\n\r\n")[2]) == 3 << 20


# --- TCP ---


def ask_tcp(server, request):
    client = socket.create_connection(("127.0.0.1", server.port), 30)
    client.sendall(request.encode())
    return b"".join(iter(lambda: client.recv(1 << 16), b"")).decode()


def tcp_answers_one_path_and_requests_that_name_this_host(server, options=("tcp=localhost:0",)):
    for request, wanted in ((get("/metrics"), "path=/metrics body=0: last=-"), (get("/v1/status"), " 404 "), (get("/metrics/"), " 404 "),
                            (get("/"), " 404 ")):
        assert wanted in ask_tcp(server, request), request
    for hosts, is_ours in (("127.0.0.1:9479", True), ("[::1]:9479", True), ("node1:9479", True), ("evil.example:9479", False),
                           ("127.0.0.1.evil.example", False), (socket.gethostname(), True), (socket.gethostname() + ".evil.example", False), ("", False)):
        request = "GET /metrics HTTP/1.1\r\nHost: " + hosts + "\r\nConnection: close\r\n\r\n"
        assert ("path=/metrics" in ask_tcp(server, request)) == is_ours, hosts


def addresses_of_tcp_are_checked(server):
    for address in ("", ":", "9479", ":9479", "localhost:", "localhost:123456", "::1:9479", "elsewhere:9479", "192.0.2.1:9479"):
        refused(server.folder + "/zerod/tcp.sock", "E1046", "tcp=" + address)


# --- streams ---


def a_stream_comes_as_it_is_sent(server):
    stream = server.connect(get("/stream"), "hello\n")
    assert "Content-Type: text/plain\r\n" in stream.text
    server.post("/tell")
    assert "more\n" in stream.read("more\n")
    server.post("/finish")
    assert stream.read("0\r\n\r\n").endswith("0\r\n\r\n"), "the end of the chunks"
    old = server.connect("GET /stream HTTP/1.0\r\n\r\n", "\r\n\r\nhello\n")
    server.post("/finish")
    assert old.is_closed() and server.count("gone") == 0


def an_answer_that_comes_late_has_a_length(server):
    client = server.connect(get("/later"))
    server.wait("streams", 1)
    server.post("/finish")
    reply = client.read()
    assert "Content-Length: 14\r\n" in reply and reply.endswith("true}"), reply


def a_client_that_leaves_is_told_of_once(server):
    stream, later = server.connect(get("/stream"), "hello\n"), server.connect(get("/later"))
    server.wait("streams", 2)
    stream.socket.close()
    server.wait("gone", 1)
    later.socket.close()
    server.wait("gone", 2)
    server.post("/tell")
    server.post("/finish")
    assert server.count("gone") == 2


def a_client_that_does_not_read_is_dropped_at_1_MiB(server):
    reader, deaf = server.connect(get("/fill")), server.connect(get("/pour"))
    count = 0
    while count < 8 << 20:  # eight times what may wait
        more = len(reader.socket.recv(1 << 16))
        assert more, "the reader was dropped"
        count += more
    server.wait("failed", 1)
    assert server.count("gone") == 1 and deaf.is_closed()
    reader.socket.close()
    server.wait("gone", 2)


def the_end_closes_everything(server):
    clients = [server.connect(get("/stream"), "hello\n") if i % 2 else server.connect(get("/later")) for i in range(8)]
    server.wait("streams", 8)
    assert server.end() == "gone=8\n" and all(client.is_closed() for client in clients)


def the_end_waits_for_what_was_answered(server, options=("drain=10",)):
    client = server.connect(get("/big?bytes=2097152"), "\r\n\r\n")
    server.process.stdin.close()
    assert len(client.text.partition("\r\n\r\n")[2] + client.read()) == 2 << 20


# --- how many, how long ---


def many(server, count, *request):
    """Connections, each a moment older than the next."""
    clients = []
    for _ in range(count):
        clients.append(server.connect(*request))
        time.sleep(0.002)
    return clients


def the_longest_idle_is_dropped_first(server):
    clients = many(server, LIMIT + 4)
    assert all(client.is_closed() for client in clients[:4]) and not any(client.is_closed(0.005) for client in clients[4:])
    assert server.answers()


def half_a_request_does_not_make_young(server):
    clients = many(server, LIMIT)
    time.sleep(2 * GRACE)
    clients[0].send("GET /echo HTTP/1.1\r\nHo")
    clients += many(server, 1)
    assert clients[0].is_closed() and not any(client.is_closed(0.005) for client in clients[1:])


def streams_stay_while_others_are_idle(server):
    streams, idle = many(server, 10, get("/stream"), "hello\n"), many(server, LIMIT - 6)
    assert all(client.is_closed() for client in idle[:4])
    assert server.answers() and server.count("gone") == 0 and streams


def the_oldest_stream_is_dropped_when_all_are_streams(server):
    later = server.connect(get("/later"))
    server.wait("streams", 1)
    streams = many(server, LIMIT + 6, get("/stream"), "hello\n")
    server.wait("gone", 7)
    assert all(client.is_closed() for client in streams[:7])
    assert not later.is_closed(0.005) and not streams[-1].is_closed(0.005) and server.answers()


def flood(server, rounds=1 << 30):
    """Another process: connections that say nothing, as fast as they can be made."""
    pid = os.fork()
    if pid:
        return pid
    held = [None] * 300
    try:
        for i in range(rounds):
            held[i % 300] = socket.socket(socket.AF_UNIX)  # the one before it is closed
            held[i % 300].connect(server.path)
    finally:
        os._exit(0)


def a_process_with_one_connection_keeps_it_in_a_flood(server):
    pid = flood(server)
    answered = sum(server.answers(0 if i % 10 else 5 * GRACE) for i in range(100))
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert answered >= 99, answered


def no_descriptor_is_left_behind(server):
    assert server.answers()
    before = server.descriptors()
    os.waitpid(flood(server, 10000), 0)
    assert server.answers()
    until(lambda: server.descriptors() <= before)


def the_first_request_must_come_soon(server, options=("first=300",)):
    silent, half, slow = server.connect(), server.connect("POST /echo HTTP/1.1\r\nHost: z\r\nContent-Length: 9\r\n\r\na"), server.connect("G")
    try:
        while True:  # a byte, and a byte ..
            slow.send("x")
            time.sleep(0.001)
    except ConnectionError:
        assert silent.is_closed() and half.is_closed()


# --- who ---


def as_user(server, uid, request=get("/echo")):
    """What another user is answered."""
    script = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); s.sendall(sys.argv[2].encode()); s.shutdown(1); print(s.recv(9999))"
    return subprocess.run(["/usr/bin/env", "python3", "-I", "-c", script, server.path, request], user=uid, group=uid, extra_groups=(), capture_output=True,
                          text=True).stdout


def open_doors(of):
    """The file system would stop others: this is to see the server do it."""
    if not is_root:
        raise Skip("another user can be played by root alone")
    for each in (of.folder, of.folder + "/zerod", of.path):
        os.chmod(each, 0o777)


def another_user_is_refused(server):
    open_doors(server)
    assert "echo" not in as_user(server, STRANGER) and server.answers()


# --- the socket in the file system ---


def run(*args, **env):
    return subprocess.run([program, *args], capture_output=True, text=True, input="", env={**os.environ, **env}, timeout=60)


def refused(path, code, *options, exit_code=73):
    got = run(path, *options)
    assert got.returncode == exit_code and code in got.stderr, (path, code, got)
    return got.stderr


def the_name_follows_the_job(server):
    here, there = server.folder, "/tmp/zerod-%d" % os.geteuid()
    for folder, wanted in ((here, here + "/zerod"), ("", there), ("/nowhere/at/all", there)):
        assert run("name=job", XDG_RUNTIME_DIR=folder).stdout == wanted + "/job.sock\n"
    for name in ("../job", ""):
        assert run("name=" + name).returncode == 73
    longest = (107 - len(here + "/zerod/.sock")) * "n"
    path = run("name=" + longest, XDG_RUNTIME_DIR=here).stdout.strip()
    assert len(path) == 107 and run(path).returncode == 0
    too_long = run("name=" + longest + "n", XDG_RUNTIME_DIR=here)
    assert too_long.returncode == 73 and "E1041" in too_long.stderr and "control.socket" in too_long.stderr


def it_is_made_for_its_owner_and_removed(server):
    folder = server.folder + "/zerod"
    assert stat.S_IMODE(os.stat(server.path).st_mode) == 0o600 and stat.S_IMODE(os.stat(folder).st_mode) == 0o700
    server.process.stdin.close()
    server.process.wait(60)
    assert os.listdir(folder) == []
    os.chmod(folder, 0o777)
    again = Server(path=server.path, umask=0)
    assert stat.S_IMODE(os.stat(server.path).st_mode) == 0o600 and not os.stat(folder).st_mode & 0o027
    again.end()


def what_is_not_ours_is_refused_and_not_removed(server):
    folder = server.folder + "/other"
    path = folder + "/job.sock"
    for kind, at, code in (("link", folder, "E1042"), ("user", folder, "E1042"), ("link", path, "E1043"), ("file", path, "E1043"),
                           ("folder", path, "E1043")):
        shutil.rmtree(folder, ignore_errors=True)
        if at != folder:
            os.mkdir(folder, 0o700)
        if kind == "link":
            os.symlink("/tmp/elsewhere", at)
        elif kind == "file":
            open(at, "w").close()
        else:
            os.mkdir(at)
        if kind == "user":
            if not is_root:
                continue  # another user can be played by root alone
            os.chown(at, STRANGER, STRANGER)
        before = os.lstat(at).st_ino
        said = refused(path, code)
        assert server.folder in said and "control.socket" in said, said
        assert os.lstat(at).st_ino == before and not os.path.exists("/tmp/elsewhere")
        if kind == "link" and at == folder:
            os.unlink(at)


def a_live_one_is_refused_and_a_dead_one_replaced(server):
    pid = "pid %d " % server.process.pid
    said = refused(server.path, "E1040")
    assert pid in said and os.path.exists(server.path), said
    other = Server()
    other.process.kill()
    other.process.wait()
    assert os.path.exists(other.path)
    assert run(other.path).returncode == 0 and os.listdir(other.folder + "/zerod") == []


def one_that_another_server_replaced_is_not_removed(server):
    os.unlink(server.path)
    second = Server(path=server.path)
    server.process.stdin.close()
    server.process.wait(60)
    assert os.listdir(server.folder + "/zerod") == ["job.sock"] and second.answers()
    second.end()


def a_path_of_its_own_needs_its_folder(server):
    own = Server("own=1", path=server.folder + "/my.sock")
    assert stat.S_IMODE(os.stat(own.path).st_mode) == 0o600 and own.answers()
    own.end()
    refused(server.folder + "/no/my.sock", "E1044", "own=1")


def of_many_starts_one_wins(server):
    for i in range(8):  # over fresh files, then over dead ones
        path = server.folder + "/zerod/many.sock"
        starts = [subprocess.Popen([program, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) for _ in range(8)]
        winners = [each for each in starts if each.stdout.readline()]
        assert len(winners) == 1, len(winners)
        winners[0].kill()
        assert sorted(each.wait(60) for each in starts) == [-9] + 7 * [73]
        for each in starts:
            each.communicate()


tests = [value for value in list(globals().values()) if getattr(value, "__code__", None) and value.__code__.co_varnames[:1] == ("server",)
         and value.__code__.co_argcount - len(value.__defaults__ or ()) == 1 and (value.__code__.co_argcount == 1 or "options" in value.__code__.co_varnames)]
failures = 0
for number, test in enumerate(tests, 1):
    server = Server(*(test.__defaults__ or [()])[0])
    word, why = "ok", ""
    try:
        test(server)
        server.process.stdin.close()
        assert server.process.wait(60) == 0, server.process.returncode
    except Skip as skip:
        why = " # SKIP %s" % skip
    except (AssertionError, OSError, subprocess.TimeoutExpired, ValueError) as error:
        failures += 1
        word, why = "not ok", "\n# %r" % error
    server.process.kill()
    server.process.wait()
    shutil.rmtree(server.folder, ignore_errors=True)
    print("%s %d - %s%s" % (word, number, test.__name__, why), flush=True)
print("1..%d" % len(tests))
sys.exit(failures > 0)
