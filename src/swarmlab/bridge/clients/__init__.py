"""Client processes of the experiments, one module each, and the arms they run."""
