"""Takes the two pictures of a report that the docs show, with headless Chromium.

    python scripts/picture_of_report.py report.html docs/pictures

Needs Pillow, Playwright's Python package without the browsers that it offers to download, and on the path a Chromium:
`chromium`, `chromium-browser` or `google-chrome`.
"""

from __future__ import annotations

import io
import shutil
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

# Name, width of the window, what the picture ends with, pixels of the picture in one of the page, light or dark.
PICTURES = (
    ("desktop", 1280, "section[aria-labelledby=curves] .charts", 0.75, "light"),
    ("phone", 390, ".signature", 1.5, "dark"),
)
COLOURS = 128
MARGIN = 16


def picture(browser: Browser, page: Path, width: int, last: str, scale: float, scheme: str) -> Image.Image:
    """Return the upper part of a page as it looks in a window, down to the first element that a selector finds."""
    context = browser.new_context(
        viewport={"width": width, "height": 900}, device_scale_factor=scale, color_scheme=scheme
    )
    tab = context.new_page()
    tab.goto(page.resolve().as_uri())
    box = tab.locator(last).first.bounding_box()
    height = box["y"] + box["height"] + MARGIN
    shot = Image.open(
        io.BytesIO(tab.screenshot(full_page=True, clip={"x": 0, "y": 0, "width": width, "height": height}))
    )
    context.close()
    return shot


def main(page: Path, folder: Path) -> int:
    """Writes the pictures and prints their names and sizes."""
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        print("there is no Chromium on the path", file=sys.stderr)
        return 1
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        for name, width, last, scale, scheme in PICTURES:
            path = folder / f"acceptance-report-{name}.png"
            shot = picture(browser, page, width, last, scale, scheme)
            shot.convert("RGB").quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(
                path, optimize=True
            )
            print(path, f"{path.stat().st_size / 1000:.0f} kB")
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
