"""The book of a multirun's jobs."""

from __future__ import annotations

import csv
import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from swarmlab.record.jobs import Job, JobBook, what_differs


@pytest.fixture
def book(tmp_path):
    return JobBook(tmp_path / "multirun")


def job(number, *overrides, exit_code=0, run_dir=None):
    return Job(number, ["+exp=churn", *overrides], exit_code, run_dir)


def test_jobs_come_back_in_the_order_of_the_sweep(book):
    for number in (2, 0, 1):
        book.add(job(number, f"seed={number}"))
    assert book.jobs() == [job(number, f"seed={number}") for number in range(3)]


def test_jobs_that_end_together_do_not_mix(book):
    jobs = [job(number, "x" * 3000) for number in range(60)]
    with ThreadPoolExecutor(12) as pool:
        list(pool.map(book.add, jobs))
    assert book.jobs() == jobs


def test_a_multirun_without_jobs_is_empty(book):
    assert book.jobs() == []


def test_each_multirun_has_a_folder_of_its_own_and_an_absolute_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    book = JobBook.below("runs")
    assert book.folder.parent == tmp_path / "runs" / "multirun"
    assert not book.folder.exists()
    assert JobBook.below("runs").folder != book.folder  # in the same second, by the same process


def test_only_what_differs_is_told():
    assert what_differs([job(0, "seed=0", "arms=[a]"), job(1, "seed=1", "arms=[a]")]) == ["seed=0", "seed=1"]
    assert what_differs([job(0, "seed=0")]) == ["+exp=churn seed=0"]
    assert what_differs([]) == []


def test_numbers_of_all_jobs_in_one_table(book, tmp_path):
    summary = {"verdict": "holds", "arms": {"petals": {"moves": 3, "shares": [1, 2], "s_median": None}}}
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    book.add(job(0, "seed=0", run_dir=str(tmp_path)))
    book.add(job(1, "seed=1", exit_code=2))
    with book.write_summary().open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["job"], row["overrides"], row["arm"], row["metric"], row["value"]) for row in rows] == [
        ("0", "seed=0", "", "verdict", "holds"),
        ("0", "seed=0", "petals", "moves", "3"),
        ("0", "seed=0", "petals", "s_median", ""),
    ]
