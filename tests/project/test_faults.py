"""What may happen to a process from outside, for every command that writes or serves: nothing finished is lost.

:data:`COVERED` says which test protects which command against which fault; the tests that are not elsewhere are here.
"""

import ast
import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import optax
import pytest
import xarray as xr
from paths import TESTS

import solvable
from solvable import networks, papers
from solvable.cli import main
from solvable.networks import checkpoints

PATIENCE = 120
COVERED = {
    "SIGKILL": {
        "save": "project/test_faults.py::test_saving_killed_at_random",
        "sweep": "sweeps/test_crashes.py::test_coordinator_killed_at_twenty_random_moments",
        "reproduce": "project/test_faults.py::test_a_report_that_is_killed_keeps_its_figures",
        "train": "networks/test_training.py::test_killed_at_random_and_resumed_is_the_same_bit_for_bit",
        "explore": "project/test_faults.py::test_workers_end_with_a_page_that_is_killed",
    },
    "SIGINT": {
        "save": "project/test_faults.py::test_saving_interrupted_at_random",
        "sweep": "cli/test_sweep.py::test_ctrl_c_leaves_a_store_that_resumes",
        "reproduce": "cli/test_interrupts.py::test_a_report_keeps_what_is_finished",
        "train": "networks/test_training.py::test_interrupted_and_resumed_is_the_same_bit_for_bit",
        "explore": "explorer/test_browser.py::test_z_a_lost_connection_is_said",
    },
    "full disk": {
        "save": "project/test_faults.py::test_saving_to_a_full_disk",
        "sweep": "sweeps/test_damage.py::test_a_disk_that_is_full",
        "reproduce": "project/test_faults.py::test_a_report_on_a_full_disk",
        "train": "project/test_faults.py::test_a_checkpoint_on_a_full_disk",
        "explore": "project/test_faults.py::test_a_page_needs_no_disk",
    },
    "closed pipe": {
        "save": "project/test_faults.py::test_a_closed_pipe_loses_no_file",
        "sweep": "project/test_faults.py::test_a_closed_pipe_loses_no_file",
        "reproduce": "project/test_faults.py::test_a_closed_pipe_loses_no_file",
        "train": "project/test_faults.py::test_progress_into_a_closed_pipe",
        "explore": "project/test_faults.py::test_a_closed_pipe_loses_no_file",
    },
    "read-only folder": {
        "save": "project/test_faults.py::test_saving_into_a_read_only_folder",
        "sweep": "sweeps/test_damage.py::test_an_unwritable_folder",
        "reproduce": "project/test_faults.py::test_a_report_into_a_read_only_folder",
        "train": "project/test_faults.py::test_a_checkpoint_in_a_read_only_folder_is_refused_before_training",
        "explore": "project/test_faults.py::test_a_page_needs_no_disk",
    },
    "damaged file": {
        "save": "files/test_damage.py::test_a_flipped_bit_anywhere_is_noticed",
        "sweep": "sweeps/test_damage.py::test_damage_is_found_named_and_mended",
        "reproduce": "project/test_faults.py::test_damaged_results_are_computed_again",
        "train": "project/test_faults.py::test_a_damaged_checkpoint_is_refused",
        "explore": "explorer/test_files.py::test_what_is_no_npz_is_not_even_kept",
    },
}
PAPER = {
    "__init__.py": '"""A paper."""\n',
    "errata.md": "none\n",
    "_shared.py": (
        "import xarray as xr\n"
        "from solvable.papers.claims import Claim\n"
        "from solvable.plotting import new_figure\n"
        "def curve():\n    return {'curve': xr.Dataset({'y': ('x', list(range(1000)))})}\n"
        "def claims(data):\n    return [Claim('one is one', float(data['curve'].y[1]), 1.0, 0.1, 'by definition')]\n"
        "def draw(data):\n    return new_figure()[0]\n"
    ),
    "fig1.py": (
        '"""Fig. 1."""\nfrom fake_paper._shared import claims, curve, draw\ndef compute(scale):\n    return curve()\n'
    ),
    "fig2.py": (
        '"""Fig. 2."""\nimport os, time\nfrom fake_paper._shared import claims, curve, draw as picture\n'
        "def hang(stage):\n"
        "    if os.environ.get('HANG') == stage:\n        print('ready', flush=True)\n        time.sleep(1000)\n"
        "def compute(scale):\n    hang('compute')\n    return curve()\n"
        "def draw(data):\n    hang('draw')\n    return picture(data)\n"
    ),
}
# The command line of a process whose only paper is the one above.
COMMAND = (
    "import sys\nsys.path.insert(0, sys.argv.pop(1))\nfrom solvable import cli, papers\n"
    "papers._PAPERS.clear()\npapers._PAPERS['paper'] = 'fake_paper'\ncli.main()\n"
)
WRITING = """
import os, sys, numpy as np, xarray as xr
from solvable.files import save
def write(path):
    datasets = [xr.Dataset({"y": ("x", np.full(3000, value))}, {"x": np.arange(3000.0)}) for value in (1.0, 2.0)]
    save(datasets[0], path)
    print("ready", os.getpid(), flush=True)
    while True:
        for dataset in datasets:
            save(dataset, path)
"""
# A process that writes until it is interrupted.
SAVING = (
    WRITING
    + """
try:
    write(sys.argv[1])
except KeyboardInterrupt:
    pass
"""
)
# Imports once, and makes a copy of itself for every path that it reads, which writes until it is killed.
COPIES = (
    WRITING
    + """
for line in sys.stdin:
    child = os.fork()
    if not child:
        write(line.strip())
    os.waitpid(child, 0)
    print("ended", flush=True)
"""
)
ENDINGS = (".nc", ".npz", ".csv", ".zarr")


def test_every_fault_is_covered_for_every_command() -> None:
    commands = {"save", "sweep", "reproduce", "train", "explore"}
    for fault, tests in COVERED.items():
        assert set(tests) == commands, fault
        for test in tests.values():
            file, name = test.split("::")
            tree = ast.parse((TESTS / file).read_text("utf-8"))
            functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
            assert name in functions, test


def dataset(value: float = 1.0) -> xr.Dataset:
    return xr.Dataset({"y": ("x", np.full(3000, value))}, {"x": np.arange(3000.0)})


def start(code: str, *arguments: object, **more: object) -> subprocess.Popen:
    environment = {**os.environ, **dict(more.pop("env", {}))}  # type: ignore[call-overload]
    command = [sys.executable, "-c", code, *map(str, arguments)]
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **more}
    return subprocess.Popen(command, env=environment, **options)  # type: ignore[call-overload]


def until_ready(process: subprocess.Popen) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("ready"):
            return
    pytest.fail(str(process.communicate()[1]))


@pytest.fixture
def paper(tmp_path: Path) -> Path:
    folder = tmp_path / "packages" / "fake_paper"
    folder.mkdir(parents=True)
    for name, text in PAPER.items():
        (folder / name).write_text(text)
    return folder.parent


def reproduce(paper: Path, out: Path, **more: object) -> subprocess.CompletedProcess:
    process = start(COMMAND, paper, "reproduce", "paper", "--out", out, **more)
    out_text, errors = process.communicate(timeout=PATIENCE)
    return subprocess.CompletedProcess([], process.returncode, out_text, errors)


@contextlib.contextmanager
def mounted(folder: Path, options: str) -> Iterator[Path]:
    """A file system in memory, where the machine lets us mount one."""
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], capture_output=True)
    if done.returncode:
        pytest.skip("mounting a file system is not allowed here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk with little room, though more than the 64 kB that are asked for before the work."""
    with mounted(tmp_path / "disk", "size=200k") as folder:
        yield folder


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path / "locked", "size=1m") as folder:
        subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
        yield folder


# save -----------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def writers() -> Iterator[subprocess.Popen]:
    process = start(COPIES, stdin=subprocess.PIPE, stderr=None)
    yield process
    process.communicate(timeout=PATIENCE)


@pytest.mark.parametrize("ending", ENDINGS)
def test_saving_killed_at_random(writers: subprocess.Popen, tmp_path: Path, ending: str) -> None:
    """Whenever the process is killed, there is one of the two datasets, whole."""
    path = tmp_path / f"data{ending}"
    assert writers.stdin is not None
    assert writers.stdout is not None
    writers.stdin.write(f"{path}\n")
    writers.stdin.flush()
    process = int(writers.stdout.readline().removeprefix("ready "))
    time.sleep(float(np.random.default_rng(len(ending)).uniform(0.02, 0.2)))
    os.kill(process, signal.SIGKILL)
    assert writers.stdout.readline() == "ended\n"
    found = solvable.load(path)
    assert any(found.identical(dataset(value)) for value in (1.0, 2.0))


def interrupted(process: subprocess.Popen) -> str:
    """What the process said on stderr after Ctrl-C, which is repeated where Python loses it.

    An exception that is raised in the callback of a weak reference, such as those of h5py, is printed and ignored.
    """
    for _ in range(PATIENCE // 10):
        process.send_signal(signal.SIGINT)
        try:
            return process.communicate(timeout=10)[1]
        except subprocess.TimeoutExpired:
            continue
    process.kill()
    return process.communicate()[1]


@pytest.mark.parametrize("ending", ENDINGS)
def test_saving_interrupted_at_random(tmp_path: Path, ending: str) -> None:
    """The same for Ctrl-C, after which no temporary file is left."""
    path = tmp_path / f"data{ending}"
    process = start(SAVING, path)
    until_ready(process)
    time.sleep(float(np.random.default_rng(len(ending)).uniform(0.02, 0.2)))
    errors = interrupted(process)
    assert process.returncode == 0, errors
    found = solvable.load(path)
    assert any(found.identical(dataset(value)) for value in (1.0, 2.0))
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("ending", ENDINGS)
def test_saving_to_a_full_disk(small_disk: Path, ending: str) -> None:
    """The old file stays as it was; the error is one line; nothing is left over."""
    path = small_disk / f"data{ending}"
    old = xr.Dataset({"y": ("x", [1.0, 2.0])})
    solvable.save(old, path)
    before = sorted(small_disk.rglob("*"))
    noise = np.random.default_rng(0).normal(size=60_000)
    with pytest.raises((ValueError, OSError), match=re.escape(path.name)) as caught:
        solvable.save(xr.Dataset({"y": ("x", noise)}), path)
    assert "\n" not in str(caught.value)
    assert solvable.load(path).identical(old)
    assert sorted(small_disk.rglob("*")) == before


@pytest.mark.parametrize("ending", ENDINGS)
def test_saving_into_a_read_only_folder(read_only: Path, ending: str) -> None:
    with pytest.raises(ValueError, match="cannot write") as caught:
        solvable.save(dataset(), read_only / f"data{ending}")
    assert "\n" not in str(caught.value)


# The command line into a closed pipe ----------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["save", "sweep", "reproduce", "explore"])
def test_a_closed_pipe_loses_no_file(paper: Path, tmp_path: Path, command: str) -> None:
    """Standard output is closed before anything is written to it, as by ``| true``: files come, no traceback does."""
    port = free_port()
    arguments, file = {
        "save": (["predict", "scalar-network", "--times", "1,2", "--out", "data.npz"], "data.npz"),
        "sweep": (
            ["sweep", "scalar-network", "--over", "target=1,2", "--option", "times=1,2", "--out", "data.npz"],
            "data.npz",
        ),
        "reproduce": (["reproduce", "paper", "fig1", "--out", "."], "index.html"),
        "explore": (["explore", "--no-browser", "--no-warm-up", "--port", str(port)], None),
    }[command]
    reader, writer = os.pipe()
    process = start(COMMAND, paper, *arguments, stdout=writer, cwd=tmp_path)
    os.close(reader)
    os.close(writer)
    if file is None:
        # A page whose address nobody reads is served all the same.
        wait_for_page(process, port)
        process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=PATIENCE)
    assert "Traceback" not in errors
    assert "Broken pipe" not in errors
    if file is not None:
        assert (tmp_path / file).stat().st_size > 0


# reproduce ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", ["compute", "draw"])
def test_a_report_that_is_killed_keeps_its_figures(paper: Path, tmp_path: Path, stage: str) -> None:
    """The first figure is not computed again; nor is the second one, if its datasets were saved."""
    out = tmp_path / "out"
    process = start(COMMAND, paper, "reproduce", "paper", "--out", out, env={"HANG": stage})
    until_ready(process)
    process.kill()
    process.communicate()
    saved = out / "fig2.data.json"
    assert saved.exists() == (stage == "draw")
    before = saved.read_bytes() if saved.exists() else b""
    done = reproduce(paper, out)
    assert done.returncode == 0, done.stderr
    assert "[2/2] paper fig2" in done.stderr
    assert "fig1 …" not in done.stderr, "the first figure was finished and is not computed again"
    assert (saved.read_bytes() == before) == (stage == "draw")


def test_a_report_on_a_full_disk(paper: Path, small_disk: Path) -> None:
    """The figure that finds no room is reported as such, in one line, and leaves nothing; with room the run goes on."""
    (small_disk / "ballast").write_bytes(bytes(110_000))
    done = reproduce(paper, small_disk / "out")
    assert done.returncode in (1, 2)
    assert "Traceback" not in done.stderr
    assert re.search("No space left|disk is full|bytes free", done.stderr)
    assert not list((small_disk / "out").glob(".*"))
    subprocess.run(["mount", "-o", "remount,size=4m", small_disk], check=True)
    assert reproduce(paper, small_disk / "out").returncode == 0


def test_a_report_into_a_read_only_folder(paper: Path, read_only: Path) -> None:
    done = reproduce(paper, read_only / "out")
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert "fig1" not in done.stderr, "the folder is checked before the work"


def test_damaged_results_are_computed_again(
    paper: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """A flipped byte in the record, the picture or the data of a figure."""
    monkeypatch.syspath_prepend(paper)
    monkeypatch.setattr(papers, "_PAPERS", {"paper": "fake_paper"})
    out = tmp_path / "out"

    def run() -> str:
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            main(["reproduce", "paper", "--out", str(out)])
        assert not stop.value.code
        return capsys.readouterr().err

    assert "paper fig2 …" in run()
    assert "…" not in run(), "what is whole is not computed again"
    victims = sorted(path for path in out.iterdir() if path.name.startswith("fig1"))
    assert {path.suffix for path in victims} >= {".json", ".png"}
    assert len(victims) == 4
    # The record of the datasets is not needed while the figure is whole.
    for victim in (path for path in victims if path.name != "fig1.data.json"):
        damaged = bytearray(victim.read_bytes())
        damaged[len(damaged) // 2] ^= 0xFF
        victim.write_bytes(bytes(damaged))
        said = run()
        assert "paper fig1 …" in said
        assert "fig2 …" not in said
        assert victim.read_bytes() != bytes(damaged)


# train ----------------------------------------------------------------------------------------------------------------


def train(checkpoint: Path, steps: int = 5, **more: object) -> networks.Training:
    inputs = np.linspace(-1, 1, 16)[:, None]
    data = networks.Fixed(inputs, np.sin(inputs))
    return networks.train(
        lambda key: networks.MLP(1, 1, 256, 3, key=key),
        data,
        optax.sgd(0.1),
        steps=steps,
        measure_at=[0, steps],
        checkpoint=checkpoint,
        checkpoint_seconds=0.0,
        **more,  # type: ignore[arg-type]
    )


def test_a_checkpoint_on_a_full_disk(small_disk: Path) -> None:
    (small_disk / "ballast").write_bytes(bytes(110_000))
    with pytest.raises(OSError, match="No space left"):
        train(small_disk / "state.npz")
    assert [entry.name for entry in small_disk.iterdir()] == ["ballast"]


def test_a_checkpoint_in_a_read_only_folder_is_refused_before_training(
    read_only: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(networks.training, "initialise", lambda recipe: pytest.fail("training began"))
    with pytest.raises(ValueError, match="cannot write"):
        train(read_only / "state.npz")


def test_a_damaged_checkpoint_is_refused(tmp_path: Path) -> None:
    """A flipped byte anywhere is found, or changes nothing (the archive has bytes that nobody reads)."""
    path = tmp_path / "state.npz"
    state = {"weight": np.arange(6.0), "count": np.array(3)}
    checkpoints.write(path, "mark", 7, state, {"loss": np.array([1.0, 0.5])})
    whole = path.read_bytes()
    refused = 0
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 0xFF
        path.write_bytes(bytes(damaged))
        try:
            step, found, measured = checkpoints.read(path, "mark", state) or (0, {}, {})
        except ValueError as error:
            refused += "delete it to start again" in str(error)
            continue
        assert step == 7
        np.testing.assert_array_equal(found["weight"], state["weight"])
        np.testing.assert_array_equal(found["count"], state["count"])
        np.testing.assert_array_equal(measured["loss"], [1.0, 0.5])
    assert refused > len(whole) / 2


def test_progress_into_a_closed_pipe() -> None:
    """Nobody reads the lines that say how far a training is; it goes on."""
    code = (
        "import sys, time\nfrom solvable import progress\n"
        "progress.FIRST_LINE = progress.LINE_INTERVAL = 0.01\n"
        "with progress.progress_bar('training', 2) as advance:\n"
        "    for _ in range(2):\n        time.sleep(0.1)\n        advance()\n"
        "print('finished')\n"
    )
    reader, writer = os.pipe()
    process = start(code, stderr=writer)
    os.close(reader)
    os.close(writer)
    assert process.communicate(timeout=PATIENCE)[0] == "finished\n"


# explore --------------------------------------------------------------------------------------------------------------


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for_page(process: subprocess.Popen, port: int) -> None:
    """Until the server answers; it may still be importing."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError):
            assert urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=PATIENCE).status == 200
            return
        time.sleep(0.05)
    pytest.fail(f"the page was not served, exit code {process.poll()}")


def children(pid: int) -> set[int]:
    return {int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}


def is_running(pid: int) -> bool:
    """Whether a process runs; one that has ended and is waited for by nobody does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def eventually(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return False


def test_workers_end_with_a_page_that_is_killed() -> None:
    port = free_port()
    process = start(COMMAND, ".", "explore", "--no-browser", "--no-warm-up", "--port", port)
    try:
        wait_for_page(process, port)
        workers = children(process.pid)
        assert workers
    finally:
        process.kill()
        process.communicate()
    assert eventually(lambda: not any(map(is_running, workers)))


def test_a_page_needs_no_disk(read_only: Path) -> None:
    """Started in a folder where nothing can be written, with a full disk for its temporary files' cache."""
    port = free_port()
    process = start(COMMAND, ".", "explore", "--no-browser", "--no-warm-up", "--port", port, cwd=read_only)
    try:
        wait_for_page(process, port)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    assert process.returncode == 0
    assert "Traceback" not in errors
