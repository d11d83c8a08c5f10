"""A headless Chromium that tests drive through its DevTools pipe; nothing but the program itself is needed."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

CHROMIUM = next((p for name in ("chromium", "chromium-browser", "google-chrome") if (p := shutil.which(name))), None)
_WAIT = 60.0
_OFFLINE = "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1"


class Browser:
    """One process with one tab; to be closed. Sizes are in CSS pixels."""

    def __init__(self, folder: Path) -> None:
        own_read, their_write = os.pipe()
        their_read, own_write = os.pipe()
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars", _OFFLINE]
        # The pipe's ends are numbers 3 and 4 in the browser.
        wired = f'exec 3<&{their_read} 4>&{their_write} && exec "$@"'
        command = ["bash", "-c", wired, "-", str(CHROMIUM), *flags, "--remote-debugging-pipe", f"--user-data-dir={folder}"]
        self._process = subprocess.Popen(
            command,
            pass_fds=(their_read, their_write),
            env={**os.environ, "HOME": str(folder)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(their_read)
        os.close(their_write)
        self._read, self._write = own_read, own_write
        self._rest, self._number = b"", 0
        self._session: str | None = None
        self.messages: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "DOM"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """One command and its result; raises RuntimeError with what the browser says against it."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            reply = self._next()
            if reply.get("id") == self._number:
                if "error" in reply:
                    raise RuntimeError(f"{method}: {reply['error']}")
                result: dict[str, Any] = reply["result"]
                return result
            if "id" not in reply:
                self.messages.append(reply)

    def _next(self) -> dict[str, Any]:
        end = time.monotonic() + _WAIT
        while b"\0" not in self._rest:
            if not select.select([self._read], [], [], max(end - time.monotonic(), 0))[0]:
                raise TimeoutError(f"no reply of the browser in {_WAIT:.0f} s")
            more = os.read(self._read, 1 << 20)
            if not more:
                raise RuntimeError("the browser is gone")
            self._rest += more
        text, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(text)
        return found

    def run(self, script: str) -> Any:
        """The value of an expression, awaited where it is a promise; raises RuntimeError where it throws."""
        result = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(str(result["exceptionDetails"].get("exception", {}).get("description")))
        return result["result"].get("value")

    def until(self, script: str) -> Any:
        """The value of an expression as soon as it is true."""
        end = time.monotonic() + _WAIT
        while time.monotonic() < end:
            value = self.run(script)
            if value:
                return value
            time.sleep(0.02)
        raise TimeoutError(f"not true within {_WAIT:.0f} s: {script}")

    def visit(self, address: str) -> None:
        """Leave for an address, whose script says nothing of its own when it is ready."""
        self.messages.clear()
        self.call("Page.navigate", url=address)

    def type(self, selector: str, text: str) -> None:
        """Focus a field and type."""
        self.run(f"document.querySelector({selector!r}).focus()")
        self.call("Input.insertText", text=text)

    def click(self, selector: str) -> None:
        """Click what a selector finds."""
        self.run(f"document.querySelector({selector!r}).click()")

    def upload(self, selector: str, file: Path) -> None:
        """Give a file to a file input."""
        root = self.call("DOM.getDocument")["root"]["nodeId"]
        node = self.call("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.call("DOM.setFileInputFiles", nodeId=node, files=[str(file)])

    def open(self, page: Path, fragment: str = "") -> None:
        """Load a page anew and wait until its script has drawn it."""
        self.call("Page.navigate", url="about:blank")
        self.until("location.href === 'about:blank'")
        self.messages.clear()
        self.call("Page.navigate", url=page.as_uri() + fragment)
        self.until("document.body && document.body.dataset.ready === 'yes'")

    @property
    def complaints(self) -> list[str]:
        """What the page's console has to complain of: errors, and what the policy kept from loading."""
        entries = [m["params"]["entry"] for m in self.messages if m["method"] == "Log.entryAdded"]
        thrown = [str(m["params"]) for m in self.messages if m["method"] == "Runtime.exceptionThrown"]
        return [f"{e['source']}: {e['text']}" for e in entries] + thrown

    @property
    def requested(self) -> list[str]:
        """Addresses that the page asked for, data URIs aside."""
        sent = [m["params"]["request"]["url"] for m in self.messages if m["method"] == "Network.requestWillBeSent"]
        return [url for url in sent if not url.startswith("data:")]

    def size(self, width: int, height: int, dark: bool = False, scale: float = 1) -> None:
        """Of the window, and which colours the reader prefers."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def shot(self, file: Path, whole: bool = False) -> None:
        """A picture of the window, or of the whole page."""
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        file.write_bytes(base64.b64decode(data))

    def pdf(self, file: Path) -> None:
        """The page as it is printed, on A4."""
        options = {"paperWidth": 8.27, "paperHeight": 11.69, "preferCSSPageSize": False, "printBackground": True}
        file.write_bytes(base64.b64decode(self.call("Page.printToPDF", **options)["data"]))

    def close(self) -> None:
        """End the browser."""
        try:
            self._session = None
            self.call("Browser.close")
        except (OSError, RuntimeError, TimeoutError):
            self._process.kill()
        self._process.wait(timeout=30)
        os.close(self._read)
        os.close(self._write)
