"""One module per experiment: from a stored run to numbers, findings, a table and a figure.

Each offers ``measure(run, expected) -> Measured``, ``table(summary) -> rich table`` and, if it draws,
``draw(run, summary) -> matplotlib figure`` with ``FIGURE_KINDS``, the kinds of history that the figure needs.
One that has texts to show side by side offers ``texts(run) -> list of rich tables``.
"""
