from __future__ import annotations

import re
import shutil
import subprocess
from html.parser import HTMLParser

import numpy as np
import pytest
from PIL import Image

from swarmlab.check import judge
from swarmlab.errors import BadInput
from swarmlab.judges.claims import ROOT
from swarmlab.record.rundir import RunDir
from swarmlab.report.__main__ import main
from swarmlab.report.page import write_report
from tests.analysis.histories import DEFAULT_SCENARIOS, History, default_run

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Page(HTMLParser):
    """What a browser would fetch, the tags, and the words."""

    def __init__(self, text):
        super().__init__()
        self.sources, self.tags, self.words, self.open = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.sources += [
            value for name, value in attrs if name in ("src", "href") and value and value[0] != "#"
        ]
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def stored(root, history=None, scenarios=DEFAULT_SCENARIOS):
    run_dir = RunDir.create(
        root, "failover", config={"seed": 5}, argv=[], overrides=["+exp=failover"], seed=5, world="real",
        arms=["petals", "issue_patch", "swarmlab"], model={"id": "tiny_llama", "hash": "ab"},
    )  # fmt: skip
    run_dir.update(scenarios=list(scenarios))
    (history or default_run()).save(run_dir.path)
    run_dir.finish("complete")
    judge(run_dir.path)
    return run_dir.path


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    return write_report(stored(tmp_path_factory.mktemp("report")))


def test_it_lies_in_the_run_folder_and_needs_nothing_else(page):
    assert (page.name, (page.parent / "run.json").exists()) == ("report.html", True)
    parsed = Page(page.read_text())
    assert not parsed.open
    assert "script" not in parsed.tags
    fetched = [source for source in parsed.sources if not source.startswith("data:image/svg+xml;base64,")]
    assert fetched
    assert all((page.parent / source).is_file() for source in fetched)  # links to its own files


def test_it_shows_table_verdict_figure_timeline_config_and_environment(page):
    text = page.read_text()
    words = " ".join(Page(text).words)
    for part in (
        "holds", "real swarm", "Failover: the same failure, arm by arm", "split_replacement", "tiny_llama",
        "kill of c (8:16) before token 8 happened", "8 tokens replayed", "python -m swarmlab.run +exp=failover",
        "seed: 5", "torch", "recovery_over_floor", "real swarm on cpu", "experiments/failover/README.md",
    ):  # fmt: skip
        assert part in words, part
    assert text.count('class="begins"') >= len(DEFAULT_SCENARIOS), "where a scenario begins is seen"
    assert '<td class="left bad">wrong</td>' in text
    assert text.count("data:image/svg+xml;base64,") >= 1
    assert {"history/steps.jsonl", "summary.json"} <= set(Page(text).sources)


def test_what_speaks_against_the_run_is_said(tmp_path):
    history = default_run()
    history.arrays["kill_last", "swarmlab"]["hidden"][0, 9] += 1.0
    words = " ".join(Page(write_report(stored(tmp_path, history)).read_text()).words)
    assert "kill_last / swarmlab / outcome: wrong, expected identical" in words


def test_words_of_the_record_cannot_become_part_of_the_page(tmp_path):
    history = default_run()
    history.rows["faults"][2]["detail"] = "<script>alert(1)</script>"
    parsed = Page(write_report(stored(tmp_path, history)).read_text())
    assert "script" not in parsed.tags
    assert "<script>alert(1)</script>" in " ".join(parsed.words)


def test_a_run_that_shows_nothing_gets_a_page_that_says_so(tmp_path):
    words = " ".join(Page(write_report(stored(tmp_path, History(), ["kill_last"])).read_text()).words)
    assert "unknown" in words
    assert "None: " in words


def test_it_can_lie_elsewhere_with_links_back(page, tmp_path):
    assert main([str(page.parent), "--out", str(tmp_path / "page.html")]) == 0
    links = [one for one in Page((tmp_path / "page.html").read_text()).sources if not one.startswith("data:")]
    assert all((tmp_path / link).is_file() for link in links)


def test_what_was_not_judged_or_is_no_run_is_bad_input_in_one_line(tmp_path, capsys):
    path = stored(tmp_path)
    (path / "summary.json").unlink()
    with pytest.raises(BadInput, match="judged"):
        write_report(path)
    assert main([str(tmp_path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed")
def test_a_browser_shows_it(page, tmp_path):
    shot = tmp_path / "page.png"
    base = [
        CHROMIUM,
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={tmp_path / 'profile'}",
    ]
    url = page.as_uri()
    dom = subprocess.run(
        [*base, "--dump-dom", url], capture_output=True, text=True, timeout=60, check=True
    ).stdout
    assert re.search(r'<span class="verdict holds">holds</span>', dom)
    subprocess.run(
        [*base, "--window-size=1200,3000", f"--screenshot={shot}", url],
        capture_output=True,
        timeout=60,
        check=True,
    )
    with Image.open(shot) as image:
        pixels = np.asarray(image.convert("RGB"), dtype=int)
    # the figure is really drawn: its orange (petals' colour) is on the page and nowhere else
    orange = np.abs(pixels - (0xD5, 0x5E, 0x00)).max(axis=2) < 12
    assert orange.sum() > 200


def test_a_run_of_which_all_that_was_recorded_is_gone_is_bad_input_in_one_line(tmp_path, capsys):
    path = stored(tmp_path)
    for folder in ("history", "tables"):
        shutil.rmtree(path / folder)
    assert main([str(path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not (path / "report.html").exists()


def test_a_damaged_row_is_bad_input_in_one_line(tmp_path, capsys):
    path = stored(tmp_path)
    with (path / "history" / "reloads.jsonl").open("a") as file:
        file.write('{"t": 1.0, "server": "a", "out_of_service_s": "soon"}\n')
    assert main([str(path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_the_page_of_a_published_run_stays_out_of_git():
    ignored = (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    assert "report.html" in ignored
