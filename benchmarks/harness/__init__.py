"""What benchmarks share: experiments in cells, runs of leap-rl, drawn failures, comparisons."""
