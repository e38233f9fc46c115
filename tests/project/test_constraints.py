"""constraints.txt pins what pyproject.toml asks for."""

from __future__ import annotations

import re
import tomllib
from itertools import chain

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.conftest import ROOT

PIN = re.compile(r"([\w.-]+)==(\d[\w.]*)")  # no local version such as +cpu, which only one machine's index has


def test_every_requirement_is_pinned_to_a_version_that_it_allows() -> None:
    lines = [line for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines() if line[:1] != "#"]
    matches = [PIN.fullmatch(line) for line in lines]
    pins = {canonicalize_name(match[1]): match[2] for match in matches if match}
    assert len(pins) == len(lines)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for text in chain(project["dependencies"], *project["optional-dependencies"].values()):
        requirement = Requirement(text)
        assert requirement.specifier.contains(pins[canonicalize_name(requirement.name)]), text
