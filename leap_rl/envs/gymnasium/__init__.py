"""Any Gymnasium environment with discrete actions, or continuous ones between bounds."""
