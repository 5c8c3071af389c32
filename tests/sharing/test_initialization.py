"""Which tensors of a file are a start, by the names that different agents give their encoders."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from leap_rl.networks.parameters import layout_of
from leap_rl.sharing.initialization import read_initialization, save_tensors


@pytest.mark.parametrize("child", ["body", "features_extractor", "actor", "q_net"])
@pytest.mark.parametrize("heads", [("policy", "value"), ("actor", "critic")])
def test_an_agents_encoder_is_found_whatever_modules_are_called(
    child: str, heads: tuple[str, ...], tmp_path: Path
) -> None:
    """The names of a library's own network are free for a user's encoder; a loop's heads too."""
    encoder = nn.ModuleDict({child: nn.Linear(4, 8)})
    agent = nn.ModuleDict({"encoder": encoder, **{name: nn.Linear(8, 2) for name in heads}})
    layout = layout_of(encoder)
    own = {name: part.detach() for name, part in encoder.named_parameters()}
    for module in (agent, encoder):
        named = {name: part.detach() for name, part in module.named_parameters()}
        (tmp_path / "file").write_bytes(save_tensors(named))
        vector, _ = read_initialization(str(tmp_path / "file"), layout)
        assert torch.equal(vector, layout.pack(own))
