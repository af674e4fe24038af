"""The explorer as visitors meet it: a real server, a real browser. Screenshots are kept to be looked at.

Every page in these tests fails on a request that leaves the machine and on any error of JavaScript.
"""

import base64
import contextlib
import http.client
import io
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from accessibility import violations
from paths import TESTS

import solvable
from solvable.ranges import parse_range

playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright (pip install 'solvable[test]')")
pytest.importorskip("panel", reason="needs panel (pip install 'solvable[explore]')")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium found: apt-get install chromium")
expect = playwright.expect

ARTIFACTS = Path(os.environ.get("SOLVABLE_SCREENSHOTS", TESTS / "artifacts"))
# A busy machine compiles slowly; on an idle one nothing here takes a tenth of it.
PATIENCE = 60_000
_ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
_ARGUMENTS += ["--disable-component-update", "--disable-sync"]


@pytest.fixture(scope="module")
def server() -> Iterator["Server"]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    command = [sys.executable, "-m", "solvable", "explore", "scalar-network", "--port", str(port)]
    command += ["--no-browser", "--no-warm-up"]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == f"solvable explorer: http://127.0.0.1:{port}/\n"
        yield Server(port, process)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(20)


class Server:
    def __init__(self, port: int, process: subprocess.Popen) -> None:
        self.port, self.process = port, process
        self.url = f"http://127.0.0.1:{port}"

    def work(self) -> float:
        """Seconds of processor time that the server's workers use in half a second."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()

        def used(child: str) -> float:
            # A worker that has been ended works no more.
            with contextlib.suppress(OSError):
                user, system = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[11:13]
                return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
            return 0.0

        before = {child: used(child) for child in children}
        time.sleep(0.5)
        return sum(max(used(child) - before[child], 0.0) for child in children)

    def get(self, path: str = "/", **headers: str) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("GET", path, headers=headers)
        return connection.getresponse()


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    with playwright.sync_playwright() as driver:
        launched = driver.chromium.launch(executable_path=CHROMIUM, args=_ARGUMENTS)
        yield launched
        launched.close()


def with_two_units(path: str) -> str:
    """The address with the setting that :func:`network` has, unless it says something else itself."""
    if "model=scalar-network" not in path:
        return path
    texts = {"initial_first": "0.4,-0.1", "initial_second": "0.3,0.2", "times": "0:8:81"}
    return path + "".join(f"&{name}={text}" for name, text in texts.items() if f"&{name}=" not in path)


@pytest.fixture
def visit(server: Server, browser: object) -> Iterator[Callable[..., object]]:
    """Open a page in a context of its own; at the end nothing may have left the machine, nothing may have failed."""
    contexts, outside, failures = [], [], []

    def guard(route: object) -> None:
        if re.match(r"(http://127\.0\.0\.1[:/]|data:|blob:)", route.request.url):
            route.continue_()
        else:
            outside.append(route.request.url)
            route.abort()

    def open_page(
        path: str = "/", width: int = 1280, height: int = 900, late: float = 0.0, **options: object
    ) -> object:
        def delay(route: object) -> None:
            time.sleep(late)
            route.continue_()

        context = browser.new_context(
            viewport={"width": width, "height": height},
            permissions=["clipboard-read", "clipboard-write"],
            **options,
        )
        contexts.append(context)
        context.route("**/*", guard)
        if late:
            context.route("**/static/js/bokeh.min.js*", delay)
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        page.on("pageerror", lambda error: failures.append(str(error)))
        page.on("console", lambda message: failures.append(message.text) if message.type == "error" else None)
        page.goto(server.url + with_two_units(path), wait_until="domcontentloaded")
        expect(page.locator("html")).to_have_attribute("data-ready", "yes", timeout=PATIENCE)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert outside == []
    assert failures == []


def drawn(page: object, source: str = "upper-lines", column: str = "ys") -> list:
    """A column of what is drawn, as the browser has it."""
    return page.evaluate(
        """([name, column]) => {
          // A figure that was replaced may linger: the newest counts.
          const all = Bokeh.documents.flatMap((one) => Array.from(one._all_models.values()));
          const found = all.filter((one) => one.name === name).at(-1);
          return found ? Array.from(found.data[column], (one) => ArrayBuffer.isView(one) ? Array.from(one) : one) : [];
        }""",
        [source, column],
    )


def wait_for(page: object, condition: Callable[[], bool], why: str) -> None:
    until = time.monotonic() + PATIENCE / 1000
    while not condition():
        assert time.monotonic() < until, why
        page.wait_for_timeout(50)


def shot(page: object, name: str, whole: bool = False) -> None:
    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=ARTIFACTS / f"{name}.png", full_page=whole)


def network(**changes: object) -> solvable.ScalarNetwork:
    start = {"initial_first": [0.4, -0.1], "initial_second": [0.3, 0.2], "target": 1.0}
    return solvable.ScalarNetwork(**{**start, **changes})


TIMES = np.linspace(0.0, 8.0, 81)


def shows(page: object, model: solvable.ScalarNetwork, line: int = 0, times: np.ndarray = TIMES) -> Callable[[], bool]:
    """Whether the upper panel shows the model's loss, every number of it as the library gives it."""
    loss = model.predict(times).test_loss.values
    return lambda: len(found := drawn(page)) > line and np.array_equal(found[line], loss)


def test_a_slider_moves_the_curve_to_the_librarys_numbers(visit: Callable) -> None:
    page = visit("/?model=scalar-network")
    wait_for(page, shows(page, network()), "the first curve")
    slider = page.locator('[data-key="target"] input[type=range]').first
    before = page.evaluate("history.length")
    slider.press("ArrowRight")
    expect(page).to_have_url(re.compile(r"target=1\.1(&|$)"))
    wait_for(page, shows(page, network(target=1.1)), "the curve follows the slider")
    expect(page.locator("#a-target")).to_have_value("1.1")
    slider.press("End")
    wait_for(page, shows(page, network(target=5.0)), "the curve follows the slider to its end")
    distance = f"{network(target=5.0).distance_from_linear().distance_from_linear.item():.6g}"
    expect(page.locator("[data-card=distance]")).to_contain_text(distance, timeout=PATIENCE)
    entry = page.get_by_role("slider", name="first layer at the start, entry 2")
    entry.press("ArrowRight")
    expect(page.locator("#a-initial_first")).to_have_value("0.4,-0.05")
    wait_for(page, shows(page, network(target=5.0, initial_first=[0.4, -0.05])), "one entry of a list has a slider")
    assert page.evaluate("history.length") == before, "moving a slider is no step in the history"
    shot(page, "curves")
    _sees_what_is_said(page)


def _sees_what_is_said(page: object) -> None:
    """The sentence, the ghost, the text alternative, and the buttons that go back and copy the address."""
    model = network(target=5.0, initial_first=[0.4, -0.05])
    theory = model.predict(TIMES)
    said = model.controls.explain(model, model.default_training, theory).sentence
    expect(page.locator(".sentence")).to_have_text(said)
    expect(page.get_by_text("before the last change").first).to_be_visible()
    wait_for(page, lambda: len(drawn(page, "upper-ghost")) > 0, "the curve before the change")
    words = f"test loss goes from {theory.test_loss.values[0]:.3g} at time 0"
    expect(page.locator("p.hidden").first).to_contain_text(words)
    page.get_by_role("button", name="Copy link").click()
    wait_for(page, lambda: page.evaluate("navigator.clipboard.readText()") == page.url, "the address is copied")
    page.get_by_role("button", name="Undo").click()
    expect(page.locator("#a-initial_first")).to_have_value("0.4,-0.1")
    page.get_by_role("button", name="Reset").click()
    expect(page).to_have_url(re.compile(r"\?model=scalar-network$"))


def test_a_slider_with_a_stop_at_zero_shows_a_small_number_where_it_is(visit: Callable) -> None:
    """The knob of 0.01 used to stand at 0, and one step to the right led from 0.01 to the smallest stop."""
    page = visit("/?model=linear-estimator&weight_decay=0.01")
    slider = page.locator('[data-key="weight_decay"] input[type=range]')
    assert int(slider.input_value()) > 0
    slider.press("ArrowRight")
    wait_for(page, lambda: page.locator("#a-weight_decay").input_value() != "0.01", "the box follows the slider")
    assert 0.01 < float(page.locator("#a-weight_decay").input_value()) < 0.02
    slider.press("Home")
    expect(page.locator("#a-weight_decay")).to_have_value("0")


@pytest.mark.parametrize("scale", ["linear", "log"])
def test_the_pointer_on_a_curve_shows_its_numbers(visit: Callable, scale: str) -> None:
    page = visit(f"/?model=scalar-network&xscale={scale}")
    wait_for(page, shows(page, network()), "the curve")
    time, loss = TIMES[40], network().predict(TIMES).test_loss.values[40]
    place = page.evaluate(
        """([name, x, y]) => {
          const views = Array.from(Bokeh.index.roots).flatMap((root) => [root, ...root.children()]);
          const plot = views.find((one) => one.model.renderers?.some((drawn) => drawn.data_source?.name === name));
          const corner = plot.canvas_view.el.getBoundingClientRect();
          return [corner.x + plot.frame.x_scale.compute(x), corner.y + plot.frame.y_scale.compute(y)];
        }""",
        ["upper-lines", time, loss],
    )
    page.mouse.move(place[0] - 30, place[1] - 30)
    page.mouse.move(*place)
    tip = page.locator(".bk-Tooltip").filter(has_text="value")
    expect(tip).to_be_visible()
    # The words are in a shadow root, of which the element itself knows nothing.
    words = tip.evaluate("""(one) => {
      const text = (node) => node.nodeType === Node.TEXT_NODE ? node.data : node.nodeName === "STYLE" ? "" :
        Array.from((node.shadowRoot ?? node).childNodes, text).join(" ");
      return text(one);
    }""")
    assert "NaN" not in words
    assert "test loss" in words
    shown = [float(number) for number in re.findall(r"[0-9.]+(?:e[+-]?[0-9]+)?", words)]
    assert shown == pytest.approx([time, loss], rel=1e-6)


def test_simulation_shows_points_with_error_bars_and_scores(visit: Callable) -> None:
    page = visit("/?model=scalar-network&samples=20&seeds=6&times=0:8:9")
    page.get_by_role("button", name="Simulate").click()
    expect(page.get_by_text(re.compile("6 of 6 seeds.*largest z-score"))).to_be_visible(timeout=PATIENCE)
    times = np.linspace(0, 8, 9)
    runs = network().simulate(times, samples=20, seeds=6)
    comparison = solvable.compare(network().predict(times), runs).test_loss
    count = times.size
    assert np.array_equal(drawn(page, "upper-points", "y")[:count], runs.test_loss.mean("seed").values)
    scores = np.array(drawn(page, "upper-points", "z")[:count], float)
    assert np.array_equal(scores, comparison.sel(statistic="z_score").values)
    low, high = (np.array(drawn(page, "upper-points", side)[1:count]) for side in ("low", "high"))
    assert (high > low).all()
    # Moved on, the points are of another setting, and look and say so.
    full = drawn(page, "upper-points", "fill")[0]
    page.locator('[data-key="target"] input[type=range]').first.press("ArrowRight")
    expect(page.get_by_text("another setting").first).to_be_visible()
    wait_for(page, lambda: drawn(page, "upper-points", "fill")[0] != full, "hollow points")
    shot(page, "simulation")


def test_another_training_brings_its_options_and_its_words(visit: Callable) -> None:
    page = visit("/?model=scalar-network&samples=20&seeds=4&times=0:8:9")
    wait_for(page, shows(page, network(), times=np.linspace(0, 8, 9)), "the curve of the flow")
    expect(page.locator("#a-momentum")).to_be_hidden()
    page.get_by_label("how the model is trained").first.select_option("gradient descent")
    expect(page.locator("#a-momentum")).to_be_visible()
    expect(page.locator("#a-learning_rate")).to_have_value("0.01")
    expect(page.locator("#a-times")).to_have_value("0:800:9")
    page.get_by_label("how the model is trained").first.select_option("gradient flow")
    expect(page.locator("#a-times")).to_have_value("0:8:9")
    wait_for(page, shows(page, network(), times=np.linspace(0, 8, 9)), "the curve is back")
    # Simulation covers weight decay of the flow, and theory does not.
    page.locator("#a-weight_decay").fill("0.1")
    page.keyboard.press("Enter")
    expect(page.get_by_text(re.compile("does not cover GradientFlow.*Press Simulate"))).to_be_visible()
    wait_for(page, lambda: not page.locator("#panel-curves canvas").first.is_visible(), "no curve is shown for it")
    expect(page.get_by_text("test loss", exact=True)).to_have_count(0)
    shot(page, "training")
    page.get_by_role("button", name="Simulate").click()
    expect(page.get_by_text(re.compile("^4 of 4 seeds"))).to_be_visible(timeout=PATIENCE)
    training = solvable.GradientFlow(weight_decay=0.1)
    runs = network().simulate(np.linspace(0, 8, 9), training, samples=20, seeds=4)
    np.testing.assert_allclose(drawn(page, "upper-points", "y")[:9], runs.test_loss.mean("seed").values, rtol=1e-9)
    expect(page.locator("#panel-curves canvas").first).to_be_visible()
    page.locator("#a-weight_decay").fill("0")
    page.keyboard.press("Enter")
    wait_for(page, shows(page, network(), times=np.linspace(0, 8, 9)), "the curve is back")


def test_copied_python_gives_what_is_drawn(visit: Callable) -> None:
    page = visit("/?model=scalar-network&target=-0.7&output_scale=1.7&tab=code")
    wait_for(page, shows(page, network(target=-0.7, output_scale=1.7)), "the curve")
    page.get_by_role("button", name="Copy Python").click()
    expect(page.get_by_text("copied")).to_be_visible()
    text = page.evaluate("navigator.clipboard.readText()")
    scope: dict[str, object] = {}
    exec(text.partition("\n\n#")[0], scope)
    assert np.array_equal(scope["theory"].test_loss.values, drawn(page)[0])
    page.get_by_role("button", name="Copy Command line").click()
    wait_for(page, lambda: page.evaluate("navigator.clipboard.readText()").startswith("solvable predict"), "copied")
    shot(page, "code")


@pytest.mark.slow
def test_files_can_be_downloaded(visit: Callable, tmp_path: Path) -> None:
    page = visit("/?model=scalar-network&tab=code")
    wait_for(page, shows(page, network()), "the curve")
    for ending in (".nc", ".csv"):
        expect(page.get_by_role("button", name=f"Simulation {ending} (nothing to save yet)")).to_be_visible()
    for name in ("Theory .nc", "Theory .csv", "Picture .svg", "Picture .png"):
        with page.expect_download() as caught:
            page.get_by_role("button", name=name).click()
        path = tmp_path / f"file{name[-4:].strip()}"
        caught.value.save_as(path)
        if name.startswith("Theory"):
            assert np.array_equal(solvable.load(path).test_loss.values, network().predict(TIMES).test_loss.values)
        else:
            assert (b"<svg" if name.endswith("svg") else b"\x89PNG") in path.read_bytes()[:2000]


def test_bad_values_are_answered_next_to_their_field(visit: Callable) -> None:
    page = visit("/?model=scalar-network")
    wait_for(page, shows(page, network()), "the curve")
    box = page.locator("#a-output_scale")
    box.fill("-3")
    complaint = page.locator("#a-output_scale-error")
    expect(complaint).to_have_text("output_scale must be a positive finite number, not '-3'")
    expect(box).to_have_attribute("aria-invalid", "true")
    expect(page).not_to_have_url(re.compile("output_scale"))
    assert shows(page, network())(), "the curve stays that of the last possible setting"
    box.fill("2")
    expect(complaint).to_be_empty()
    wait_for(page, shows(page, network(output_scale=2.0)), "and follows again")
    page.locator("#a-initial_first").fill("0.4,-0.1,0.2")
    expect(
        page.locator("#a-initial_first-error, #a-initial_second-error").filter(has_text=re.compile("first|second"))
    ).to_be_visible()


def test_impossible_addresses_are_answered_and_put_right(visit: Callable) -> None:
    page = visit("/?model=scalar-network&target=nan&input_power=2&times=" + "9" * 5000)
    expect(page.locator("#a-target-error")).to_contain_text("in the address: target must be a finite number")
    expect(page.locator("#a-target")).to_have_value("1")
    expect(page.locator("#a-times-error")).to_contain_text("in the address")
    usual = parse_range(solvable.ScalarNetwork.usual_times)
    wait_for(page, shows(page, network(input_power=2.0), times=usual), "what is possible is kept")
    expect(page).to_have_url(
        re.compile(r"\?model=scalar-network&input_power=2&initial_first=0.4,-0.1&initial_second=0.3,0.2$")
    )
    page = visit("/?model=%3Cscript%3Ealert(1)%3C/script%3E")
    expect(page.get_by_role("alert").filter(has_text="no model is named")).to_be_visible()


@pytest.mark.slow
def test_reload_keeps_the_state(visit: Callable) -> None:
    page = visit("/?model=scalar-network")
    wait_for(page, shows(page, network()), "the curve")
    page.locator('[data-key="target"] input[type=range]').first.press("ArrowLeft")
    page.get_by_label("compare with a setting B").check()
    wait_for(page, lambda: len(drawn(page)) == 2, "a second curve, of setting B")
    page.locator("#b-target").fill("2")
    wait_for(page, shows(page, network(target=2.0), line=1), "setting B has its own curve")
    # Two workers compute the two settings: B's curve may come before A's.
    wait_for(page, shows(page, network(target=0.9)), "setting A keeps its curve")
    page.locator("#v-yscale").select_option("linear")
    page.get_by_role("tab", name="Code and files").click()
    expect(page).to_have_url(re.compile(r"target=0\.9&compare=1&.*b\.target=2&tab=code&.*yscale=linear"))
    page.reload(wait_until="domcontentloaded")
    expect(page.get_by_role("tab", name="Code and files")).to_have_attribute("aria-selected", "true")
    expect(page.locator("#a-target")).to_have_value("0.9")
    expect(page.locator("#b-target")).to_have_value("2")
    # The choice of axes appears with the curves.
    expect(page.locator("#v-yscale")).to_have_value("linear", timeout=PATIENCE)
    wait_for(page, shows(page, network(target=2.0), line=1), "both curves are back")
    page.get_by_role("tab", name="Curves").click()
    shot(page, "compare")


def test_a_browser_that_connects_late_finds_its_page(visit: Callable) -> None:
    """Its session used to be gone after three seconds; the page stayed empty and asked other machines for styles."""
    page = visit("/?model=scalar-network", late=5.0)
    wait_for(page, shows(page, network()), "the curve")


@pytest.mark.slow
def test_two_visitors_do_not_share_a_state(visit: Callable) -> None:
    one, other = visit("/?model=scalar-network"), visit("/?model=scalar-network&target=2")
    wait_for(other, shows(other, network(target=2.0)), "the second visitor's curve")
    one.locator('[data-key="target"] input[type=range]').first.press("ArrowRight")
    wait_for(one, shows(one, network(target=1.1)), "the first visitor's curve")
    other.wait_for_timeout(300)
    assert shows(other, network(target=2.0))()
    expect(other.locator("#a-target")).to_have_value("2")


def test_phase_diagram_marks_the_setting_and_a_click_moves_it(visit: Callable) -> None:
    page = visit("/?model=scalar-network&tab=phase&plane=kernel_ratio&theme=dark")
    wait_for(page, lambda: drawn(page, "mark", "x") == [0.4] and drawn(page, "mark", "y") == [1], "the mark")
    shot(page, "phase-dark")
    canvas = page.locator("#panel-phase .bk-Canvas, #panel-phase canvas").last
    frame = canvas.bounding_box()
    page.mouse.click(frame["x"] + frame["width"] * 0.3, frame["y"] + frame["height"] * 0.3)
    expect(page).to_have_url(re.compile(r"first=[-0-9.]+,-0\.1"))
    wait_for(page, lambda: drawn(page, "mark", "x") != [0.4], "the mark moves")
    entry = float(page.locator("#a-initial_first").input_value().split(",")[0])
    assert drawn(page, "mark", "x") == [entry]
    assert float(page.locator("#a-target").input_value()) == drawn(page, "mark", "y")[0]


@pytest.mark.slow
def test_slow_theory_shows_progress_and_can_be_cancelled(visit: Callable) -> None:
    page = visit("/?model=committee&times=0:1600:41")
    expect(page.get_by_text(re.compile(r"computing theory, \d+%"))).to_be_visible(timeout=2 * PATIENCE)
    # Closing the page is as good as the button: the one slow worker of a small machine is free for the next visitor.
    page.get_by_role("button", name="Cancel").last.click()
    expect(page.get_by_text("cancelled")).to_be_visible()
    expect(page.get_by_role("progressbar")).to_be_hidden()


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="sees the work of processes in /proc")
def test_closing_a_page_stops_its_work(visit: Callable, server: Server) -> None:
    page = visit("/?model=committee&times=0:16000:41")
    expect(page.get_by_text(re.compile("computing theory")).first).to_be_visible(timeout=PATIENCE)
    assert server.work() > 0.05
    page.close()
    until = time.monotonic() + 30
    while server.work() > 0.05:
        assert time.monotonic() < until, "workers go on for nobody: the theory asked for takes minutes"


def test_controls_have_names_and_keys(visit: Callable) -> None:
    page = visit("/?model=scalar-network&compare=1")
    wait_for(page, lambda: len(drawn(page)) == 2, "the curves")
    nameless = page.evaluate(
        """() => {
          const found = [];
          const look = (root) => root.querySelectorAll("*").forEach((one) => {
            if (one.shadowRoot) look(one.shadowRoot);
            if (!one.matches("input, button, select, a[href], [role=tab]") || !one.checkVisibility()) return;
            const label = one.labels?.[0]?.textContent || one.ariaLabel || one.textContent || one.title;
            if (!label.trim()) found.push(one.outerHTML.slice(0, 200));
          });
          look(document);
          return found;
        }"""
    )
    assert nameless == []
    assert violations(page) == []
    tab = page.get_by_role("tab", name="Curves")
    tab.focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("tab", name="Phase diagram")).to_be_focused()
    expect(page.locator("#panel-phase")).to_be_visible()
    expect(page.locator("#panel-curves")).to_be_hidden()
    slider = page.get_by_role("slider", name="the target's slope").first
    slider.press("Home")
    expect(page.locator("#a-target")).to_have_value("-5")
    assert slider.get_attribute("aria-valuetext") == "-5"
    assert page.locator("h1").count() == 1
    assert page.locator("html").get_attribute("lang") == "en"


def test_a_dark_system_gets_the_dark_page(visit: Callable) -> None:
    page = visit("/?model=scalar-network", color_scheme="dark")
    expect(page.locator("html")).to_have_class(re.compile("dark"))
    expect(page).to_have_url(re.compile("theme=dark"))
    page.locator("#theme").click()
    expect(page.locator("html")).not_to_have_class(re.compile("dark"))


def test_a_phone_shows_everything_without_scrolling_sideways(visit: Callable) -> None:
    page = visit("/?model=scalar-network", width=390, height=844)
    wait_for(page, shows(page, network()), "the curve")
    expect(page.locator("#a-target")).to_be_hidden()
    for name in ("Undo", "Reset", "Copy link"):
        expect(page.get_by_role("button", name=name)).to_be_visible()
    page.get_by_text("Controls").click()
    slider = page.locator('[data-key="target"] input[type=range]').first
    slider.scroll_into_view_if_needed()
    expect(slider).to_be_in_viewport()
    # A whole panel is above the sheet of controls.
    canvas, sheet = (page.locator(one).first.bounding_box() for one in ("#panel-curves canvas", "aside"))
    assert -1 < canvas["y"] < canvas["y"] + canvas["height"] <= sheet["y"] + 40
    shot(page, "phone")
    for tab in ("Phase diagram", "Code and files", "Diagnose a network", "Infer a law", "Curves"):
        page.get_by_role("tab", name=tab).click()
        assert page.evaluate("document.documentElement.scrollWidth") == 390, tab


@pytest.mark.slow
def test_features_are_diagnosed_and_what_are_none_is_refused(visit: Callable) -> None:
    page = visit("/?tab=diagnose")
    upload = page.locator("#npz")

    def send(name: str, content: bytes) -> None:
        upload.set_input_files({"name": name, "mimeType": "application/octet-stream", "buffer": content})

    send("notes.npz", b"these are words")
    expect(page.get_by_role("alert").filter(has_text="this is not an .npz file")).to_be_visible()
    send("large.npz", b"0" * 8_000_001)
    expect(page.get_by_role("alert").filter(has_text="more than the 8 MB")).to_be_visible()
    buffer = io.BytesIO()
    np.savez(buffer, train_features=np.array([{}], dtype=object))
    send("objects.npz", buffer.getvalue())
    expect(page.get_by_role("alert").filter(has_text="no array 'train_outputs'")).to_be_visible(timeout=PATIENCE)
    draw = np.random.default_rng(0)
    labels = np.arange(60) % 3
    hidden = np.eye(3)[labels] @ draw.normal(size=(3, 8)) + 0.1 * draw.normal(size=(60, 8))
    arrays = {"features": hidden, "outputs": hidden @ draw.normal(size=(8, 3)), "labels": labels}
    buffer = io.BytesIO()
    np.savez(buffer, **{f"{part}_{name}": array for part in ("train", "test") for name, array in arrays.items()})
    send("features.npz", buffer.getvalue())
    expect(page.get_by_text(re.compile("^Features: (minimum|extended)-feature"))).to_be_visible(timeout=PATIENCE)
    shot(page, "diagnose", whole=True)


@pytest.mark.slow
def test_a_log_is_fitted_and_forecast_and_what_is_none_is_refused(visit: Callable) -> None:
    from solvable.explorer.inference import sample_log

    page = visit("/?tab=infer")
    upload = page.locator("#log")

    def send(name: str, content: bytes) -> None:
        upload.set_input_files({"name": name, "mimeType": "text/csv", "buffer": content})

    send("weights.pt", b"PK")
    expect(page.get_by_role("alert").filter(has_text="must end in one of .csv")).to_be_visible()
    send("words.csv", b"<html>sign in</html>")
    refused = page.get_by_role("alert").filter(has_text="words.csv is a page of markup")
    expect(refused).to_be_visible(timeout=PATIENCE)
    send("mine.csv", sample_log().getvalue())
    expect(page.get_by_role("heading", name="Forecast")).to_be_visible(timeout=PATIENCE)
    expect(page.get_by_text(re.compile("mine, step 2.394e\\+05: loss"))).to_be_visible()
    expect(page.get_by_alt_text("Measured losses, the fitted law and its forecast")).to_be_visible()
    # The warm-up is not in the log, and changes the law; the page fits again.
    page.locator("#panel-infer").get_by_label("Warm-up before the first record").fill("2160")
    page.keyboard.press("Enter")
    expect(page.get_by_text(re.compile("9 records lie within twice the warm-up"))).to_be_visible(timeout=PATIENCE)
    shot(page, "infer", whole=True)


def test_only_visitors_who_came_by_our_name_are_answered(server: Server) -> None:
    assert server.get().status == 200
    assert server.get(Host=f"localhost:{server.port}").status == 200
    for host in ("evil.example", f"evil.example:{server.port}", "127.0.0.1"):
        assert server.get(Host=host).status == 403
    handshake = {
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": base64.b64encode(bytes(16)).decode(),
    }
    assert server.get("/ws", Origin="http://evil.example", **handshake).status == 403
    with socket.socket() as outside:
        outside.connect(("127.0.0.1", server.port))
    addresses = {info[4][0] for info in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)}
    for address in addresses - {"127.0.0.1", "127.0.1.1"}:
        with socket.socket() as other:
            other.settimeout(5)
            assert other.connect_ex((address, server.port)) != 0


def test_z_a_lost_connection_is_said(visit: Callable, server: Server) -> None:
    """Last of all: it ends the server."""
    page = visit("/?model=scalar-network")
    wait_for(page, shows(page, network()), "the curve")
    server.process.send_signal(signal.SIGINT)
    server.process.wait(20)
    expect(page.locator("#lost")).to_be_visible(timeout=PATIENCE)
    assert server.process.returncode == 0
