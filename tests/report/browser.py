"""A headless Chromium over its debugging pipe: no driver, no port, no package."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-headless-shell", "google-chrome", "chrome")
REQUIRED = "INTERNALIZE_REQUIRE_CHROMIUM"
LIMIT = 60.0
"""Seconds that any one answer may take on a busy machine."""


def find() -> str | None:
    """The first Chromium on the path."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Browser:
    """One tab. Messages are JSON with a zero byte behind each; the browser reads from its file 3 and writes to 4."""

    def __init__(self, program: str) -> None:
        to_read, self._to = os.pipe()
        self._from, to_write = os.pipe()
        self._profile = tempfile.mkdtemp(prefix="internalize-chromium-")

        def wire() -> None:
            # the ends must be 3 and 4 in the child, wherever they are here
            for end, place in ((os.dup(to_read), 3), (os.dup(to_write), 4)):
                os.dup2(end, place)

        self._process = subprocess.Popen(
            [
                *(program, "--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe"),
                *("--disable-background-networking", "--no-first-run", "--disable-dev-shm-usage", "--hide-scrollbars"),
                *(f"--user-data-dir={self._profile}", "about:blank"),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            close_fds=False,
            preexec_fn=wire,
        )
        os.close(to_read)
        os.close(to_write)
        self._last = 0
        self._rest = b""
        self.events: list[dict[str, Any]] = []
        target = self._send("Target.createTarget", {"url": "about:blank"})["targetId"]
        self._session = self._send("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def close(self) -> None:
        with contextlib.suppress(OSError, TimeoutError, RuntimeError):
            self._send("Browser.close", {})
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._to)
        os.close(self._from)
        shutil.rmtree(self._profile, ignore_errors=True)

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """A command to the tab; its result."""
        return self._send(method, parameters, self._session)

    def _send(self, method: str, parameters: dict[str, Any], session: str | None = None) -> dict[str, Any]:
        self._last += 1
        message = {"id": self._last, "method": method, "params": parameters}
        os.write(self._to, json.dumps(message | ({"sessionId": session} if session else {})).encode() + b"\0")
        while True:
            answer = self._receive(LIMIT)
            if answer.get("id") == self._last:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return dict(answer["result"])

    def _receive(self, limit: float) -> dict[str, Any]:
        deadline = time.monotonic() + limit
        while b"\0" not in self._rest:
            if not select.select([self._from], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise TimeoutError("the browser does not answer")
            part = os.read(self._from, 1 << 20)
            if not part:
                raise RuntimeError("the browser is gone")
            self._rest += part
        text, self._rest = self._rest.split(b"\0", 1)
        found: dict[str, Any] = json.loads(text)
        if "method" in found:
            self.events.append(found)
        return found

    def look(self, width: int, height: int, dark: bool) -> None:
        """Size of the window and the system's colour scheme, for the next page."""
        self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", media="", features=[scheme])

    def open(self, page: Path) -> None:
        """Opens a page from disk and waits until it has loaded."""
        self.events.clear()
        self.send("Page.navigate", url=page.resolve().as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self._receive(LIMIT)

    def ask(self, expression: str) -> Any:
        """The value of a JavaScript expression; promises are waited for.

        Raises:
            AssertionError: it threw.
        """
        answer = self.send("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def until(self, expression: str) -> None:
        """Waits until an expression is true."""
        deadline = time.monotonic() + LIMIT
        while not self.ask(f"Boolean({expression})"):
            if time.monotonic() > deadline:
                raise TimeoutError(f"never true: {expression}")
            time.sleep(0.05)

    def file(self, path: Path) -> Path:
        """A file that is being downloaded, when it is there."""
        deadline = time.monotonic() + LIMIT
        while not path.exists():
            if time.monotonic() > deadline:
                raise TimeoutError(f"not downloaded: {path}")
            time.sleep(0.05)
        return path

    def complaints(self) -> list[str]:
        """Errors and warnings of the console, and exceptions."""
        self.ask("1")  # what was said before has arrived then
        found = []
        for event in self.events:
            told = event.get("params", {})
            if event["method"] == "Runtime.exceptionThrown":
                found.append(str(told["exceptionDetails"].get("exception", told["exceptionDetails"])))
            elif event["method"] == "Runtime.consoleAPICalled" and told["type"] in ("error", "warning", "assert"):
                found.append(str([argument.get("value") for argument in told["args"]]))
            elif event["method"] == "Log.entryAdded" and told["entry"]["level"] in ("error", "warning"):
                found.append(str(told["entry"]["text"]))
        return found

    def requests(self) -> list[str]:
        """Addresses that the page has asked for, its own among them; data and blob addresses never leave it."""
        asked = [e["params"]["request"]["url"] for e in self.events if e["method"] == "Network.requestWillBeSent"]
        return [url for url in asked if not url.startswith(("data:", "blob:"))]

    def picture(self, path: Path, whole: bool = False) -> None:
        """A screenshot as PNG, of the window or of the whole page."""
        data = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(data))
