from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import av
import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from leap_rl.video.clip import FrameRenderer, NoVideoError, check_format, write_clip


def frames(count: int) -> list[NDArray[np.uint8]]:
    """A gray that gets lighter, with a red corner in one frame of each pair, now this, now that."""
    made = []
    for number in range(count):
        frame = np.full((64, 96, 3), 40 + 2 * number, dtype=np.uint8)
        if number % 4 in (0, 3):
            frame[:32, :32] = (255, 0, 0)
        made.append(frame)
    return made


def write(path: Path, shown: list[NDArray[np.uint8]], frames_per_s: int = 60) -> Path:
    def overwritten() -> Iterator[NDArray[np.uint8]]:
        for frame in shown:
            yield frame
            frame[:] = 7

    write_clip(path, overwritten(), width=96, height=64, frames_per_s=frames_per_s)
    return path


@pytest.mark.parametrize("rate", [50, 60])
def test_an_mp4_has_every_frame_at_its_time(tmp_path: Path, rate: int) -> None:
    path = write(tmp_path / "clip.mp4", frames(90), rate)
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        assert stream.average_rate == rate
        found = [frame.to_ndarray(format="rgb24") for frame in container.decode(stream)]
        times = stream.duration * stream.time_base  # type: ignore[operator]
    assert float(times) == pytest.approx(90 / rate, abs=0.001)
    assert len(found) == 90
    for own, decoded in zip(frames(90), found, strict=True):
        assert np.abs(own[40:].astype(int) - decoded[40:]).max() <= 6
        assert abs(int(own[8, 8, 1]) - int(decoded[8, 8, 1])) <= 12


def test_equal_frames_give_equal_files(tmp_path: Path) -> None:
    for kind in ("mp4", "gif"):
        one, two = (write(tmp_path / f"{name}.{kind}", frames(20)) for name in "ab")
        assert one.read_bytes() == two.read_bytes()


@pytest.mark.parametrize(("count", "rate"), [(90, 60), (91, 60), (1, 60), (75, 50)])
def test_a_gif_keeps_time_and_what_flickers(tmp_path: Path, count: int, rate: int) -> None:
    with Image.open(write(tmp_path / "clip.gif", frames(count), rate)) as clip:
        assert clip.n_frames == (count + 1) // 2
        total_ms = 0
        for number in range(clip.n_frames):
            clip.seek(number)
            total_ms += clip.info["duration"]
            if 2 * number + 1 < count:  # both of the pair are there
                assert clip.convert("RGB").getpixel((8, 8))[0] > 200  # type: ignore[index]
        assert clip.info["loop"] == 0
    assert total_ms == pytest.approx(1000 * count / rate, abs=10)


def test_a_frame_that_stays_is_counted_in_a_gifs_time(tmp_path: Path) -> None:
    still = [np.full((64, 96, 3), 9, dtype=np.uint8) for _ in range(60)]
    still[-1][:] = 200
    with Image.open(write(tmp_path / "clip.gif", still)) as clip:
        total_ms = 0
        for number in range(clip.n_frames):
            clip.seek(number)
            total_ms += clip.info["duration"]
    assert total_ms == 1000


@pytest.mark.parametrize("kind", ["mp4", "gif"])
def test_a_clip_that_is_broken_off_leaves_what_was_there(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"clip.{kind}"
    path.write_bytes(b"before")

    def broken_off() -> Iterator[NDArray[np.uint8]]:
        yield from frames(90)  # so many that some are on disk
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_clip(path, broken_off(), width=96, height=64, frames_per_s=60)
    assert path.read_bytes() == b"before"
    assert [one.name for one in tmp_path.iterdir()] == [path.name]


def test_other_formats_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^out = clip\.avi: must end in \.mp4 or \.gif"):
        check_format(Path("clip.avi"))


def test_without_pyav_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    check_format(Path("clip.gif"))
    with pytest.raises(NoVideoError, match="`pip install av` brings it"):
        check_format(Path("clip.mp4"))


@pytest.mark.parametrize("height", [210, 213, 250])
@pytest.mark.parametrize("scale", [1, 2, 3, 4])
def test_pixels_are_repeated_and_sizes_are_even(height: int, scale: int) -> None:
    drawing = FrameRenderer(height=height, scale=scale)
    screen = np.random.default_rng(0).integers(256, size=(height, 160, 3), dtype=np.uint8)
    frame = drawing.draw(screen, title="", caption="")
    assert frame.shape == (drawing.height, drawing.width, 3)
    assert drawing.height % 2 == drawing.width % 2 == 0
    columns = drawing.width // 160
    assert columns / scale == pytest.approx(12 / 7, abs=0.3)
    picture = frame[-height * scale :]
    expected = np.repeat(np.repeat(screen, scale, axis=0), columns, axis=1)
    assert np.array_equal(picture, expected)


def lines(**said: str) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    drawing = FrameRenderer(height=210, scale=3)
    screen = np.zeros((210, 160, 3), dtype=np.uint8)
    drawing.draw(screen, title="x", caption="y")
    return drawing.draw(screen, **said)[:-630].copy()


def test_the_line_says_what_it_is_told() -> None:
    one = lines(title="pong", caption="score 1")
    assert one.any()
    assert np.array_equal(one, lines(title="pong", caption="score 1"))
    assert not np.array_equal(one, lines(title="pong", caption="score 2"))
    assert not np.array_equal(one, lines(title="qbert", caption="score 1"))


def test_a_title_that_has_no_room_is_left_out() -> None:
    assert np.array_equal(lines(title="x" * 90, caption="score"), lines(title="", caption="score"))
    assert not np.array_equal(lines(title="x" * 9, caption="sco"), lines(title="", caption="sco"))
