"""MinAtar's five games (Young and Tian 2019), B of them at once in compiled loops.

The rules are those of the authors' own package, minatar 1.0.15, with which the tests compare each
agent step of whole episodes: the same seed and actions give the same observations and rewards. The
one difference is deliberate. There, an action that is repeated at the start of an episode is the
last one of the episode before; here an episode depends on nothing before it.

Each game is a module of three kernels over records, one record a game: `start`, `step` and `draw`.
`games` collects them, and `common` has their records and random numbers.
"""
