"""A real browser without a window, driven by the WebDriver protocol and nothing else."""

import base64
import json
import re
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

DEADLINE_SECONDS = 180
ARGUMENTS = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync",
             "--disable-background-networking", "--disable-component-update")  # fmt: skip


class Browser:
    """Chromium with a profile of its own."""

    def __init__(self, folder: Path) -> None:
        programs = {name: shutil.which(name) for name in ("chromium", "chromedriver")}
        missing = [name for name, path in programs.items() if path is None]
        assert not missing, (
            f"{' and '.join(missing)} not found; on Debian: "
            f"apt-get update && apt-get install chromium chromium-driver"
        )
        self._driver = subprocess.Popen(
            [str(programs["chromedriver"]), "--port=0"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._driver.stdout is not None
        said = ""
        while not (found := re.search(r"started successfully on port (\d+)", said)):
            line = self._driver.stdout.readline()
            assert line, f"chromedriver ended: {said}"
            said += line
        self._address = f"http://127.0.0.1:{found[1]}/session"
        arguments = [*ARGUMENTS, f"--user-data-dir={folder}"]
        options = {"args": arguments, "binary": programs["chromium"]}
        made = self._call("", {"capabilities": {"alwaysMatch": {"goog:chromeOptions": options}}})
        self._address += f"/{made['sessionId']}"

    def _call(self, path: str, body: dict[str, Any] | None = None, method: str = "POST") -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._address + path, data=data, method=method)
        with urllib.request.urlopen(request, timeout=DEADLINE_SECONDS) as reply:
            return json.load(reply)["value"]

    def size(self, width: int, height: int) -> None:
        """Set the size of the window."""
        self._call("/window/rect", {"width": width, "height": height})

    def open(self, url: str) -> None:
        """Open a page anew, also where only the part after # differs."""
        self._call("/url", {"url": "about:blank"})
        self._call("/url", {"url": url})

    def run(self, script: str) -> Any:
        """Return what a script in the page returns."""
        return self._call("/execute/sync", {"script": script, "args": []})

    def text(self) -> str:
        """Return what the page shows."""
        return str(self.run("return document.body.innerText"))

    def until(self, script: str) -> Any:
        """Return what the script returns as soon as that is something."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not (found := self.run(script)):
            assert time.monotonic() < deadline, f"{script}\nin vain; the page says: {self.text()}"
            time.sleep(0.2)
        return found

    def until_text(self, *words: str) -> None:
        """Wait until the page shows all these words."""
        wanted = json.dumps(words)
        self.until(f"return {wanted}.every((w) => document.body.innerText.includes(w))")

    def switch_to_frame(self) -> None:
        """Go on inside the first frame of the page."""
        self._call("/frame", {"id": 0})

    def picture(self) -> bytes:
        """Return what the window shows, as PNG."""
        return base64.b64decode(self._call("/screenshot", method="GET"))

    def close(self) -> None:
        """End the browser and its driver."""
        self._call("", method="DELETE")
        self._driver.terminate()
        self._driver.wait()
        assert self._driver.stdout is not None
        self._driver.stdout.close()


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    made = Browser(tmp_path_factory.mktemp("browser"))
    yield made
    made.close()
