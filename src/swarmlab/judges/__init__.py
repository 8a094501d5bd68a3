"""One module per experiment: from a stored run to numbers, findings, a table and figures.

Each offers ``measure(run, expected) -> Measured``, ``table(summary) -> rich table`` and, if it draws,
``draw(run, summary)`` with ``FIGURE_KINDS``, the kinds of history that the figures need (they are what is published).
``draw`` gives one matplotlib figure, or several as a mapping from a suffix of the file name to a figure: "" for the
main one, "heatmap" for ``<exp>_heatmap.png``.
``draw_repeats(runs)`` gives one more, of several published runs: pairs of ``run.json`` and ``summary.json``.
One that has texts to show side by side offers ``texts(run) -> list of rich tables``.
"""
