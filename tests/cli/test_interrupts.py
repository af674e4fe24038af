"""Ctrl-C: the process ends soon and with exit code 130 whatever the main thread does, and what is finished is kept.

The compiled program that the interrupts meet here runs for ever: without the watchdog these tests would time out.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

PATIENCE = 120
ENDLESS = """
import jax, jax.numpy as jnp
jax.config.update("jax_cpu_enable_async_dispatch", {asynchronous})
run_for_ever = jax.jit(lambda x: jax.lax.while_loop(lambda y: y[0, 0] >= 0, lambda y: y @ y / y.sum() + 1, x))
compiled = run_for_ever.lower(jnp.ones((8, 8))).compile()
"""
FIGURE = """
import xarray as xr
from solvable.papers.claims import Claim
from solvable.plotting import new_figure

def compute(scale):
    return {"curve": xr.Dataset({"y": ("x", [1.0])})}

def claims(data):
    return [Claim("one is one", float(data["curve"].y[0]), 1.0, 0.1, "by definition")]

def draw(data):
    return new_figure()[0]
"""


def start(code: str, *arguments: object, ignore: bool = False) -> subprocess.Popen:
    """A Python process that says "ready" when the interrupt may come."""
    handler = signal.SIG_IGN if ignore else signal.SIG_DFL
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, handler),
    )


def interrupt(process: subprocess.Popen) -> tuple[int, str]:
    """Wait until the process is ready, interrupt it, and give its exit code and what it said on stderr."""
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if line.strip() == "ready":
                break
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    return process.returncode, errors


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_compiled_program_that_never_ends(asynchronous: bool) -> None:
    """Synchronous: the main thread hears of nothing. Asynchronous: Python shuts down while the program runs."""
    code = ENDLESS.format(asynchronous=asynchronous) + (
        "import sys, time\nfrom solvable import cli\nfrom solvable.cli import app\n"
        "def work(json):\n"
        "    print('ready', flush=True)\n"
        "    running = compiled(jnp.ones((8, 8)))\n"
        "    time.sleep(1000)\n"
        "from solvable.cli import commands\n"
        "commands.show_models = work\n"
        "sys.argv = ['solvable', 'models']\n"
        "cli.main()\n"
    )
    returned, errors = interrupt(start(code))
    assert returned == 130
    assert errors.splitlines()[-1:] == ["interrupted"]
    assert "Traceback" not in errors


# A library that turns the interrupt into an error of its own, as JAX does inside callbacks of compiled programs.
CONVERTED = """
import time
def compute(scale):
    try:
        print('ready', flush=True)
        time.sleep(1000)
    except KeyboardInterrupt:
        raise RuntimeError("the program was cancelled") from None
"""


@pytest.mark.parametrize(
    "second",
    [
        # By now JAX dispatches asynchronously, whatever its configuration says: what is returned must be waited for.
        ENDLESS.format(asynchronous=False)
        + "\ndef compute(scale):\n    ones = jnp.ones((8, 8))\n    print('ready', flush=True)\n"
        + "    return compiled(ones).block_until_ready()\n",
        CONVERTED,
    ],
    ids=["endless", "converted"],
)
def test_a_report_keeps_what_is_finished(tmp_path: Path, second: str) -> None:
    """The second of two figures never ends; the first is kept, and the run says so."""
    folder = tmp_path / "fake_paper"
    folder.mkdir()
    (folder / "__init__.py").write_text('"""A paper."""\n')
    (folder / "errata.md").write_text("none\n")
    (folder / "fig1.py").write_text('"""Fig. 1."""\n' + FIGURE)
    (folder / "fig2.py").write_text('"""Fig. 2."""\n' + FIGURE + second)
    code = (
        "import sys\n"
        f"sys.path.insert(0, {str(tmp_path)!r})\n"
        "from solvable import cli, papers\n"
        "papers._PAPERS.clear()\npapers._PAPERS['paper'] = 'fake_paper'\n"
        "sys.argv = ['solvable', 'reproduce', 'paper', '--out', sys.argv[1]]\n"
        "cli.main()\n"
    )
    out = tmp_path / "out"
    returned, errors = interrupt(start(code, out))
    assert returned == 130, errors
    assert "stopped: 1 of 2 figures are finished and kept in" in errors
    assert json.loads((out / "fig1.json").read_text())["claims"][0]["passed"]
    assert "Fig. 1" in (out / "index.html").read_text()
    assert not list(out.glob(".*"))


def test_an_interrupt_in_python_code_unwinds() -> None:
    """Where the main thread reacts, ``finally`` blocks run as usual."""
    code = (
        "import sys, time\nfrom solvable.cli import interrupts\n"
        "with interrupts.prompt_interrupts():\n"
        "    try:\n"
        "        try:\n            print('ready', flush=True)\n            time.sleep(1000)\n"
        "        finally:\n            print('unwound', file=sys.stderr)\n"
        "    except KeyboardInterrupt:\n        interrupts.leave(130)\n"
    )
    assert interrupt(start(code)) == (130, "unwound\n")


def test_an_interrupt_that_is_lost_in_a_callback() -> None:
    """An exception in a callback of the garbage collector is printed and forgotten, and the work goes on."""
    code = (
        "import time\nfrom solvable.cli import interrupts\n"
        "interrupts.CLEAN_UP = 1e6\n"
        "with interrupts.prompt_interrupts():\n"
        "    try:\n        print('ready', flush=True)\n        time.sleep(1000)\n"
        "    except KeyboardInterrupt:\n        pass\n"
        "    time.sleep(1000)\n"
    )
    assert interrupt(start(code)) == (130, "interrupted\n")


def test_a_clean_up_that_hangs_is_ended_by_a_second_interrupt() -> None:
    code = (
        "import time\nfrom solvable.cli import interrupts\n"
        "with interrupts.prompt_interrupts():\n"
        "    try:\n        print('ready', flush=True)\n        time.sleep(1000)\n"
        "    finally:\n        print('ready', flush=True)\n        time.sleep(1000)\n"
    )
    process = start(code)
    assert process.stdout is not None
    try:
        for _ in range(2):
            assert process.stdout.readline() == "ready\n"
            process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 130
    finally:
        process.kill()


def test_a_background_job_goes_on_ignoring_interrupts() -> None:
    """A shell starts jobs in the background with SIGINT ignored, so that Ctrl-C in the foreground does not end them."""
    code = (
        "import os, signal\nfrom solvable.cli import interrupts\n"
        "with interrupts.prompt_interrupts():\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n    print('ready', flush=True)\n    input()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    )
    assert process.communicate("\n", timeout=PATIENCE)[0] == "ready\n"
    assert process.returncode == 0


def test_nothing_is_left_behind() -> None:
    """After the body, signals are handled as before, and no thread or open file remains."""
    code = (
        "import os, signal, threading\nfrom solvable.cli import interrupts\n"
        "before = len(os.listdir('/proc/self/fd'))\n"
        "for _ in range(3):\n"
        "    with interrupts.prompt_interrupts():\n"
        "        assert signal.getsignal(signal.SIGINT).__name__ == 'interrupt'\n"
        "for thread in threading.enumerate():\n    if thread.name == 'interrupts':\n        thread.join()\n"
        "assert signal.getsignal(signal.SIGINT) is signal.default_int_handler\n"
        "assert signal.set_wakeup_fd(-1) == -1\n"
        "assert len(os.listdir('/proc/self/fd')) == before\n"
    )
    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("open files are counted through /proc")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
