#!/usr/bin/env python3
"""zerodctl top on a terminal of its own, against the stub: what it draws, and how it ends. TAP.

    test_top.py ZERODCTL SOURCE_ROOT
"""
import fcntl, os, pty, re, select, signal, struct, sys, tempfile, termios

sys.dont_write_bytecode = True
from stub import Stub

program, root = sys.argv[1:]
folder = tempfile.TemporaryDirectory(prefix="zerod-top-", dir="/tmp")
path = folder.name + "/job.sock"
ENVIRONMENT = {"TERM": "xterm", "LC_ALL": "C.UTF-8", "TZ": "UTC", "PATH": os.environ["PATH"]}
count = failures = 0


class Session:
    def __init__(self, columns=80, rows=24):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            self.resize(columns, rows, 0)
            for number in signal.SIGINT, signal.SIGHUP:  # whatever started this may ignore them
                signal.signal(number, signal.SIG_DFL)
            os.execve(program, [program, "top", "-S", path, "-i", "0.1s"], ENVIRONMENT)
        self.output = ""
        self.expect("quickstart")

    def resize(self, columns, rows, fd=None):
        fcntl.ioctl(self.fd if fd is None else fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self):
        """False: nothing more comes."""
        assert select.select([self.fd], [], [], 60)[0], "nothing came after:\n" + self.output
        try:
            data = os.read(self.fd, 1 << 16)
        except OSError:
            return False
        self.output += data.decode(errors="replace")
        return bool(data)

    def expect(self, text):
        """Wait until `text` comes; returns what follows it."""
        start = len(self.output)
        while text not in self.output[start:]:
            assert self.read(), "it ended without %r:\n%s" % (text, self.output)
        return self.output[start:].partition(text)[2]

    def end(self):
        """How it ended."""
        while self.read():
            pass
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        os.close(self.fd)
        return code


def widest(frame):
    text = re.sub(r"\033\[[?0-9;]*[a-zA-Z]", "", frame.partition("\033[J")[0])
    return max(map(len, text.replace("\r", "").split("\n")))


def a_window_that_changes_size_is_filled_again(stub):
    session = Session(120, 40)
    session.resize(44, 20)
    for _ in range(3):
        frame = session.expect("\033[H")
    frame += session.expect("\033[J")
    assert 20 < widest(frame) <= 44, widest(frame)
    os.kill(session.pid, signal.SIGINT)
    assert session.end() == -signal.SIGINT


def the_end_of_the_job_ends_it(stub):
    session = Session()
    stub.stop()
    assert session.end() == 0 and "the job has ended" in session.output


def a_terminal_that_goes_away_ends_it(stub):
    session = Session()
    os.close(session.fd)
    os.waitpid(session.pid, 0)


for test in (a_window_that_changes_size_is_filled_again, the_end_of_the_job_ends_it, a_terminal_that_goes_away_ends_it):
    count += 1
    stub = Stub(path, root + "/tests/daemon/ctl/answers")
    try:
        test(stub)
        print("ok %d - %s" % (count, test.__name__), flush=True)
    except AssertionError as error:
        failures += 1
        print("not ok %d - %s" % (count, test.__name__))
        print("# " + str(error).replace("\n", "\n# "), flush=True)
    if os.path.exists(path):
        stub.stop()
print("1..%d" % count)
sys.exit(failures > 0)
