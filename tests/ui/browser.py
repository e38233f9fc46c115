"""A headless Chromium, spoken to through pipes with the DevTools protocol; needs no library."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PATIENCE = 120.0
"""Seconds to wait for an answer on a machine that is busy."""


def find_browser() -> str | None:
    """The Chromium on this machine, if there is one."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Page:
    """An open page, and what it did so far."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser, self._session = browser, session
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The answer to a command of the protocol."""
        return self._browser.send(method, self._session, **parameters)

    def open(self, path: Path, *, width: int = 1400, dark: bool = False, height: int = 900) -> None:
        """Load a file in a window of this width, and wait until it is shown."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.send("Emulation.setEmulatedMedia", media="", features=[scheme])
        self._browser.events.clear()
        self.send("Page.navigate", url=path.resolve().as_uri())
        self._browser.wait_for("Page.loadEventFired")

    def run(self, script: str) -> Any:
        """The value of an expression in the page; raises AssertionError if it throws."""
        answer = self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def key(self, key: str) -> None:
        """Press a key."""
        codes = {"Tab": 9, "Enter": 13, "End": 35, "Home": 36, "ArrowLeft": 37, "ArrowRight": 39, "Escape": 27}
        for kind in ("rawKeyDown", "keyUp"):
            self.send("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=codes[key])

    def point_at(self, selector: str) -> None:
        """Move the pointer to the middle of an element."""
        place = self.run(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            " e.scrollIntoView({block: 'center', behavior: 'instant'});"
            " const r = e.getClientRects()[0]; return [r.x + r.width / 2, r.y + r.height / 2]; })()"
        )
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=place[0], y=place[1])

    def requests(self) -> list[str]:
        """Addresses that the page asked for, itself left out."""
        events = self._browser.named("Network.requestWillBeSent")
        return [event["request"]["url"] for event in events if event.get("type") != "Document"]

    def errors(self) -> list[str]:
        """Messages of the console, and exceptions."""
        thrown = [json.dumps(event) for event in self._browser.named("Runtime.exceptionThrown")]
        logged = [event["entry"]["text"] for event in self._browser.named("Log.entryAdded")]
        return (
            thrown + logged + [json.dumps(event["args"]) for event in self._browser.named("Runtime.consoleAPICalled")]
        )

    def picture(self, path: Path, first: str = "html", last: str | None = None, margin: int = 20) -> None:
        """A picture from one element to another with a margin; by default of the whole page."""
        ends = json.dumps([first, last or first])
        box = self.run(
            f"(() => {{ const [a, b] = {ends}.map((e) => document.querySelector(e).getBoundingClientRect());"
            " return [a.x + scrollX, a.y + scrollY, Math.max(a.right, b.right) - a.x, b.bottom - a.y]; })()"
        )
        x, y, width, height = box
        top = min(y, margin)
        clip = {"x": x - margin, "y": y - top, "width": width + 2 * margin, "height": height + top + margin, "scale": 1}
        answer = self.send("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(answer["data"]))


class Browser:
    """A running Chromium."""

    def __init__(self, process: subprocess.Popen[bytes], commands: int, answers: int) -> None:
        self._process, self._commands, self._answers = process, commands, answers
        self._rest, self._last = b"", 0
        self.events: list[dict[str, Any]] = []

    def new_page(self) -> Page:
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        return Page(self, self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"])

    def send(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        self._last += 1
        message = {"id": self._last, "method": method, "params": parameters}
        message |= {"sessionId": session} if session else {}
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._last:
                assert "error" not in answer, answer["error"]
                result: dict[str, Any] = answer["result"]
                return result

    def wait_for(self, event: str) -> None:
        while not self.named(event):
            self._read()

    def named(self, name: str) -> list[dict[str, Any]]:
        return [event["params"] for event in self.events if event["method"] == name]

    def _read(self) -> dict[str, Any]:
        """The next message; events are kept."""
        end = time.monotonic() + PATIENCE
        while b"\0" not in self._rest:
            assert time.monotonic() < end, "the browser does not answer"
            piece = os.read(self._answers, 1 << 20)
            assert piece, f"the browser has ended: {self._process.poll()}"
            self._rest += piece
        message, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        if "method" in found:
            self.events.append(found)
        return found


@contextmanager
def running_browser(program: str, folder: Path) -> Iterator[Browser]:
    """A Chromium with an empty profile in a folder; it ends with the context."""
    to_browser, from_browser = os.pipe(), os.pipe()
    arguments = (
        *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"),
        *("--remote-debugging-pipe", f"--user-data-dir={folder / 'profile'}", "--no-first-run", "--mute-audio"),
        *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions"),
    )
    # The protocol wants the descriptors 3 and 4, which a shell sets.
    script = f'exec "$0" "$@" 3<&{to_browser[0]} 4>&{from_browser[1]}'
    process = subprocess.Popen(
        ["bash", "-c", script, program, *arguments, "about:blank"],
        pass_fds=(to_browser[0], from_browser[1]),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(to_browser[0])
    os.close(from_browser[1])
    try:
        yield Browser(process, to_browser[1], from_browser[0])
    finally:
        os.close(to_browser[1])
        os.close(from_browser[0])
        process.terminate()
        process.wait(PATIENCE)


if __name__ == "__main__":  # `make browser` asks whether there is one
    raise SystemExit(0 if find_browser() else "no Chromium here")
