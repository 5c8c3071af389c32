"""A report is one page that loads nothing and runs nothing, whatever a run's folder says."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from leap_rl.evaluation.page import Part, Picture, Table, render
from leap_rl.evaluation.plots import Line, Panel, draw

HOSTILE = "<script>alert(1)</script>\"'&"
VOID = {"meta", "img", "br", "link", "source", "!doctype"}
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


class Page(HTMLParser):
    """Collects what a page refers to and says, and sees to it that its tags are closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []
        self.texts: list[str] = []
        self.tags: set[str] = set()
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            assert not name.startswith("on")
            if name in ("src", "href", "srcset"):
                self.links.append(value or "")
            if name == "alt":
                self.texts.append(value or "")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def part(svg: bytes, word: str = HOSTILE) -> Part:
    return Part(
        title=word,
        subtitle=word,
        verdict=[word, "second"],
        pictures=[Picture(title=word, svg=svg, narrow=svg, says=word)],
        tables=[
            Table(title=word, rows=[{word: word, "wide": "x" * 300}], says=word),
            Table(title="Config", rows=[{"option": word, "value": 1}], folded=True),
        ],
        commands={word: [f"leap-rl {word}", "second line"]},
    )


@pytest.fixture(scope="module")
def svg(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    line = Line([1, 2, 3], [0.5, 0.25, 1.0])
    panels = [Panel({"leap": line}, "agent steps", "return")]
    files = draw(panels, tmp_path_factory.mktemp("figures") / "one")
    return next(file for file in files if file.suffix == ".svg").read_bytes()


def test_a_strangers_words_stay_words(svg: bytes) -> None:
    text = render([part(svg), part(svg)], made=HOSTILE)
    page = Page(text)
    assert "script" not in page.tags
    assert HOSTILE in page.texts
    assert page.texts.count("second") == 2
    assert {"details", "table", "figure", "pre"} <= page.tags


def test_it_loads_nothing_from_anywhere(svg: bytes) -> None:
    text = render([part(svg, "plain")], made="now")
    page = Page(text)
    assert len(page.links) == 2  # one of them for narrow screens
    assert all(link.startswith("data:image/svg+xml;base64,") for link in page.links)
    assert "url(" not in text
    assert "default-src 'none'" in text
    assert not re.search(r"https?://", text)


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here to look at it with")
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_browser_shows_it_whole(svg: bytes, width: int, scheme: str, tmp_path: Path) -> None:
    """Nothing reaches over the page's right edge, however long it is, and dark is dark."""
    text = render([part(svg, "wide_" * 60)], made="now " * 100)
    (tmp_path / "index.html").write_text(text)
    # Chromium takes no scheme from the command line; headless windows are no narrower than 500.
    dark = "--blink-settings=preferredColorScheme=0"
    frame = f'<iframe src="index.html" style="border:0;width:{width}px;height:2500px"></iframe>'
    (tmp_path / "frame.html").write_text(f'<body style="margin:0;background:#f0f">{frame}</body>')
    shot = tmp_path / "shot.png"
    assert CHROMIUM is not None
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    command += [f"--window-size={max(width, 500)},2500", f"--screenshot={shot}"]
    command += [dark] if scheme == "dark" else []
    page = tmp_path / "frame.html"
    subprocess.run([*command, page.as_uri()], check=True, capture_output=True, timeout=50)
    pixels = np.asarray(Image.open(io.BytesIO(shot.read_bytes())).convert("RGB")).astype(int)
    shown = pixels[:, :width]
    background = shown[2, 2]
    assert (background.mean() < 60) == (scheme == "dark")
    assert (np.abs(shown[:, -8:] - background).max(axis=2) < 8).all()
    assert (np.abs(shown - background).max(axis=2) > 100).mean() > 0.01
