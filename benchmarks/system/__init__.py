"""What the parts of the system cost: Leap's sums, snapshots, the server, a start, messages."""
