# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Debian's headless Chromium over the DevTools protocol on a pipe: JSON messages that end with a zero byte.

The browser has its profile in a directory of the test. It reaches no other machine: all requests except for files go to
an absent proxy. `Tab.requests` has all requested addresses, answered or not.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CLOSED = "127.0.0.1:9"
"""The port `discard`, without a listener."""
ANSWER_SECONDS = 120.0


class Pipe:
    """Calls of the DevTools protocol and their results; events are stored by session."""

    def __init__(self, into: int, out: int) -> None:
        self._into, self._out = into, out
        self._read = b""
        self._number = 0
        self.events: list[dict[str, Any]] = []

    def call(self, method: str, *, session: str | None = None, **params: Any) -> dict[str, Any]:
        """Return the result of ``method``; an error of the browser fails the test."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        data = memoryview(json.dumps(message).encode() + b"\0")
        while data:
            data = data[os.write(self._into, data) :]
        while (answer := self._next()).get("id") != self._number:
            self.events.append(answer)
        assert "error" not in answer, f"{method}: {answer['error']}"
        result: dict[str, Any] = answer["result"]
        return result

    def wait_for(self, method: str, session: str) -> dict[str, Any]:
        """Return the next event with that name, which may be stored already."""
        while True:
            for event in self.events:
                if (event["method"], event.get("sessionId")) == (method, session):
                    self.events.remove(event)
                    return event
            self.events.append(self._next())

    def _next(self) -> dict[str, Any]:
        ends = time.monotonic() + ANSWER_SECONDS
        while b"\0" not in self._read:
            ready, _write, _other = select.select([self._out], [], [], max(0.0, ends - time.monotonic()))
            assert ready, f"expected an answer of the browser within {ANSWER_SECONDS:.0f} s"
            data = os.read(self._out, 1 << 20)
            assert data, "expected an answer of the browser, it ended"
            self._read += data
        line, _zero, self._read = self._read.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        return message


@dataclass
class Tab:
    """One page in a browser."""

    pipe: Pipe
    session: str
    target: str
    problems: list[str] = field(default_factory=list)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method for this page."""
        return self.pipe.call(method, session=self.session, **params)

    def open(self, address: str) -> None:
        """Load a page and wait until it and its resources are loaded."""
        self.call("Page.navigate", url=address)
        self.pipe.wait_for("Page.loadEventFired", self.session)

    def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript expression, which works in a page without scripts too."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def of_kind(self, method: str) -> list[dict[str, Any]]:
        """Return the parameters of all events with that name since the page was opened."""
        self.evaluate("0")  # events arrive before the result
        found = self.pipe.events
        return [one["params"] for one in found if (one["method"], one.get("sessionId")) == (method, self.session)]

    @property
    def requests(self) -> list[str]:
        """The addresses that the page requested."""
        return [str(one["request"]["url"]) for one in self.of_kind("Network.requestWillBeSent")]

    @property
    def errors(self) -> list[str]:
        """The errors of the page: exceptions, and violations of its Content-Security-Policy."""
        thrown = [str(one["exceptionDetails"]) for one in self.of_kind("Runtime.exceptionThrown")]
        logged = [one["entry"] for one in self.of_kind("Log.entryAdded")]
        return thrown + [str(one["text"]) for one in logged if one["level"] == "error"]

    def size(self, width: int, height: int, *, phone: bool = False) -> None:
        """Set the window size of the page."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)

    def media(self, *, scheme: str = "light", kind: str = "screen") -> None:
        """Emulate a dark color scheme or print."""
        self.call(
            "Emulation.setEmulatedMedia", media=kind, features=[{"name": "prefers-color-scheme", "value": scheme}]
        )

    def click(self, selector: str) -> None:
        """Click with the mouse at the middle of an element."""
        place = self.evaluate(
            f"(() => {{ const one = document.querySelector({json.dumps(selector)}); "
            "one.scrollIntoView({block: 'center'}); const at = one.getBoundingClientRect(); "
            "return [at.x + at.width / 2, at.y + at.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=place[0], y=place[1], button="left", clickCount=1)

    def press(self, key: str, code: int, text: str = "") -> None:
        """Press and release a key."""
        more = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        self.call("Input.dispatchKeyEvent", type="keyDown", **more, **({"text": text} if text else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **more)

    def type(self, text: str) -> None:
        """Type into the focused element."""
        self.call("Input.insertText", text=text)

    def picture(self) -> bytes:
        """Return a screenshot of the window as PNG."""
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])

    def printed(self) -> bytes:
        """Return the printed page as PDF."""
        return base64.b64decode(self.call("Page.printToPDF", printBackground=True)["data"])


class Browser:
    """A running browser."""

    def __init__(self, pipe: Pipe) -> None:
        self.pipe = pipe

    def tab(self, *, scripts: bool = True) -> Tab:
        """Return a new page, with or without scripts."""
        target = self.pipe.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.pipe.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        tab = Tab(self.pipe, session, target)
        for domain in ("Page", "Runtime", "Network", "Log"):
            tab.call(f"{domain}.enable")
        tab.call("Emulation.setScriptExecutionDisabled", value=not scripts)
        return tab

    def close(self, tab: Tab) -> None:
        """Close a page and remove its events."""
        self.pipe.call("Target.closeTarget", targetId=tab.target)
        self.pipe.events.clear()


@contextmanager
def browser(directory: Path) -> Iterator[Browser]:
    """Run Chromium with its profile in ``directory``."""
    program = shutil.which("chromium")
    assert program, "expected the program chromium (package chromium): make test installs it"
    argv = [
        program, "--headless", "--remote-debugging-pipe", f"--user-data-dir={directory / 'profile'}", "--disable-gpu",
        "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking", "--disable-extensions",
        "--force-color-profile=srgb", "--hide-scrollbars", "--lang=en", f"--proxy-server={CLOSED}",
        "--proxy-bypass-list=<-loopback>",
    ]  # fmt: skip
    if os.geteuid() == 0:
        argv.append("--no-sandbox")  # Chromium has no sandbox for root
    there_in, into = _pipe()
    out, there_out = _pipe()
    try:
        with (directory / "chromium.log").open("wb") as log:
            process = subprocess.Popen(
                ["bash", "-c", f'exec "$@" 3<&{there_in} 4>&{there_out}', "bash", *argv],
                pass_fds=(there_in, there_out), stdout=log, stderr=log, env={**os.environ, "HOME": str(directory)},
            )  # fmt: skip
        os.close(there_in)
        os.close(there_out)
        try:
            pipe = Pipe(into, out)
            yield Browser(pipe)
            pipe.call("Browser.close")
            process.wait(60)
        finally:
            process.kill()
            process.wait()
    finally:
        os.close(into)
        os.close(out)


def _pipe() -> tuple[int, int]:
    """Return both ends of a pipe, with numbers that the shell may copy to 3 and 4."""
    ends = os.pipe()
    high = [fcntl.fcntl(one, fcntl.F_DUPFD_CLOEXEC, 10) for one in ends]
    for one in ends:
        os.close(one)
    return high[0], high[1]
