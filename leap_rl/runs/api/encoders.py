"""Encoders with meta-trained parameters, for any code."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from leap_rl.learners.registry import encoder_shared_by
from leap_rl.networks.custom import check_trust
from leap_rl.networks.encoders import make_encoder
from leap_rl.networks.parameters import load_parameters
from leap_rl.runs.api.runs import Run, place_of
from leap_rl.runs.header import read_run
from leap_rl.runs.initializations import find_initialization
from leap_rl.sharing import pretrained
from leap_rl.sharing.initialization import encoder_part, load_tensors
from leap_rl.storage.open_run import open_run

if TYPE_CHECKING:
    from torch import nn


def load_encoder(of: str | Path | Run, *, trust_imports: bool = False) -> nn.Module:
    """Return an encoder with meta-trained parameters, on the CPU. Neither Ray nor a game starts.

    Args:
        of: What it is the encoder of: a run or its folder (its newest version), `RUN@12`,
            `RUN@best`, the file of one of its versions, a folder that `leap-rl export` wrote,
            `pretrained:NAME`, or `hf://USER/REPO`, also with `@REVISION`.
        trust_imports: Whether the module may be imported that defines an encoder which is none of
            leap_rl's.

    Returns:
        A `torch.nn.Module` that takes uint8 observations [N, H, W, C], or vectors [N, L], and
        returns float32 features [N, F]. leap_rl's own encoders have an attribute `features`, F.

    Raises:
        ValueError: There is none, it cannot be downloaded, its files are damaged, it holds
            convolutions alone, or it takes an import that is not trusted.
    """
    given = place_of(of)
    if (exported := pretrained.find(given)) is not None:
        return exported.load(trust_imports=trust_imports)
    one = find_initialization(given)
    if one.run is None or one.file is None:
        raise ValueError(
            f"{given}: lies in no run, so its network is not known; name the run, or "
            "a folder that leap-rl export wrote"
        )
    config = read_run(open_run(one.run)).config
    shared = encoder_shared_by(config.task, config.agent)
    if shared is None or config.agent.share == "convolutions":
        what = f"task.kind = {config.task.kind}, agent.share = {config.agent.share}"
        raise ValueError(f"{given}: has no whole encoder of an agent ({what})")
    spec, observation_shape = shared
    check_trust(spec, given, trusts_imports=trust_imports)
    encoder = make_encoder(spec, observation_shape)
    load_parameters(encoder, encoder_part(load_tensors(one.file.read_bytes())))
    return encoder
