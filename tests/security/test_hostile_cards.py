"""Model cards of a stranger: one line, and nothing of them is run or taken for what it is not."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from leap_rl.core import plain_yaml
from leap_rl.sharing import hub
from leap_rl.sharing.card import CARD
from leap_rl.sharing.exported import find, locate, names

WRONG = [None, True, -1, 1.5, float("nan"), [], [1], [None], {}, {"a": [1]}]
FENCE = "---\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(locate(names()[0]), tmp_path / "theirs"))


def read(folder: Path, text: str) -> object:
    (folder / CARD).write_text(text)
    found = find(folder)
    assert found is not None
    return found.card


def front(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = plain_yaml.load((folder / CARD).read_text().split(FENCE)[1])
    return found


@pytest.mark.parametrize("field", ["name", "encoder", "share", "method", "leap_rl", "sha256"])
def test_a_card_whose_text_is_another_value_is_one_line(field: str, folder: Path) -> None:
    own = front(folder)
    assert read(folder, f"{FENCE}{plain_yaml.dump(own)}{FENCE}")
    for value in WRONG:
        lies = {**own, "leap_rl": {**own["leap_rl"], field: value}}
        with pytest.raises(ValueError, match=rf"{CARD}: is no card .*: {field} = "):
            read(folder, f"{FENCE}{plain_yaml.dump(lies)}{FENCE}")


@pytest.mark.parametrize("field", ["observation_shape", "games", "meta_steps", "agent_steps"])
def test_a_card_whose_numbers_or_lists_are_other_values_is_one_line(
    field: str, folder: Path
) -> None:
    own = front(folder)
    numbers: list[Any] = [True, -1, 1.5, "x", [-1, 2], [None], {}, 10**19]
    numbers += [None] * (field != "agent_steps")  # which may not be known
    for value in numbers:
        lies = {**own, "leap_rl": {**own["leap_rl"], field: value}}
        with pytest.raises(ValueError, match=rf"{CARD}: is no card .*: {field} = "):
            read(folder, f"{FENCE}{plain_yaml.dump(lies)}{FENCE}")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# A card\n",
        f"{FENCE}leap_rl: {{}}\n",
        f"{FENCE}- leap_rl\n{FENCE}",
        f"{FENCE}leap_rl: [1]\n{FENCE}",
        f"{FENCE}leap_rl: {{1: 2}}\n{FENCE}",
        f"{FENCE}leap_rl: {{a: &a [1], b: *a}}\n{FENCE}",
        f'{FENCE}leap_rl: {{name: "\\e[2J"}}\n{FENCE}',
        f"{FENCE}leap_rl: !!python/object/apply:os.system [ls]\n{FENCE}",
        f"{FENCE}leap_rl: {'[' * 40_000}\n{FENCE}",
        f"{FENCE}leap_rl: {'x' * 2**21}\n{FENCE}",
    ],
    ids=lambda text: text[4:40],
)
def test_what_is_no_card_is_one_line(text: str, folder: Path) -> None:
    with pytest.raises(ValueError, match=rf"{CARD}: is no card that leap-rl export wrote") as error:
        read(folder, text)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 500


@pytest.mark.parametrize(
    "name",
    [
        *(
            "hf://",
            "hf://a",
            "hf://a/b/c",
            "hf://../b",
            "hf://a/..",
            "hf://a%2f../b",
            "hf://a/b?x=1",
        ),
        *(
            "hf://a/b@",
            "hf://a/b@/etc/hostname",
            "hf://a/b@x/../../y",
            "hf://a/b@..",
            "hf://a/b@-x",
        ),
        *("hf://a/b@x\0", "hf://a/b@\x1b[2J", "hf://\uff41/b", "hf://a/b@\uff41", "HF://a/b"),
    ],
)
def test_what_names_no_repository_is_asked_of_nobody(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "_library", lambda: pytest.fail("it was asked"))
    with pytest.raises(ValueError, match="must be hf://USER/REPO or hf://USER/REPO@REVISION"):
        hub.download(name)
