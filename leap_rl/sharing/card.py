"""Model cards as on Hugging Face's hub: Markdown for readers, front matter for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from textwrap import fill
from typing import Any

import yaml

from leap_rl.core import plain_yaml
from leap_rl.core.regular_file import read_given
from leap_rl.networks.custom import EncoderSpec
from leap_rl.storage.dataclass_from_json import dataclass_from_json
from leap_rl.storage.run_folder import INITIALIZATION

CARD = "README.md"
OPTIONS = "config.yaml"
FILES = (INITIALIZATION, OPTIONS, CARD)
ONNX = "encoder.onnx"
"""The encoder again, where it is asked for."""

SAVED, MOST, SEEN = "agent steps saved", "of at most", "trained on it"

_FENCE = "---\n"
_FRONT = {
    "license": "apache-2.0",
    "library_name": "leap-rl",
    "pipeline_tag": "reinforcement-learning",
    "tags": ["leap", "meta-learning", "reinforcement-learning"],
}


_NORMALIZED = (
    " The encoder takes observations that are normalised by a running mean and variance, each "
    "agent's own: agent.normalize_observations."
)


_LOAD = """\
```python
encoder = leap_rl.load_encoder("FOLDER"{trust})  # {dtype}observations to float32 features
```
"""

_LOAD_CONVOLUTIONS = """\
It has the convolutions alone, of which `load_encoder` makes no encoder; agents that have
`agent.share = convolutions` start from them:

```bash
leap-rl learn --init FOLDER --agent.share convolutions --task.games GAMES{trust}
```
"""

_LOAD_SB3 = """\
In stable-baselines3, into a model of the same `policy_kwargs` (`agent.sb3`), such as
`model = {name}("{policy}", env)`; what is not in the file stays as the library drew it:

```python
from safetensors.torch import load_file
start = load_file("FOLDER/initialization.safetensors")
found = model.policy.load_state_dict(start, strict=False)
assert not found.unexpected_keys, "the model has another network"
{follow}```
"""
_FOLLOWS = {"sb3:DQN": "q_net", "sb3:SAC": "critic"}
"""What a target network follows, which such a file leaves out."""


@dataclass(frozen=True, kw_only=True)
class Card:
    """The origin and the measurements of an exported initialization."""

    name: str
    encoder: str
    """As `agent.encoder` names it."""
    observation_shape: tuple[int, ...]
    """Height, width and channels, or a vector's length."""
    share: str
    """As `agent.share` says it: the whole encoder, its convolutions alone, or the whole agent."""
    method: str
    """As `meta.method` names it."""
    games: tuple[str, ...]
    meta_steps: int
    agent_steps: int | None
    """Of all its agents together; none where what made its start is not known."""
    seed: int
    leap_rl: str
    """The version that made it."""
    sha256: str
    """Of the file of parameters."""
    verdicts: tuple[str, ...]
    """Of evaluations, a few sentences each."""
    measured: tuple[Mapping[str, str], ...] = ()
    """Rows of their tables of agent steps saved; `SAVED`, `MOST` and `SEEN` are columns."""
    commands: tuple[str, ...] = ()
    """Which made the evaluations; FOLDER stands for the card's."""
    encoder_arguments: Mapping[str, Any] = field(default_factory=dict)
    encoder_sha256: str | None = None
    """Of the file that defines an encoder that is none of leap_rl's."""

    @property
    def encoder_spec(self) -> EncoderSpec:
        return EncoderSpec(
            name=self.encoder, arguments=self.encoder_arguments, sha256=self.encoder_sha256
        )


def write_card(
    card: Card, *, normalized: bool = False, algorithm: str = "a2c", trust: str = ""
) -> str:
    """Return a card's text.

    Args:
        card: What it says.
        normalized: Whether its agents normalise observations.
        algorithm: Who learned, `agent.algorithm`; of a library's own network it says how it loads.
        trust: What commands say at their end where its options name modules.
    """
    known = {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in asdict(card).items()
    }
    shape = " x ".join(map(str, card.observation_shape))
    what = "an agent, its encoder and heads" if card.share == "agent" else "an encoder"
    steps = "an unknown number of" if card.agent_steps is None else f"{card.agent_steps:,}"
    unknown = " and what made its start" * (card.agent_steps is None)
    made = fill(
        f"The starting weights of {what} (`{card.encoder}`, observations of {shape}), "
        f"meta-trained by leap_rl {card.leap_rl}: {card.method}, {card.meta_steps} meta-steps, "
        f"{steps} agent steps in all, on {', '.join(card.games)}{unknown}; seed {card.seed}. "
        f"`{OPTIONS}` has every option." + _NORMALIZED * normalized,
        width=100,
    )
    verdicts = "\n".join(
        fill(verdict, width=100, initial_indent="* ", subsequent_indent="  ")
        for verdict in card.verdicts
    )
    fenced = ["```bash", *card.commands, "```"] if card.commands else []
    parts = [_table(card.measured), verdicts, "\n".join(fenced)]
    measured = "\n\n".join(part for part in parts if part)
    own = " --trust_imports" if card.encoder_spec.is_custom else ""
    load = _how_to_load(card, algorithm, own)
    return f"""\
{_FENCE}{plain_yaml.dump({**_FRONT, "leap_rl": known})}{_FENCE}
# {card.name}

{made}

## Measured

{measured or "Nothing yet: `leap-rl evaluate` compares it with a random start."}

## Use

`{INITIALIZATION}` has the parameters by name, as safetensors; its SHA-256 is
`{card.sha256}`.

`FOLDER` is this folder, or `hf://USER/REPO` where it lies on Hugging Face's hub.

```bash
leap-rl evaluate --init FOLDER --games GAMES{trust or own}    # against random starts
```

{load}"""


def _how_to_load(card: Card, algorithm: str, trust: str) -> str:
    library, _, name = algorithm.partition(":")
    images = len(card.observation_shape) > 1
    if library == "sb3" and card.encoder == "library":
        policy, follow = "CnnPolicy" if images else "MlpPolicy", ""
        if one := _FOLLOWS.get(algorithm):
            follow = f"model.{one}_target.load_state_dict(model.{one}.state_dict())\n"
        return _LOAD_SB3.format(name=name, policy=policy, follow=follow)
    if card.share == "convolutions":
        return _LOAD_CONVOLUTIONS.format(trust=trust)
    dtype = "uint8 " if images else ""  # of vectors there are both
    return _LOAD.format(trust=", trust_imports=True" if trust else "", dtype=dtype)


def _table(rows: Sequence[Mapping[str, str]]) -> str:
    """Return rows of the same columns in Markdown; nothing without any."""
    if not rows:
        return ""
    lines = [list(rows[0]), ["---"] * len(rows[0]), *(list(row.values()) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def read_card(folder: Path) -> Card:
    """Return the card in a folder; ValueError if there is none as `write_card` writes it."""
    path = folder / CARD
    try:
        _, front, _ = read_given(path).decode().split(_FENCE, 2)
        known: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in plain_yaml.load(front)["leap_rl"].items()
        }
        return dataclass_from_json(Card, known)
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{path}: is no card that leap-rl export wrote: {reason}") from None
