"""A headless Chromium driven through its own protocol, without the network: enough to use a page as a person does."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any, Self

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--window-size=1280,1000", "--remote-debugging-pipe", "--no-first-run",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1", "about:blank",
)  # fmt: skip
_PATIENCE = 90


class Browser:
    """One tab, reached through pipes. ``asked`` are the addresses of everything that it wanted to load."""

    def __init__(self, folder: Path) -> None:
        assert CHROMIUM is not None
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        call = ["bash", "-c", f'exec "$0" "$@" 3<&{theirs_in} 4>&{theirs_out}', CHROMIUM, *_FLAGS, f"--user-data-dir={folder}"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen(call, pass_fds=(theirs_in, theirs_out), **quiet)
        os.close(theirs_in)
        os.close(theirs_out)
        self.asked: list[str] = []
        self._count, self._read, self._tab = 0, b"", {}

    def __enter__(self) -> Self:
        [tab] = [one for one in self.call("Target.getTargets")["targetInfos"] if one["type"] == "page"]
        self._tab = {"sessionId": self.call("Target.attachToTarget", targetId=tab["targetId"], flatten=True)["sessionId"]}
        for domain in ("Page", "Network", "DOM"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(30)
        os.close(self._out)
        os.close(self._in)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """One call of the protocol; what the page asks for meanwhile is noted."""
        self._count += 1
        os.write(self._out, json.dumps({"id": self._count, "method": method, "params": params, **self._tab}).encode() + b"\0")
        while True:
            found = self._message()
            if found.get("method") == "Network.requestWillBeSent":
                self.asked.append(found["params"]["request"]["url"])
            if found.get("id") == self._count:
                assert "error" not in found, found["error"]
                result: dict[str, Any] = found["result"]
                return result

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._read:
            assert select.select([self._in], [], [], _PATIENCE)[0], "Chromium does not answer"
            data = os.read(self._in, 1 << 20)
            assert data, "Chromium has gone"
            self._read += data
        line, _, self._read = self._read.partition(b"\0")
        found: dict[str, Any] = json.loads(line)
        return found

    def js(self, code: str) -> Any:
        """The value of an expression in the page."""
        result = self.call("Runtime.evaluate", expression=code, returnByValue=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def wait(self, code: str, what: str = "") -> Any:
        """The value of an expression once it is true."""
        return self._until(lambda: self.js(code), what or code)

    def type(self, selector: str, text: str) -> None:
        """Focus a field and type."""
        self.js(f"document.querySelector({selector!r}).focus()")
        self.call("Input.insertText", text=text)

    def click(self, selector: str) -> None:
        self.js(f"document.querySelector({selector!r}).click()")

    def upload(self, selector: str, file: Path) -> None:
        """Give a file to a file input."""
        root = self.call("DOM.getDocument")["root"]["nodeId"]
        node = self.call("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.call("DOM.setFileInputFiles", nodeId=node, files=[str(file)])

    def screenshot(self, file: Path) -> None:
        file.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", captureBeyondViewport=True)["data"]))

    def _until(self, found: Any, what: str) -> Any:
        end = time.monotonic() + _PATIENCE
        while time.monotonic() < end:
            if value := found():
                return value
            time.sleep(0.1)
        raise AssertionError(f"in vain waited for: {what}")
