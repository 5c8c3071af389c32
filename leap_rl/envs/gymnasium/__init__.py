"""Any Gymnasium environment with discrete actions."""
