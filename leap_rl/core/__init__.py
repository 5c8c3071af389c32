"""What the machine computes with: its processor, the same bits each time, compiled loops."""
