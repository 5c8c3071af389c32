from __future__ import annotations

from pathlib import Path

import onnxruntime
import pytest
import torch
from torch import Tensor, nn

from leap_rl.networks.encoders import ENCODERS, initialize, make_encoder
from leap_rl.sharing.onnx_file import onnx_of

SHAPES = {"minatar": (10, 10, 3), "mlp": (6,)}
SLOW = [pytest.mark.slow]
"""torch.onnx takes some 4 s for each; tests/cli/test_export.py has one that takes images."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == "mlp" else SLOW) for name in ENCODERS]
)
def test_onnxruntime_computes_the_features_that_torch_does(
    name: str, capfd: pytest.CaptureFixture[str], recwarn: pytest.WarningsRecorder
) -> None:
    shape = SHAPES.get(name, (84, 84, 4))
    draws = torch.Generator().manual_seed(0)
    encoder = make_encoder(name, shape)
    initialize(encoder, draws)
    state = torch.get_rng_state()
    data = onnx_of(encoder, shape)
    assert torch.equal(torch.get_rng_state(), state)
    assert capfd.readouterr() == ("", "")
    assert not recwarn
    for path in (Path.cwd(), Path(torch.__file__).parent, "encoders.py"):
        assert str(path).encode() not in data  # nothing of this machine
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    (given,), (returned,) = session.get_inputs(), session.get_outputs()
    assert (given.name, returned.name) == ("observations", "features")
    assert (given.shape[1:], returned.shape[1:]) == ([*shape], [encoder.features])
    assert given.type == ("tensor(uint8)" if len(shape) == 3 else "tensor(float)")
    for n in (1, 7):
        if len(shape) == 3:
            observations = torch.randint(256, (n, *shape), dtype=torch.uint8, generator=draws)
        else:
            observations = torch.randn((n, *shape), generator=draws)
        (features,) = session.run(None, {"observations": observations.numpy()})
        expected = encoder(observations).detach()
        assert expected.abs().max() > 0.01
        torch.testing.assert_close(torch.from_numpy(features), expected, rtol=1e-4, atol=1e-6)


class Branching(nn.Module):
    def forward(self, observations: Tensor) -> Tensor:
        return observations if observations.sum() > 0 else -observations


def test_an_encoder_that_torch_cannot_export_is_refused_in_a_line(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(ValueError, match=r"^--to onnx: torch\.onnx cannot export") as refused:
        onnx_of(Branching(), (6,))
    assert capfd.readouterr() == ("", "")
    line = str(refused.value)
    assert "\n" not in line
    assert "data-dependent" in line
    assert line.endswith("export it to safetensors alone")
    assert len(line) < 450
