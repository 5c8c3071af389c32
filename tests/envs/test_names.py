from __future__ import annotations

import pytest

from leap_rl.envs.names import join_name, split_name


def test_a_name_is_split_from_its_arguments_and_back() -> None:
    assert split_name("pong") == ("pong", {})
    name = "ALE/Pong-v5@mode=1,render_mode=rgb_array"
    base, arguments = split_name(name)
    assert (base, arguments) == ("ALE/Pong-v5", {"mode": "1", "render_mode": "rgb_array"})
    assert list(arguments) == ["mode", "render_mode"]
    assert join_name(base, arguments) == name
    assert join_name("pong", {}) == "pong"


def test_blanks_do_not_count_and_a_value_may_hold_an_equals_sign() -> None:
    assert split_name("x@ a = 1 , b=2=3") == ("x", {"a": "1", "b": "2=3"})


@pytest.mark.parametrize("name", ["@a=1", "x@", "x@a", "x@a=", "x@=1", "x@a=1,", "x@,a=1"])
def test_what_is_not_spelled_so_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"^'{name}': must be spelled NAME or NAME@key=value"):
        split_name(name)


def test_a_key_that_comes_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="a comes twice"):
        split_name("x@a=1,a=1")
