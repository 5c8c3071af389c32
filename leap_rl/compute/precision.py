"""The numbers that a network computes with."""

from __future__ import annotations

from typing import Literal

Precision = Literal["float32", "bfloat16"]
"""Of weights and activations within a network; parameters and what comes out are float32."""
