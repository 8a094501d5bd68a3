"""One page per run, to be opened in a browser without a network."""
