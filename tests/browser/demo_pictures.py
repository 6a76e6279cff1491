"""Pictures of a finished demonstration for the README, its report and its terminal; in the folder `tests`:
`python -m browser.demo_pictures ../runs/demo`."""

import io
import json
import re
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright
from rich.console import Console

from tutelage.commands.evaluate import show
from tutelage.demo import demo
from tutelage.report.page import write_report

from .chromium import ARGUMENTS, find
from .screenshots import IMAGES

WIDTH, HEIGHT = 1000, 500
"""Pixels of the report's upper part."""
COLUMNS = 100


def terminal(out: Path) -> str:
    """The end of `tutelage demo` up to its time, as a drawing without fonts of another host."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print("[bold]$ tutelage demo[/]")
    summary = json.loads((out / "summary.json").read_text())
    show.Console = lambda *given, **named: console  # type: ignore[misc,assignment]
    import rich.console

    rich.console.Console = lambda *given, **named: console  # type: ignore[misc,assignment]
    demo.print_demo(out, summary, Path("runs/demo/report.html"))
    text = console.export_text(clear=False, styles=False)
    lines = text[: text.index("Took ")].count("\n")
    drawing = re.sub(r"@font-face \{[^}]*\}", "", console.export_svg(title="tutelage demo"))
    width = float(re.findall(r'viewBox="0 0 (\S+) ', drawing)[0])
    height = 40 + 24.4 * lines
    size = f'width="{width}" height="{height:.0f}" viewBox="0 0 {width} {height:.0f}"'
    return re.sub(r'viewBox="[^"]*"', size, drawing, count=1)


def take(out: Path) -> None:
    """Write both pictures, with few colours."""
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as made:
        browser = playwright.chromium.launch(executable_path=find(), args=ARGUMENTS)
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        page.goto(write_report(out).absolute().as_uri())
        page.screenshot(path=IMAGES / "report.png")
        drawing = Path(made) / "terminal.svg"
        drawing.write_text(terminal(out), encoding="utf-8")
        page.goto(drawing.as_uri())
        page.set_viewport_size({"width": 1300, "height": 1300})
        page.locator("svg").screenshot(path=IMAGES / "terminal.png")
        browser.close()
    for name in ("report", "terminal"):
        file = IMAGES / f"{name}.png"
        Image.open(file).convert("RGB").quantize(64).save(file, optimize=True)


if __name__ == "__main__":
    take(Path(sys.argv[1]))
