"""What one check of the machine found."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    """``WARN`` is worth knowing but stops nothing; ``FAIL`` means that a run cannot be trusted to work."""

    OK = "ok"
    WARN = "warn"
    FAIL = "FAIL"


@dataclass(frozen=True)
class Finding:
    """One line of the doctor's report.

    :param name: what was checked, in one or two words
    :param detail: what was found
    :param remedy: what to do about it; empty for ``OK``
    """

    status: Status
    name: str
    detail: str
    remedy: str = ""

    def line(self) -> str:
        text = f"{self.status.value:<4}  {self.name:<12}  {self.detail}"
        return f"{text} -> {self.remedy}" if self.remedy else text


def ok(name: str, detail: str) -> Finding:
    return Finding(Status.OK, name, detail)


def warn(name: str, detail: str, remedy: str) -> Finding:
    return Finding(Status.WARN, name, detail, remedy)


def fail(name: str, detail: str, remedy: str) -> Finding:
    return Finding(Status.FAIL, name, detail, remedy)
