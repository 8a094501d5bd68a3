from __future__ import annotations

import numpy as np
import pytest
from matplotlib.figure import Figure

from swarmlab.analysis.plots.digest import figure_digest, metadata, stored_digest


def drawn(change=None, *, dpi=100):
    figure = Figure(dpi=dpi)
    axes = figure.subplots()
    axes.plot([0, 1, 2], [1.0, 2.0, np.nan])
    axes.bar([0, 1], [3.0, 4.0])
    axes.broken_barh([(0, 1)], (0, 1))
    axes.imshow([[1.0, 2.0]])
    axes.text(0, 0, "a word")
    axes.set_title("title", loc="left")
    figure.text(0, 0, "caption")
    if change:
        change(axes)
    return figure


def test_the_same_data_has_the_same_digest_however_large_it_is_drawn():
    assert figure_digest(drawn()) == figure_digest(drawn(dpi=30))


def test_what_differs_in_the_seventh_digit_is_the_same():
    def change(axes):
        axes.lines[0].set_ydata([1.0 + 1e-9, 2.0, np.nan])

    assert figure_digest(drawn(change)) == figure_digest(drawn())


@pytest.mark.parametrize(
    "change",
    [
        lambda axes: axes.lines[0].set_ydata([1.0, 2.1, np.nan]),
        lambda axes: axes.patches[0].set_height(3.1),
        lambda axes: axes.images[0].set_data([[1.0, 2.1]]),
        lambda axes: axes.collections[0].remove(),
        lambda axes: axes.texts[0].set_text("another"),
        lambda axes: axes.set_title("another", loc="left"),
        lambda axes: axes.set_ylabel("another"),
        lambda axes: axes.figure.texts[0].set_text("another"),
    ],
)
def test_any_other_data_or_word_has_another(change):
    assert figure_digest(drawn(change)) != figure_digest(drawn())


@pytest.mark.parametrize("kind", [".png", ".pdf"])
def test_a_file_tells_what_it_shows(tmp_path, kind):
    figure = drawn()
    figure.savefig(tmp_path / f"f{kind}", metadata=metadata(figure, kind))
    assert stored_digest(tmp_path / f"f{kind}") == figure_digest(figure)


def test_a_file_of_somebody_else_tells_nothing(tmp_path):
    drawn().savefig(tmp_path / "f.png")
    assert stored_digest(tmp_path / "f.png") is None
