"""What every room may use: random streams, errors, parsing of options, compiled loops."""
