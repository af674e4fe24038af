"""Stories as visitors meet them: pages opened from disk with the network off, and on a live server.

Every page in these tests fails on a request that leaves the machine and on any error of JavaScript. Screenshots are
kept to be looked at.
"""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from accessibility import violations
from paths import TESTS

from solvable import stories
from solvable.settings import Setting
from solvable.stories import grid
from solvable.stories.axes import Axis
from solvable.stories.interpolation import interpolated
from solvable.stories.scene_errors import drawn_curves

playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright (pip install 'solvable[test]')")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium found: apt-get install chromium")
expect = playwright.expect

ARTIFACTS = Path(os.environ.get("SOLVABLE_SCREENSHOTS", TESTS / "artifacts"))
PATIENCE = 60_000
_ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
_ARGUMENTS += ["--disable-component-update", "--disable-sync"]
NAMES = [name for name in stories.names() if stories.shipped(name) is not None]
SIZES = {"desktop": (1440, 900), "phone": (390, 844)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("stories")
    stories.export(path, NAMES, progress=False)
    return path


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    with playwright.sync_playwright() as driver:
        launched = driver.chromium.launch(executable_path=CHROMIUM, args=_ARGUMENTS)
        yield launched
        launched.close()


@pytest.fixture
def visit(browser: object) -> Iterator[Callable[..., object]]:
    """Open an address in a context of its own; at the end nothing may have left the machine, and nothing failed."""
    contexts, outside, failures = [], [], []

    def guard(route: object) -> None:
        if re.match(r"(file:|http://127\.0\.0\.1[:/]|data:|blob:)", route.request.url):
            route.continue_()
        else:
            outside.append(route.request.url)
            route.abort()

    def open_page(address: str, size: str = "desktop", offline: bool = True, **options: object) -> object:
        width, height = SIZES[size]
        context = browser.new_context(viewport={"width": width, "height": height}, offline=offline, **options)
        contexts.append(context)
        context.route("**/*", guard)
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        page.on("pageerror", lambda error: failures.append(str(error)))
        page.on("console", lambda message: failures.append(message.text) if message.type == "error" else None)
        page.goto(address)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert outside == []
    assert failures == []


def ready(page: object) -> None:
    expect(page.locator("#steps button[aria-current]")).to_have_count(1, timeout=PATIENCE)


def still(page: object) -> None:
    """Wait until nothing plays any more."""
    expect(page.locator("#play")).to_have_attribute("aria-label", "play", timeout=PATIENCE)


def keep(page: object, name: str) -> None:
    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=str(ARTIFACTS / f"story-{name}.png"))


def boxes(page: object) -> list[object]:
    """Where the parts of the page are, which stay in their places."""
    parts = ["#steps", "#cards", "#sliders", "#curves"]
    return page.evaluate(
        "parts => parts.map(one => document.querySelector(one).getBoundingClientRect().toJSON())", parts
    )


# Texts of the pictures that leave them, and texts that cover each other.
MISPLACED = """() => {
  const found = [];
  for (const id of ["curves", "system", "plane"]) {
    const svg = document.getElementById(id);
    if (!svg || !svg.checkVisibility()) continue;
    const frame = svg.getBoundingClientRect();
    const texts = [...svg.querySelectorAll("text")].map((node) => [node.textContent, node.getBoundingClientRect()]);
    for (const [text, box] of texts) {
      const across = box.left < frame.left - 2 || box.right > frame.right + 2;
      if (across || box.top < frame.top - 2 || box.bottom > frame.bottom + 2) found.push(`${id}: "${text}" is cut`);
    }
    texts.forEach(([text, box], n) => {
      for (const [other, there] of texts.slice(n + 1)) {
        const across = Math.min(box.right, there.right) - Math.max(box.left, there.left);
        const down = Math.min(box.bottom, there.bottom) - Math.max(box.top, there.top);
        if (across > 3 && down > 5) found.push(`${id}: "${text}" covers "${other}"`);
      }
    });
  }
  return found;
}"""


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", NAMES)
def test_every_step_is_shown_and_nothing_moves(name: str, size: str, folder: Path, visit: Callable) -> None:
    page = visit(f"file://{folder}/{name}.html", size, reduced_motion="reduce")
    ready(page)
    scene = stories.scene(name)
    where = boxes(page)
    for number, step in enumerate(scene["steps"]):
        expect(page.locator("#cards section.open p").first).to_have_text(step["text"])
        expect(page.locator("#sentence")).to_have_text(step["sentence"])
        assert "NaN" not in page.locator("body").inner_text()
        assert "NaN" not in page.locator("#curves").evaluate("node => node.outerHTML")
        curves = sum(len(panel) for panel in step["curves"])
        assert page.locator("#values li").count() == curves
        assert page.evaluate(MISPLACED) == []
        assert boxes(page) == where
        assert page.evaluate("document.documentElement.scrollWidth") <= SIZES[size][0]
        # Pictures of all steps, which take longer than the rest, are for those who ask for them.
        if number + 1 == len(scene["steps"]) or "SOLVABLE_SCREENSHOTS" in os.environ:
            keep(page, f"{name}-{size}-{number + 1}")
        if number + 1 < len(scene["steps"]):
            page.locator("#cards section.open .next").click()
    # On the last step sliders and curves are on the screen together.
    curves, sliders = page.locator("#curves").bounding_box(), page.locator(".slider").last.bounding_box()
    assert max(box["y"] + box["height"] for box in (curves, sliders)) < page.locator(".bar").bounding_box()["y"]
    page.locator("#ask").click()
    expect(page.locator("#answer")).to_be_visible()
    expect(page.locator("#answer")).to_have_text(scene["answer"])


def test_the_first_step_plays_and_can_be_stopped(folder: Path, visit: Callable) -> None:
    page = visit(f"file://{folder}/linear-estimator.html")
    ready(page)
    expect(page.locator("#play")).to_have_attribute("aria-label", "pause")
    page.locator("#play").click()
    still(page)
    stopped = page.locator("#now").inner_text()
    page.keyboard.press("Tab")
    page.locator("#curves").focus()
    page.keyboard.press(" ")
    expect(page.locator("#play")).to_have_attribute("aria-label", "pause")
    expect(page.locator("#now")).not_to_have_text(stopped)
    still(page)
    expect(page.locator("#now")).to_have_text("step 10,000 of 10,000")


def test_the_cursor_follows_pointer_and_keys(folder: Path, visit: Callable) -> None:
    page = visit(f"file://{folder}/linear-estimator.html#step=2&t=1")
    ready(page)
    box = page.locator("#curves").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.3, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + box["height"] / 2, steps=5)
    page.mouse.up()
    expect(page).to_have_url(re.compile(r"step=2&t=0\.[45]"))
    before = page.locator("#now").inner_text()
    values = page.locator("#values").inner_text()
    picture = page.locator("#system").inner_html()
    page.locator("#curves").focus()
    for _ in range(5):
        page.keyboard.press("ArrowRight")
    expect(page.locator("#now")).not_to_have_text(before)
    assert page.locator("#values").inner_text() != values
    assert page.locator("#system").inner_html() != picture
    assert "test accuracy" in page.locator("#curves").get_attribute("aria-label")


def test_sliders_interpolate_snap_undo_and_reset(folder: Path, visit: Callable) -> None:
    page = visit(f"file://{folder}/linear-estimator.html#step=6&t=1")
    ready(page)
    slider, output = page.locator("#slider-aspect_ratio"), page.locator("#sliders output").first
    expect(output).to_have_text("0.9")
    curves = page.locator("#curves").inner_html()
    box = slider.bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.3, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.62, box["y"] + box["height"] / 2, steps=8)
    expect(output).to_have_text(re.compile("≈"))
    assert page.locator("#curves").inner_html() != curves
    keep(page, "linear-estimator-dragging")
    page.mouse.up()
    expect(output).not_to_have_text(re.compile("≈"))
    scene = stories.scene("linear-estimator")
    about = scene["sliders"][0]
    assert output.inner_text() in {about["stops"][node] for node in about["nodes"]}
    expect(page.locator("#curves .ghost")).to_have_count(4)
    expect(page.locator("#sentence")).to_have_text(re.compile("never reaches 95 %"))
    page.locator("#undo").click()
    expect(output).to_have_text("0.9")
    slider.focus()
    page.keyboard.press("ArrowRight")
    expect(output).to_have_text(about["stops"][about["nodes"][about["nodes"].index(about["start"]) + 1]])
    page.locator("#reset").click()
    expect(output).to_have_text("0.9")


def test_the_player_interpolates_as_the_stated_errors_assume(folder: Path, visit: Callable) -> None:
    scene = stories.scene("linear-estimator")
    page = visit(f"file://{folder}/linear-estimator.html#step=6&t=1")
    ready(page)
    sliders = [
        grid.Place(one["key"], tuple(one["stops"]), tuple(one["nodes"]), one["start"]) for one in scene["sliders"]
    ]
    places = grid.Places(Setting("linear-estimator"), tuple(sliders))
    axes = [Axis(**axis) for axis in scene["node_axes"]]
    for point in places.points_between(3, seed=5):
        times, rows = page.evaluate(
            """(point) => {
              const state = player.grid.at(point);
              return [state.times, state.curves.flat().map((one) => one.values)];
            }""",
            list(point),
        )
        corners = [(weight, scene["nodes"][node]) for weight, node in places.corners(point) if weight > 0]
        drawn = [drawn_curves(state, axes) for _, state in corners]
        position, wanted = interpolated([weight for weight, _ in corners], drawn, scene["aligned"])
        np.testing.assert_allclose(rows, wanted, atol=1e-6)
        fractions = np.log(np.array(times) / times[0]) / np.log(times[-1] / times[0])
        np.testing.assert_allclose(fractions, position, atol=1e-6)


def test_a_click_on_the_plane_moves_the_sliders(folder: Path, visit: Callable) -> None:
    page = visit(f"file://{folder}/linear-estimator.html#step=5&t=1")
    ready(page)
    expect(page.locator("#plane")).to_be_hidden()
    page.locator("#steps button").last.click()
    page.locator("#plane").scroll_into_view_if_needed()
    expect(page.locator("#plane .region")).to_have_text("never groks")
    assert page.locator("#plane").get_attribute("aria-label").startswith("grokking delay")
    box, before = page.locator("#plane image").bounding_box(), page.locator("#sliders output").all_inner_texts()
    page.mouse.move(box["x"] + box["width"] * 0.3, box["y"] + box["height"] * 0.6)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.17, box["y"] + box["height"] * 0.5, steps=4)
    page.mouse.up()
    after = page.locator("#sliders output").all_inner_texts()
    assert all(one != other for one, other in zip(before, after, strict=True))
    assert 0.2 < float(after[0]) < 0.8
    keep(page, "linear-estimator-plane")
    page.locator("#undo").click()
    expect(page.locator("#sliders output").first).to_have_text(before[0])


def test_a_copied_link_opens_the_same_state(folder: Path, visit: Callable) -> None:
    page = visit(
        f"file://{folder}/linear-estimator.html#step=6&t=0.5", permissions=["clipboard-read", "clipboard-write"]
    )
    ready(page)
    page.locator("#slider-weight_decay").focus()
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    shown = (
        page.locator("#sliders").inner_text(),
        page.locator("#now").inner_text(),
        page.locator("#python").inner_text(),
    )
    page.locator("#link").click()
    expect(page.locator("#link")).to_have_text("copied")
    link = page.evaluate("navigator.clipboard.readText()")
    other = visit(link)
    ready(other)
    assert shown == tuple(other.locator(part).inner_text() for part in ("#sliders", "#now", "#python"))


def test_themes_follow_the_system_and_the_button(folder: Path, visit: Callable) -> None:
    page = visit(f"file://{folder}/linear-estimator.html#step=2&t=1", color_scheme="dark")
    ready(page)

    def ground() -> str:
        return page.evaluate("getComputedStyle(document.body).backgroundColor")

    assert ground() == "rgb(17, 22, 29)"
    keep(page, "linear-estimator-dark")
    page.locator("#theme").click()
    assert ground() == "rgb(255, 255, 255)"


def test_the_landing_view_opens_a_story(folder: Path, visit: Callable) -> None:
    for size in SIZES:
        page = visit(f"file://{folder}/index.html", size)
        expect(page.locator(".tiles a")).to_have_count(len(NAMES))
        assert page.locator(".tiles svg .curve").count() >= len(NAMES)
        words = page.locator(".landing > h1, .landing > p").all_inner_texts()
        assert sum(len(text.split()) for text in words) < 40
        page.wait_for_timeout(2000)
        keep(page, f"landing-{size}")
    page.locator(".tiles a").first.click()
    ready(page)


def test_a_slider_that_does_not_move_says_when_it_will(folder: Path, visit: Callable) -> None:
    page = visit(f"file://{folder}/linear-estimator.html#step=1&t=1", reduced_motion="reduce")
    ready(page)
    expect(page.locator(".slider input").first).to_be_disabled()
    expect(page.get_by_text("you move them in step 6, “Your turn”")).to_be_visible()
    expect(page.get_by_text("curves are interpolated; largest error")).not_to_be_visible()
    page.locator("#steps button").last.click()
    expect(page.locator(".slider input").first).to_be_enabled()
    expect(page.get_by_text("you move them in step 6")).not_to_be_visible()
    expect(page.get_by_text("curves are interpolated; largest error")).to_be_visible()


@pytest.mark.parametrize("size", SIZES)
def test_labels_of_ticks_stand_in_the_order_of_their_lines(size: str, folder: Path, visit: Callable) -> None:
    """The label of the second neuron stood left of the first line, and that of the first right of the second."""
    page = visit(f"file://{folder}/parity-mode.html#step=1&t=1", size, reduced_motion="reduce")
    ready(page)
    labels = page.evaluate(
        """() => [...document.querySelectorAll('#curves .mark-label')]
        .filter(one => one.textContent.startsWith('neuron'))
        .map(one => [one.getBoundingClientRect().left, one.textContent]).sort((a, b) => a[0] - b[0])"""
    )
    assert [text for _, text in labels] == ["neuron 1", "neuron 2", "neuron 3"]


def test_a_phone_has_no_gap_where_the_challenge_will_be(folder: Path, visit: Callable) -> None:
    page = visit(f"file://{folder}/linear-estimator.html#step=1&t=1", "phone", reduced_motion="reduce")
    ready(page)
    sentence, picture = page.locator("#sentence").bounding_box(), page.locator(".system").bounding_box()
    assert 0 <= picture["y"] - sentence["y"] - sentence["height"] < 30
    page.locator("#steps button").last.click()
    expect(page.locator("#challenge")).to_be_visible()


def test_every_control_has_a_name(folder: Path, visit: Callable) -> None:
    page = visit(f"file://{folder}/linear-estimator.html#step=6&t=1")
    ready(page)
    unnamed = page.evaluate(
        """() => [...document.querySelectorAll('button, input, a, [role=img]')].filter(one => one.offsetParent !== null)
        .filter(one => !(one.getAttribute('aria-label') || one.textContent.trim() || (one.labels && one.labels.length)))
        .map(one => one.outerHTML)"""
    )
    assert unnamed == []


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("address", ["index.html", "linear-estimator.html#step=6&t=1", "committee.html#step=2&t=1"])
def test_axe_finds_no_violation_of_accessibility(address: str, size: str, folder: Path, visit: Callable) -> None:
    page = visit(f"file://{folder}/{address}", size, reduced_motion="reduce")
    if address != "index.html":
        ready(page)
        still(page)
    assert violations(page) == []


def test_a_notebook_frame_plays(folder: Path, visit: Callable, tmp_path: Path) -> None:
    path = tmp_path / "cell.html"
    path.write_text(stories.show("linear-estimator")._repr_html_())
    page = visit(f"file://{path}", reduced_motion="reduce")
    frame = page.frame_locator("iframe")
    expect(frame.locator("#steps button[aria-current]")).to_have_count(1, timeout=PATIENCE)
    frame.locator("#steps button").nth(1).click()
    expect(frame.locator("#sentence")).to_have_text(re.compile("times later"))


@pytest.fixture(scope="module")
def live() -> Iterator[str]:
    pytest.importorskip("panel", reason="needs panel (pip install 'solvable[explore]')")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    command = [sys.executable, "-m", "solvable", "explore", "--port", str(port), "--no-browser", "--no-warm-up"]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == f"solvable explorer: http://127.0.0.1:{port}/\n"
        yield f"http://127.0.0.1:{port}"
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(20)


def test_the_live_page_links_stories_and_free_play(live: str, visit: Callable) -> None:
    page = visit(f"{live}/", offline=False)
    expect(page.locator(".tiles strong", has_text="Why does it understand")).to_have_count(1, timeout=PATIENCE)
    page.locator(".tiles a", has_text="Why does it understand").click()
    ready(page)
    assert page.url.startswith(f"{live}/story/linear-estimator")
    page.locator("#steps button").nth(1).click()
    page.locator("#free").click()
    expect(page).to_have_url(re.compile(r"/\?model=linear-estimator.*times=1:1e5:97log"))
    page.locator("a.story").click()
    ready(page)
    response = page.request.get(f"{live}/story/nothing")
    assert response.status == 404
