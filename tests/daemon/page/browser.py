#!/usr/bin/env python3
"""Drives the page in headless Chromium: loads it, draws a curve of a live run, pauses
and resumes it by its buttons, looks for errors on the console, takes screenshots.

    browser.py live URL [--stop] [--shots DIR]  a running job, through `zerodctl web` or a stub
    browser.py report FILE [--shots DIR]        report.html, opened as a file

DevTools protocol over --remote-debugging-pipe, so nothing but Python and chromium is
needed. Not part of CI: prints TAP, and `1..0 # SKIP` where there is no chromium.
"""

import argparse, base64, json, os, pathlib, shutil, subprocess, sys, tempfile, time


class Browser:
    """One chromium and one page in it."""

    def __init__(self, program):
        self.profile = tempfile.mkdtemp(prefix="zerod-browser-")
        to_r, to_w = os.pipe()
        from_r, from_w = os.pipe()

        def wire():  # chromium reads commands from 3 and answers on 4
            a, b = os.dup(to_r), os.dup(from_w)
            os.dup2(a, 3), os.dup2(b, 4)
            for fd in (3, 4):
                os.set_inheritable(fd, True)

        self.process = subprocess.Popen(
            [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe",
             "--no-first-run", "--disable-background-networking", "--disable-dev-shm-usage",
             "--hide-scrollbars", "--user-data-dir=" + self.profile],
            preexec_fn=wire, close_fds=False, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        os.close(to_r), os.close(from_w)
        self.to, self.back, self.buffer = to_w, from_r, b""
        self.count, self.session, self.console = 0, None, []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")

    def read(self):
        while b"\0" not in self.buffer:
            piece = os.read(self.back, 1 << 20)
            if not piece:
                raise RuntimeError("chromium ended")
            self.buffer += piece
        text, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(text)

    def take(self, message):
        kind, p = message.get("method"), message.get("params", {})
        if kind == "Runtime.exceptionThrown":
            self.console.append(json.dumps(p["exceptionDetails"])[:600])
        elif kind == "Runtime.consoleAPICalled" and p["type"] in ("error", "warning", "assert"):
            self.console.append(json.dumps(p["args"])[:600])
        elif kind == "Log.entryAdded" and p["entry"]["level"] in ("error", "warning"):
            self.console.append(p["entry"]["text"] + " " + p["entry"].get("url", ""))

    def call(self, method, **params):
        self.count += 1
        message = {"id": self.count, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.read()
            if answer.get("id") == self.count:
                if "error" in answer:
                    raise RuntimeError("%s: %s" % (method, answer["error"]))
                return answer["result"]
            self.take(answer)

    def ask(self, expression):
        """The value of a JavaScript expression in the page."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(json.dumps(result["exceptionDetails"])[:600])
        return result["result"].get("value")

    def until(self, expression, seconds=120):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.ask(expression):
                return True
            time.sleep(0.1)
        return False

    def show(self, width, height, scheme):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def shot(self, path):
        time.sleep(1.2)  # two redraws: the picture is of what is there after them
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        data = self.call("Page.captureScreenshot", captureBeyondViewport=True,
                         clip={"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1})["data"]
        pathlib.Path(path).write_bytes(base64.b64decode(data))

    def close(self):
        self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.profile, ignore_errors=True)  # its helpers may write for a moment longer


class Tap:
    def __init__(self):
        self.count = self.bad = 0

    def ok(self, good, what, more=""):
        self.count += 1
        self.bad += not good
        print("%s %d - %s" % ("ok" if good else "not ok", self.count, what), flush=True)
        if not good and more:
            print("# " + str(more).replace("\n", "\n# "))

    def end(self):
        print("1..%d" % self.count)
        return 1 if self.bad else 0


# Pixels of the loss chart that are of a line's color, not grid or text: those with much
# more of one of red, green and blue than of another.
DRAWN = """(() => { const from = document.querySelector('#%s canvas'), k = new OffscreenCanvas(from.width, from.height), c = k.getContext('2d');
  c.drawImage(from, 0, 0);
  const d = c.getImageData(0, 0, k.width, k.height).data;
  let n = 0; for (let i = 0; i < d.length; i += 4) if (d[i + 3] > 100 && Math.max(d[i], d[i+1], d[i+2]) - Math.min(d[i], d[i+1], d[i+2]) > 60) n++;
  return n; })()"""
WIDE = "document.documentElement.scrollWidth <= window.innerWidth"
SIZES = [("light", 1400), ("dark", 1400), ("light", 400), ("dark", 400)]


def look(browser, tap, shots, name):
    for scheme, width in SIZES:
        browser.show(width, 900, scheme)
        tap.ok(browser.until(WIDE, 60), "%s at %d px, %s: nothing sticks out" % (name, width, scheme))
        if shots:
            browser.shot(pathlib.Path(shots) / ("%s-%s-%d.png" % (name, scheme, width)))
    browser.show(1400, 900, "light")


def button(name):
    return "document.querySelector('[data-do=%s]')" % name


def press(browser, name):
    browser.until("!%s.disabled && !%s.hidden" % (button(name), button(name)))
    browser.ask(button(name) + ".click()")


def live(browser, tap, args):
    state = "document.getElementById('state').textContent"
    step = "known.status.step"
    browser.show(1400, 900, "light")
    browser.call("Page.navigate", url=args.where)
    tap.ok(browser.until("typeof known !== 'undefined' && known.status !== null && loaded"), "the page loads and asks the job")
    tap.ok(browser.until("document.getElementById('link').textContent === 'live'"), "the stream of events is open")
    tap.ok(browser.until("known.status.state === 'running'", 120), "the job runs")
    before = browser.ask("known.series['train/loss'].x.length")
    tap.ok(browser.until("known.series['train/loss'].x.length > %d + 3" % before), "points of the loss come while it runs")
    tap.ok(browser.until(DRAWN % "loss" + " > 100"), "a curve is drawn", browser.ask(DRAWN % "loss"))
    tap.ok(browser.ask("document.title.includes('%')"), "the title tells how far it is")

    press(browser, "pause")
    tap.ok(browser.until(state + " === 'paused'"), "Pause: the job says paused", browser.ask(state))
    held = browser.ask("fetch('v1/status').then(r => r.json()).then(s => s.step)")
    time.sleep(1.0)
    tap.ok(browser.ask("fetch('v1/status').then(r => r.json()).then(s => s.step)") == held, "no step is made while it is paused")
    press(browser, "resume")
    tap.ok(browser.until(state + " === 'running' && %s > %d" % (step, held)), "Resume: steps go on")
    press(browser, "eval")
    note = "document.getElementById('note').textContent"
    tap.ok(browser.until(note + ".includes('eval done')"), "Eval is done, and its loss is told", browser.ask(note))
    browser.ask("(() => { document.getElementById('rateValue').value = '-1'; document.querySelector('#rate button').click(); })()")
    tap.ok(browser.until("document.getElementById('note').className.includes('bad')"), "a rate that cannot be is refused, and the page says why",
           browser.ask("document.getElementById('note').textContent"))
    browser.ask(button("stop") + ".click()")
    tap.ok("?" in browser.ask(button("stop") + ".textContent") and browser.until("known.status.state === 'running'"), "Stop asks first")
    browser.ask("document.getElementById('keep').click()")
    if args.shots:
        look(browser, tap, args.shots, "live")
    # the browser itself logs an answer of 400, sooner or later; that one was asked for
    errors = [line for line in browser.console if not ("/v1/set" in line and "status of 400" in line)]
    tap.ok(not errors, "no error on the console", "\n".join(errors))
    if args.stop:
        press(browser, "stop")
        press(browser, "stop")
        tap.ok(browser.until(state + " === 'stopped'"), "Stop: the job says stopped", browser.ask(state))
        tap.ok(browser.until("document.getElementById('link').textContent === 'ended'"), "the page stays, and says that it ended")
        if args.shots:
            browser.shot(pathlib.Path(args.shots) / "ended.png")


def report(browser, tap, args):
    browser.show(1400, 900, "light")
    browser.call("Page.navigate", url=pathlib.Path(args.where).resolve().as_uri())
    tap.ok(browser.until("typeof report === 'object' && report !== null"), "the page reads the data inside it")
    tap.ok(browser.until(DRAWN % "loss" + " > 100"), "a curve is drawn")
    tap.ok(browser.ask("[...document.querySelectorAll('.live')].every(e => e.hidden)"), "there are no buttons")
    tap.ok(browser.ask("document.getElementById('note').textContent").startswith("Report of"), "it says what it is")
    tap.ok(browser.ask("performance.getEntriesByType('resource').length") == 0, "nothing is fetched")
    if args.shots:
        look(browser, tap, args.shots, "report")
    tap.ok(not browser.console, "no error on the console", "\n".join(browser.console))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=["live", "report"])
    parser.add_argument("where")
    parser.add_argument("--shots")
    parser.add_argument("--stop", action="store_true")
    args = parser.parse_args()
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if not program:
        print("1..0 # SKIP chromium is not installed")
        return 0
    browser, tap = Browser(program), Tap()
    try:
        {"live": live, "report": report}[args.what](browser, tap, args)
    finally:
        browser.close()
    return tap.end()


if __name__ == "__main__":
    sys.exit(main())
