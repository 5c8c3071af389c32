"""Encoders as ONNX files, by torch.onnx: for programs without PyTorch."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from importlib.util import find_spec
from io import StringIO
from textwrap import shorten
from typing import TYPE_CHECKING

from leap_rl.core.lines import in_a_line

if TYPE_CHECKING:
    from torch import nn

_WAY_OUT = "`pip install --upgrade 'leap-rl[onnx]'` has what it takes"


def onnx_of(encoder: nn.Module, observation_shape: tuple[int, ...]) -> bytes:
    """Return the bytes of an ONNX file that computes what an encoder on the CPU does.

    A model of `observations`, uint8 [N, H, W, C] or float32 [N, L], to `features`, float32 [N, F],
    for any N. ValueError if a package that torch.onnx needs is missing, or too old, or
    if torch.onnx cannot export the encoder, such as for an `if` that asks for values.
    """
    if missing := [name for name in ("onnx", "onnxscript") if find_spec(name) is None]:
        raise ValueError(f"--to onnx: {' and '.join(missing)} is not installed; {_WAY_OUT}")
    import torch

    dtype = torch.uint8 if len(observation_shape) == 3 else torch.float32
    example = torch.zeros((2, *observation_shape), dtype=dtype)
    try:
        with _quiet():
            program = torch.onnx.export(
                encoder,
                (example,),
                dynamo=True,
                input_names=["observations"],
                output_names=["features"],
                dynamic_shapes=({0: torch.export.Dim("N")},),
                verbose=False,
            )
    except ImportError as error:  # of a version that is too old for torch
        raise ValueError(f"--to onnx: {error}; {_WAY_OUT}") from None
    except torch.onnx.OnnxExporterError as error:
        reason = in_a_line(error.__cause__ or error)  # its own text is a page of advice
        raise ValueError(
            f"--to onnx: torch.onnx cannot export this encoder ({shorten(reason, 300)}); export it "
            "to safetensors alone"
        ) from None
    assert program is not None
    model = program.model_proto
    graph = model.graph
    # torch's notes have paths of this machine.
    parts = (graph.node, graph.initializer, graph.value_info, graph.input, graph.output)
    for one in (model, graph, *(one for part in parts for one in part)):
        one.ClearField("metadata_props")
    return bytes(model.SerializeToString(deterministic=True))


@contextmanager
def _quiet() -> Iterator[None]:
    logger = logging.getLogger("torch")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        # Of a failure torch prints graphs.
        with warnings.catch_warnings(), redirect_stderr(StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)
