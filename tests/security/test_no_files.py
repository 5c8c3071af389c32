"""Pipes, devices and files without end, wherever a file may be named: one line, at once."""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from PIL import Image

from leap_rl.core.regular_file import read_given, read_regular
from leap_rl.sharing.exported import find
from leap_rl.tasks.images import data
from leap_rl.tasks.images.data import decode, read_omniglot
from tests.commands import CATCH, LOCALLY, QUIET, Refused
from tests.security.runs import BOWLS

pytestmark = pytest.mark.timeout(60)


def pipe(path: Path) -> Path:
    os.mkfifo(path)
    return path


def endless(path: Path) -> Path:
    with path.open("wb") as file:
        file.truncate(2**40)  # which takes no room on the disk
    return path


def device(path: Path) -> Path:
    path.symlink_to("/dev/zero")
    return path


KINDS = [pipe, endless, device]

DOORS = {
    "meta.init": ["train", *BOWLS, "--meta.init", "HERE", "--run_dir", "NEW"],
    "config": ["train", *BOWLS, "--config", "HERE", "--run_dir", "NEW"],
    "a group": ["train", *BOWLS, "--task", "HERE", "--run_dir", "NEW"],
    "a group in a config": ["train", *BOWLS, "--config", "CONFIG", "--run_dir", "NEW"],
    "run_dir": ["train", *BOWLS, "--run_dir", "HERE"],
    "learn": ["learn", *CATCH, *LOCALLY, "--init", "HERE", "--run_dir", "NEW"],
    "evaluate": ["evaluate", *CATCH, *QUIET, "--init", "HERE", "--run_dir", "NEW"],
    "resume": ["resume", "HERE"],
    "report": ["report", "HERE"],
    "export": ["export", "HERE", "--out", "NEW"],
    "play": ["play", "HERE"],
    "play an agent": ["play", "HERE", "--game", "pong", "--out", "NEW.mp4"],
    "study": ["study", "HERE", "--out", "NEW"],
    "study's folder": ["study", "--config", "STUDY", "--out", "HERE"],
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("door", DOORS)
def test_what_is_no_file_is_one_line(
    door: str, kind: Callable[[Path], Path], tmp_path: Path, refused: Refused
) -> None:
    here = kind(tmp_path / "here.safetensors")
    config, study = tmp_path / "config.yaml", tmp_path / "study.yaml"
    config.write_text(yaml.dump({"agent": {"rllib": str(here)}}))
    study.write_text(yaml.dump({"games": ["CartPole-v1"], "held_out": ["CartPole-v0"]}))
    named = {"HERE": here, "CONFIG": config, "STUDY": study, "NEW": tmp_path / "new"}
    line = refused(*[str(named.get(word, word)) for word in DOORS[door]])
    assert str(here) in line or "is no file" in line
    assert len(line) < 500
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("kind", KINDS)
def test_a_card_that_is_no_file_is_one_line(kind: Callable[[Path], Path], tmp_path: Path) -> None:
    for name in ("initialization.safetensors", "config.yaml", "README.md"):
        kind(tmp_path / name)
    found = find(tmp_path)
    assert found is not None
    for read in (lambda: found.card, found.read):
        with pytest.raises(ValueError, match=r"cannot be read: (is no regular file|is larger)"):
            read()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["images_background.zip", "images_background/A/c/0001_01.png"])
def test_images_that_are_no_files_are_one_line(
    name: str, kind: Callable[[Path], Path], tmp_path: Path
) -> None:
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    kind(tmp_path / name)
    with pytest.raises(ValueError, match=r"^task\.data: .*images_background"):
        read_omniglot(str(tmp_path))


def png(side: int) -> bytes:
    file = io.BytesIO()
    Image.new("1", (side, side)).save(file, format="PNG")
    return file.getvalue()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"\0" * (data.LARGEST_PNG + 1), "is larger than"),
        (data.PNG_START + data.PNG_END, "is no whole PNG file"),
        (png(data.LARGEST_SIDE + 1), "1025 × 1025 pixels"),
    ],
)
def test_an_image_of_a_zip_that_is_too_large_is_one_line(
    content: bytes, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data, "DRAWERS", 1)
    with zipfile.ZipFile(tmp_path / "images_background.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("images_background/A/c/0001_01.png", content)
    with pytest.raises(ValueError, match=says) as refusal:
        read_omniglot(str(tmp_path))
    assert str(refusal.value).startswith("task.data")


def test_only_a_png_is_decoded() -> None:
    file = io.BytesIO()
    Image.new("L", (105, 105)).save(file, format="GIF")
    with pytest.raises(ValueError, match="is no PNG file"):
        decode(file.getvalue())


def test_a_link_is_read_where_a_user_names_it_alone(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    link = tmp_path / "link"
    link.symlink_to("file")
    assert read_given(link) == b"content"
    with pytest.raises(OSError, match="Too many levels of symbolic links"):
        read_regular(link)
    assert read_regular(tmp_path / "file", 7) == b"content"
    with pytest.raises(OSError, match="is larger than 6 bytes"):
        read_regular(tmp_path / "file", 6)
