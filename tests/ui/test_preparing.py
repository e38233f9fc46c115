"""What is said when preparing a dataset is interrupted."""

from __future__ import annotations

import pytest

from gptcli.dataset.progress import SAVE_EVERY_BYTES
from gptcli.ui.console import Output
from gptcli.ui.preparing import PreparingDisplay


@pytest.mark.parametrize(
    ("stage", "size", "continues"),
    [("encoding", SAVE_EVERY_BYTES, True), ("encoding", SAVE_EVERY_BYTES - 1, False), ("reading", 1 << 40, False)],
)
def test_work_that_can_be_continued(stage: str, size: int, continues: bool, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted() -> None:
        with PreparingDisplay(Output()) as display:
            display.update("hashing", 1, size)
            display.update(stage, 1, size)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert ("continues the work" in capsys.readouterr().err) == continues
