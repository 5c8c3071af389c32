"""The parameter server, from the bottom up: `slots`, `rounds`, `parameter_server`."""
