"""``python -m benchmarks.walk FOLDER`` walks every story on a desktop and on a phone, and keeps a picture of each step.

The pages are exported, and opened from disk with the network off. Afterwards the sliders of the last step, the plane,
undo and the answer are tried. Prints for each story the requests that left the page, errors of scripts, controls
without a name, and the words that are read before something moves; FOLDER then holds the pictures, to be looked at.
"""

import re
import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

from solvable import stories

SIZES = {"desktop": (1440, 900), "phone": (390, 844)}
_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_NAMELESS = """() => [...document.querySelectorAll("input, button, select, a[href], summary, svg[role=img], canvas")]
  .filter((one) => one.checkVisibility())
  .filter((one) => !(one.labels?.[0]?.textContent || one.ariaLabel || one.textContent || one.title).trim())
  .map((one) => one.outerHTML.slice(0, 120))"""


def first_words(page, address: str) -> int:
    """Words that are read before something moves: the question and, unless the curves play at once, the first step."""
    page.goto(address)
    page.wait_for_selector("#steps button[aria-current]")
    words = len(page.locator("h1").inner_text().split())
    if page.locator("#play").get_attribute("aria-label") != "pause":
        words += len(page.locator("#cards section.open").inner_text().split())
    return words


def walk(page, address: str, name: str, size: str, folder: Path) -> dict:
    """Walk through one story, and return what was counted."""
    words = first_words(page, address)
    # From here on without waiting for the animations.
    page.emulate_media(reduced_motion="reduce")
    page.reload()
    page.wait_for_selector("#steps button[aria-current]")
    nameless = []
    for number in range(1, page.locator("#steps button").count() + 1):
        page.locator("#steps button").nth(number - 1).click()
        page.locator("#play[aria-label=play]").wait_for(timeout=20_000)
        page.screenshot(path=folder / f"{name}-{size}-{number}.png")
        nameless += page.evaluate(_NAMELESS)
    page.locator(".slider input").first.press("ArrowRight")
    if page.locator("#plane").is_visible():
        page.locator("#plane").scroll_into_view_if_needed()
        page.screenshot(path=folder / f"{name}-{size}-plane.png")
    page.locator("#undo").click()
    page.locator("#ask").click()
    wide = page.evaluate("document.documentElement.scrollWidth") > SIZES[size][0]
    return {"words": words, "nameless": len(set(nameless)), "too wide": wide}


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    stories.export(folder / "pages", progress=False)
    found = next(path for path in map(shutil.which, _BROWSERS) if path)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-gpu"])
        for size, (width, height) in SIZES.items():
            for name in ["index", *stories.names()]:
                context = browser.new_context(viewport={"width": width, "height": height}, offline=True)
                page, outside, failures = context.new_page(), [], []
                page.on(
                    "request",
                    lambda one, outside=outside: (
                        outside.append(one.url) if not re.match("file:|data:|blob:", one.url) else None
                    ),
                )
                page.on("pageerror", lambda error, failures=failures: failures.append(str(error)))
                address = f"file://{(folder / 'pages').resolve()}/{name}.html"
                if name == "index":
                    page.goto(address)
                    page.wait_for_timeout(2500)
                    page.screenshot(path=folder / f"landing-{size}.png", full_page=True)
                    read = page.locator(".landing > h1, .landing > p").all_inner_texts()
                    told = {"words": sum(len(text.split()) for text in read)}
                else:
                    told = walk(page, address, name, size, folder)
                print(f"{size:8} {name:18} {told}, requests outside {len(outside)}, errors {failures}", flush=True)
                context.close()
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
