"""Negative controls: each removes one protection from the product; the test of that protection must then fail."""

from __future__ import annotations

import os
from collections.abc import Callable


def without_fsync() -> None:
    from gptcli.storage import append_log, disk

    for module in (disk, append_log):
        module.os = _Without(os, "fsync")  # type: ignore[attr-defined]


def without_random_state() -> None:
    from gptcli.training import trainer

    trainer.restore_random_states = lambda states, device: None


def without_manifest() -> None:
    from gptcli.checkpoints import checkpoint

    plain = checkpoint.read_json
    checkpoint.read_json = lambda path, expected=None: plain(path)


def without_shard_check() -> None:
    from gptcli.dataset.progress import Journal

    Journal._is_whole = lambda self, progress, dtype: True  # type: ignore[method-assign]


class _Without:
    """A module one of whose functions does nothing."""

    def __init__(self, module: object, name: str) -> None:
        self._module = module
        setattr(self, name, lambda *arguments: None)

    def __getattr__(self, name: str) -> object:
        return getattr(self._module, name)


SABOTAGE: dict[str, Callable[[], None]] = {
    "fsync": without_fsync,
    "random state": without_random_state,
    "manifest": without_manifest,
    "shard check": without_shard_check,
}
