"""The workers behind a page: their answers, their queue, their isolation, and the memory of compiled programs."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import jax
import pytest

import solvable
from solvable.explorer import programs, tasks
from solvable.explorer.programs import ProgramMemory
from solvable.precision import in_float64
from solvable.settings import Setting, fields_of, theory_of

QUICK = {"target": "1.3", "initial_first": "0.4,-0.25", "initial_second": "0.3,0.2", "times": "0:8:9"}
READS_MEMORY = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads memory from /proc")


def network_setting() -> Setting:
    return Setting("scalar-network", QUICK)


def _ask(pool: object, task: str, payload: dict, heavy: bool = False) -> tuple[object, dict]:
    job = pool.submit(task, payload, heavy)
    answer: dict = {"over": threading.Event()}
    job.on_done = lambda result, notes: (answer.update(result=result), answer["over"].set())
    job.on_failed = lambda words: (answer.update(words=words), answer["over"].set())
    pool.begin(job)
    return job, answer


# The tests in a browser run workers, stop and replace them, always; what is here alone is the limit on their time.
@pytest.mark.slow
def test_workers_answer_refuse_and_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("panel")
    from solvable.explorer import workers

    pool = workers.Workers(1)
    try:
        setting = network_setting()
        payload = {"model": setting.model, "texts": dict(setting.texts)}
        _, fine = _ask(pool, "theory", payload)
        _, wrong = _ask(pool, "theory", {"model": "scalar-network", "texts": {"target": "none"}})
        assert fine["over"].wait(60)
        assert wrong["over"].wait(60)
        assert fine["result"]["curves"].equals(theory_of(setting)), "another process, the same numbers"
        assert "target must be a finite number" in wrong["words"]
        # Work that neither ends nor listens: longer than it may take, then ended with its process.
        endless = {"model": "scalar-network", "texts": {"training": "descent", "times": "0:1e9:2"}}
        monkeypatch.setitem(workers.SECONDS, "simulation", 0.5)
        before = [worker.process.pid for worker in pool._workers]
        _, late = _ask(pool, "simulation", endless, heavy=True)
        assert late["over"].wait(60)
        assert "stopped after 0.5 seconds" in late["words"]
        _, again = _ask(pool, "theory", payload)
        assert again["over"].wait(60)
        assert again["result"]["curves"].equals(fine["result"]["curves"])
        assert [worker.process.pid for worker in pool._workers] != before
    finally:
        pool.close()
    assert not Path(pool.cache).exists()


def _drive(pool: object, moves: int) -> list[int]:
    """Ask for theory and cards along a slider, one after the other as a page does; the memory after each move."""
    held: list[int] = []
    stops = [text for text in fields_of("scalar-network")["target"].slider.stops() if text != "0"]
    for move in range(moves):
        texts = {**QUICK, "target": stops[move % len(stops)], "times": f"0:8:{5 + move % 40}"}
        for task in ("theory", "cards"):
            _, answer = _ask(pool, task, {"model": "scalar-network", "texts": texts})
            assert answer["over"].wait(120)
            assert "result" in answer, answer
        held.append(max(_resident(worker.process.pid) for worker in pool._workers))
    return held


def _resident(process: int) -> int:
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        # It has just been replaced.
        return 0


@READS_MEMORY
def test_a_worker_that_has_grown_is_replaced_without_losing_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a limit that every worker exceeds, fresh ones take over, and every question is answered all the same."""
    from solvable.explorer import workers

    monkeypatch.setattr(workers, "MOST_MEMORY", 1)
    monkeypatch.setattr(workers, "_GROWTH", 0.0)
    pool = workers.Workers(1)
    try:
        pool.start()
        first = pool._workers[0].process
        until = time.monotonic() + 300
        while first.poll() is None:
            assert time.monotonic() < until, "the worker is not replaced"
            _drive(pool, 1)
        _drive(pool, 1)
        assert len(pool._workers) == 1
    finally:
        pool.close()


def test_the_second_slow_calculation_sees_its_place_in_the_queue() -> None:
    from solvable.explorer import workers
    from solvable.explorer.markup import queue_words

    pool = workers.Workers(2)
    given: list[tuple[object, object]] = []
    pool._workers = [SimpleNamespace(job=None, models=set(), end=lambda: None, successor=None) for _ in range(2)]
    for worker in pool._workers:
        worker.give = lambda job, worker=worker: (given.append((worker, job)), setattr(worker, "job", job))
    said: list[tuple[int, int]] = []
    jobs = [pool.submit("theory", {}, heavy=place != 3) for place in range(4)]
    try:
        for place, job in enumerate(jobs):
            job.on_waiting = lambda before, place=place: said.append((place, before))
            pool.begin(job)
        # One worker is kept for quick work, which does not wait for the others.
        assert [job for _, job in given] == [jobs[0], jobs[3]]
        assert said == [(1, 1), (2, 2)]
        given[0][0].job = None
        pool._assign()
        assert said[2:] == [(2, 1)]
        assert queue_words(1) == "waiting in the queue, 1 slow calculation before this one"
        assert "2 slow calculations" in queue_words(2)
        assert queue_words(0) == ""
    finally:
        pool.close()


def test_workers_with_nothing_to_do_warm_up_each_its_share_of_the_models() -> None:
    """One worker stays free, a visitor comes first, and goes to the worker that has compiled the model."""
    from solvable.explorer import workers

    pool = workers.Workers(2)
    pool._workers = [SimpleNamespace(job=None, models=set(), end=lambda: None, successor=None) for _ in range(2)]

    def give(worker: SimpleNamespace, job: object) -> None:
        worker.job = job
        worker.models.add(job.payload["model"])

    for worker in pool._workers:
        worker.give = lambda job, worker=worker: give(worker, job)
    one, two = pool._workers
    try:
        pool.warm_up(["a", "b", "c"])
        assert (one.job.payload["model"], two.job) == ("a", None)
        asked = pool.submit("theory", {"model": "d"})
        pool.begin(asked)
        assert two.job is asked
        two.job = one.job = None
        pool._assign()
        assert [worker.models for worker in pool._workers] == [{"a", "b"}, {"d"}]
        one.job = None
        pool._assign()
        assert [worker.models for worker in pool._workers] == [{"a", "b"}, {"c", "d"}]
        two.job = None
        again = pool.submit("cards", {"model": "c"})
        pool.begin(again)
        assert two.job is again
    finally:
        pool.close()


def test_the_warm_up_compiles_what_the_first_page_needs() -> None:
    """After it, theory and cards of the first page compile nothing."""
    assert tasks.run("warm-up", {"model": "scalar-network"}, lambda partial: None)["result"] is None
    assert _compiled(lambda: _move("scalar-network", {})) == 0


# Memory ------------------------------------------------------------------------------------------------------------


@in_float64
def _move(model: str, texts: dict[str, str]) -> None:
    for task in ("theory", "cards"):
        tasks.run(task, {"model": model, "texts": texts}, lambda partial: None)


def _compiled(action: object) -> int:
    """Number of programs that JAX compiles."""
    events: list[str] = []

    def listen(event: str, duration: float, **_: object) -> None:
        events.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        action()
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    return events.count("/jax/core/compile/backend_compile_duration")


DESCENT = {"training": "descent", "learning_rate": "0.01"}


@pytest.mark.parametrize(
    ("model", "first", "second"),
    [
        ("scalar-network", {**DESCENT, "target": "1.3"}, {"learning_rate": "0.02", "target": "1.1", "momentum": "0.5"}),
        ("diagonal-network", {**DESCENT, "momentum": "0.3"}, {"learning_rate": "0.011", "momentum": "0.4"}),
        ("linear-network", {**DESCENT, "singular_values": "1,0.4"}, {"singular_values": "0.9,0.3", "momentum": "0.2"}),
        ("skills", {**DESCENT, "skills": "5", "exponent": "0.6"}, {"learning_rate": "0.02", "exponent": "0.7"}),
        ("skills", {"exponent": "0.6"}, {"exponent": "0.7"}),
    ],
)
def test_a_slider_compiles_nothing(model: str, first: dict[str, str], second: dict[str, str]) -> None:
    """Numbers are arguments of compiled programs: a worker used to grow by megabytes with every move."""
    first = {"times": "0:40:5", **first}
    _move(model, first)
    assert _compiled(lambda: _move(model, {**first, **second})) == 0


def test_programs_are_dropped_once_a_warm_worker_has_grown() -> None:
    memory = ProgramMemory(most=1_000_000_000)
    warm = [memory.is_too_large("skills", 300_000_000 + 5_000_000 * job) for job in range(programs._WARM_JOBS)]
    assert not any(warm)
    held = 300_000_000 + 5_000_000 * (programs._WARM_JOBS - 1)
    assert not memory.is_too_large("skills", held + programs._GROWTH)
    assert memory.is_too_large("skills", held + programs._GROWTH + 1)
    # Another model needs programs of its own, up to the limit of the whole process.
    assert not memory.is_too_large("committee", 999_000_000)
    assert memory.is_too_large("committee", 1_000_000_001)


@READS_MEMORY
def test_dropped_programs_give_their_memory_back() -> None:
    code = """
import jax, jax.numpy as jnp
from solvable.explorer.programs import ProgramMemory
from solvable.explorer.worker import memory
def compile(count):
    for size in range(2, 2 + count):
        program = jax.jit(lambda x: jax.lax.scan(lambda y, _: (jnp.sin(y @ y.T), y.sum()), x, None, length=3))
        program(jnp.ones((size, size)))
# The first round also fills caches of a bounded size, which stay.
compile(40)
ProgramMemory(1).drop()
before = memory()
compile(40)
after = memory()
ProgramMemory(1).drop()
print(after - before, memory() - before)
"""
    # Programs that are read from the cache of the tests are kept in memory in another way than compiled ones.
    kept = {name: value for name, value in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"}
    environment = {**kept, "PYTHONPATH": str(Path(solvable.__file__).parents[1])}
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    grown, left = map(int, run.stdout.split())
    assert left < 0.25 * grown


@pytest.mark.slow
@READS_MEMORY
def test_a_thousand_moves_stay_within_a_bound_of_memory() -> None:
    """With other numbers of times at most moves, each of which needs new programs."""
    from solvable.explorer import workers

    pool = workers.Workers(1)
    try:
        held = _drive(pool, 1000)
    finally:
        pool.close()
    assert max(held[programs._WARM_JOBS :]) < held[programs._WARM_JOBS // 2] + 100e6


# Isolation ---------------------------------------------------------------------------------------------------------


def test_a_worker_does_not_import_from_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody's random.py beside the page is theirs, and not the standard library's."""
    from solvable.explorer import workers

    for name in ("random", "queue", "numpy", "solvable"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('imported from the current folder')\n")
    monkeypatch.chdir(tmp_path)
    # A path that ends in a colon names the current folder as well.
    monkeypatch.setenv("PYTHONPATH", f"{Path(solvable.__file__).parents[1]}{os.pathsep}")
    pool = workers.Workers(1)
    try:
        _, answer = _ask(pool, "cards", {"model": "scalar-network", "texts": {}})
        assert answer["over"].wait(300)
        assert {card.name for card in answer["result"]} >= {"regime", "distance"}
    finally:
        pool.close()
