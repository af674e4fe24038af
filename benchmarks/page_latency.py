"""The page in a browser: the first curve of every model on a warm server, and from a key on a slider to the curve."""

import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import time

from benchmarks.timing import Result
from solvable import models

# Promised: seconds to the first curve, and from a slider to its curve.
FIRST, MOVE = 2.0, 0.4
_MOVES = 9
_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_DRAWN = """() => {
  const all = Bokeh.documents.flatMap((one) => Array.from(one._all_models.values()));
  const found = all.filter((one) => one.name === "upper-lines").at(-1);
  return found ? JSON.stringify(Array.from(found.data.ys, (one) => Array.from(one))) : "[]";
}"""


def _changed(page, before: str, most: float) -> float:
    """Seconds until other curves than before are drawn; infinite if that takes more than ``most``."""
    begin = time.perf_counter()
    while time.perf_counter() - begin < most:
        if page.evaluate(_DRAWN) != before:
            return time.perf_counter() - begin
        page.wait_for_timeout(10)
    return float("inf")


def _of_model(page, address: str, model: str) -> tuple[float, float]:
    begin = time.perf_counter()
    page.goto(f"{address}?model={model}", wait_until="domcontentloaded")
    page.wait_for_function("() => window.Bokeh?.documents?.length", timeout=60_000)
    _changed(page, "[]", 60.0)
    first = time.perf_counter() - begin
    page.wait_for_timeout(3000)
    key = models.get(model).controls.stories[0].sliders[0]
    slider = page.locator(f'[data-key="{key}"] input[type=range]').first
    taken = []
    for move in range(_MOVES):
        before = page.evaluate(_DRAWN)
        slider.press("ArrowRight" if move % 2 else "ArrowLeft")
        taken.append(_changed(page, before, 20.0))
        page.wait_for_timeout(300)
    return first, statistics.median(taken)


def run() -> list[Result]:
    from playwright.sync_api import sync_playwright

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "solvable", "explore", "--port", str(port), "--no-browser"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    address, results, outside = f"http://127.0.0.1:{port}/", [], []
    try:
        server.stdout.readline()
        _wait_until_idle(server.pid)
        with sync_playwright() as driver:
            found = next(path for path in map(shutil.which, _BROWSERS) if path)
            browser = driver.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-gpu"])
            page = browser.new_page(viewport={"width": 1440, "height": 900})
            page.on("request", lambda one: None if re.match(f"{address}|data:|blob:", one.url) else outside.append(one))
            # The first page of all loads the scripts.
            page.goto(f"{address}?model=scalar-network")
            page.wait_for_timeout(2000)
            for model in models.names():
                first, move = _of_model(page, address, model)
                print(f"{model}: first curve {first:.2f} s, slider to curve {move:.2f} s", flush=True)
                results.append(Result(f"{model}: first curve", first, "s", at_most=FIRST))
                results.append(Result(f"{model}: slider to curve", move, "s", at_most=MOVE))
            results.append(Result("requests that leave the machine", len(outside), "", at_most=0))
            browser.close()
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(20)
    return results


def _wait_until_idle(pid: int, most: float = 600.0) -> None:
    """Wait until the workers of a server have compiled all models."""
    begin, quiet, last = time.monotonic(), 0, 0.0
    while quiet < 3 and time.monotonic() - begin < most:
        time.sleep(2)
        used = _used(pid)
        quiet, last = (quiet + 1 if used - last < 0.2 else 0), used


def _used(pid: int) -> float:
    """Seconds of processor time of a process's children."""
    from pathlib import Path

    total = 0.0
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        user, system = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[11:13]
        total += (int(user) + int(system)) / 100
    return total


if __name__ == "__main__":
    for one in run():
        print(one)
