"""Ask which start helps with a cart that no start has seen, from Python: minutes on two cores."""

from __future__ import annotations

import leap_rl

study = leap_rl.study("studies/carts.yaml", out="runs/carts", options={"quick": True})
print(study.verdict)
print(study.estimates())  # a DataFrame: arm, member, measure, estimate, low, high
encoder = leap_rl.load_encoder(study.best)  # a torch.nn.Module: observations to features
