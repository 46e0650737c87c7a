"""A headless Chromium, driven over its DevTools protocol: no other package is needed."""

from __future__ import annotations

import base64
import itertools
import json
import os
import shutil
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import websocket

from tests.support.waiting import wait_until

#: Seconds that the browser may take over one command, and a page over a condition.
TIMEOUT = 60.0
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_KEYS = {"Tab": 9, "Enter": 13, "Escape": 27}


def find_chromium() -> str | None:
    given = os.environ.get("CHROMIUM")
    if given:
        return given if os.access(given, os.X_OK) else None
    return next((found for name in _NAMES if (found := shutil.which(name))), None)


def chromium() -> str:
    """Return the path of Chromium; skip the test if it is missing."""
    path = find_chromium()
    if path is None:
        given = os.environ.get("CHROMIUM")
        pytest.skip(
            f"no Chromium: CHROMIUM={given} cannot be run" if given else
            "no Chromium: install the system's package (chromium), or set CHROMIUM to its path"
        )
    return path


#: Finds where to click on ``e``: in the same place for two frames, and in front, since a page that
#: fills itself may move it; null: not yet.
_PLACE = """
  if (!e || e.disabled) return null;
  e.scrollIntoView({block: "center"});
  const frame = () => new Promise(requestAnimationFrame);
  const place = () => {
    const box = e.getBoundingClientRect();
    return [box.x + box.width / 2, box.y + box.height / 2, box.width];
  };
  const before = place();
  await frame();
  await frame();
  const after = place();
  const isInFront = e.contains(document.elementFromPoint(after[0], after[1]));
  if (!after[2] || String(before) !== String(after) || !isInFront) return null;
  window.isClickMissed = true;
  e.addEventListener("click", () => { window.isClickMissed = false; }, {once: true, capture: true});
  return after;
"""


class PageError(AssertionError):
    """A script of a test failed in the page."""


class Browser:
    """One Chromium process with a fresh profile. ``close()`` ends it."""

    def __init__(self, path: str, folder: Path) -> None:
        self._folder = folder
        with (folder / "chromium.log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    path, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run",
                    "--disable-dev-shm-usage", "--disable-background-networking",
                    "--disable-component-update", "--disable-sync", "--disable-extensions",
                    "--remote-allow-origins=*", "--remote-debugging-port=0", "--mute-audio",
                    f"--user-data-dir={folder / 'profile'}", "about:blank",
                ],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )
        try:
            port, path = wait_until(self._port, timeout=60, message="Chromium listens")
            self._socket = websocket.create_connection(
                f"ws://127.0.0.1:{port}{path}", timeout=TIMEOUT, suppress_origin=True
            )
        except BaseException:
            self._end()
            raise
        self._numbers = itertools.count(1)
        self._answers: dict[int, dict[str, Any]] = {}
        self._listeners: dict[str, Callable[[str, dict[str, Any]], None]] = {}
        self._lock = threading.Lock()

    def _port(self) -> list[str]:
        assert self._process.poll() is None, (self._folder / "chromium.log").read_text()
        try:
            lines = (self._folder / "profile" / "DevToolsActivePort").read_text().split()
        except OSError:
            return []
        return lines if len(lines) == 2 else []

    def call(self, method: str, session: str = "", **params: Any) -> dict[str, Any]:
        with self._lock:
            number = next(self._numbers)
            message = {"id": number, "method": method, "params": params}
            if session:
                message["sessionId"] = session
            self._socket.send(json.dumps(message))
            while number not in self._answers:
                self._read()
            answer = self._answers.pop(number)
        if "error" in answer:
            raise PageError(f"{method}: {answer['error']}")
        result: dict[str, Any] = answer["result"]
        return result

    def _read(self) -> None:
        message = json.loads(self._socket.recv())
        if "id" in message:
            self._answers[message["id"]] = message
            return
        listener = self._listeners.get(message.get("sessionId", ""))
        if listener is not None:
            listener(message["method"], message["params"])

    def page(self, width: int = 1280, height: int = 860) -> Page:
        """Open an empty page; its close() deletes what its site has stored.

        It is a tab: a context of its own would be a window, which takes a third of a second.
        """
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session, target)
        self._listeners[session] = page.on_event
        for domain in ("Page", "Runtime", "Log"):
            page.call(f"{domain}.enable")
        page.resize(width, height)
        return page

    def close(self) -> None:
        try:
            self.call("Browser.close")
            self._socket.close()
        except (OSError, websocket.WebSocketException):
            pass  # it is gone already
        self._end()

    def _end(self) -> None:
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Page:
    """One page. ``errors`` are the errors on its console."""

    def __init__(self, browser: Browser, session: str, target: str) -> None:
        self._browser = browser
        self._session = session
        self._target = target
        self.errors: list[str] = []

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        return self._browser.call(method, self._session, **params)

    def on_event(self, method: str, params: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.errors.append(str(details.get("exception", {}).get("description", details)))
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            entry = params["entry"]
            # A refused request is an answer that the page shows, and tests look there.
            if entry["source"] == "network":
                return
            self.errors.append(f"{entry['text']} {entry.get('url', '')}")
        elif method == "Runtime.consoleAPICalled" and params["type"] == "error":
            self.errors.append(str(params["args"]))

    def goto(self, url: str) -> None:
        self.call("Page.navigate", url=url)
        self.wait(f"document.readyState === 'complete' && location.href === {json.dumps(url)}")

    def eval(self, script: str) -> Any:
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True,
                           awaitPromise=True, userGesture=True)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise PageError(f"{script}: {details.get('exception', {}).get('description', details)}")
        return answer["result"].get("value")

    def wait(self, script: str, timeout: float = TIMEOUT) -> Any:
        def value() -> Any:
            try:
                return self.eval(script)
            except PageError as exc:
                # The page is between two documents.
                if any(word in str(exc) for word in ("context", "navigated", "null")):
                    return None
                raise

        try:
            return wait_until(value, timeout=timeout, message=script)
        except AssertionError as exc:
            text = self.eval("document.body?.innerText")
            raise AssertionError(
                f"{exc}\n--- the page:\n{text}\n--- errors: {self.errors}"
            ) from None

    def wait_text(self, selector: str, text: str, timeout: float = TIMEOUT) -> None:
        self.wait(f"(document.querySelector({json.dumps(selector)})?.innerText ?? '')"
                  f".includes({json.dumps(text)})", timeout)

    def text(self, selector: str) -> str:
        found: str = self.eval(f"document.querySelector({json.dumps(selector)}).innerText")
        return found

    def click(self, selector: str) -> None:
        """Click on the middle of an element, with the mouse.

        Try again if the page has moved it away meanwhile.
        """
        found = f"document.querySelector({json.dumps(selector)})"

        def is_hit() -> bool:
            box = self.wait(f"(async () => {{ const e = {found}; {_PLACE} }})()")
            for kind in ("mousePressed", "mouseReleased"):
                self.call("Input.dispatchMouseEvent", type=kind, x=box[0], y=box[1],
                          button="left", clickCount=1)
            # Of the next document there is no such word: the click has led there.
            return bool(self.wait("window.isClickMissed ? 'missed' : 'hit'") == "hit")

        wait_until(is_hit, timeout=TIMEOUT, message=f"a click on {selector}")

    def move_mouse(self, x: float, y: float) -> None:
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def type(self, text: str) -> None:
        self.call("Input.insertText", text=text)

    def fill(self, selector: str, text: str) -> None:
        self.click(selector)
        self.eval(f"document.querySelector({json.dumps(selector)}).select()")
        self.type(text)

    def press(self, key: str) -> None:
        code = _KEYS.get(key, ord(key.upper()) if len(key) == 1 else 0)
        text = "\r" if key == "Enter" else key if len(key) == 1 else ""
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, text=text,
                  windowsVirtualKeyCode=code)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    def resize(self, width: int, height: int, *, phone: bool = False) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=phone)

    def prefer(self, scheme: str) -> None:
        self.call("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": scheme}])

    def screenshot(self, path: Path) -> None:
        data = self.call("Page.captureScreenshot", format="png")["data"]
        path.write_bytes(base64.b64decode(data))

    def close(self) -> None:
        origin = self.eval("location.origin")
        if origin.startswith("http"):
            self.call("Storage.clearDataForOrigin", origin=origin, storageTypes="all")
        self._browser.call("Target.closeTarget", targetId=self._target)
