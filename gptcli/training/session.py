"""One session of training, from the plan to the last event: the lock, the run folder, the logs, the loop."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing

import torch

from gptcli.checkpoints import names
from gptcli.checkpoints.checkpoint import discard_damaged
from gptcli.checkpoints.run_folder import create_run, read_run, update_config, write_card
from gptcli.storage import FolderLock, remove_leftovers
from gptcli.text.dataset import Dataset
from gptcli.training.budget import budget_end, closing_event
from gptcli.training.events import Event, Finished
from gptcli.training.metrics import MetricsLog
from gptcli.training.plan import Plan
from gptcli.training.trainer import Trainer


def train(plan: Plan, dataset: Dataset, device: torch.device, stop_signal: Callable[[], int]) -> Iterator[Event]:
    """Carry out a plan; yields what happens, after it was logged. One process at a time writes to a run.

    Nothing is written where the run is finished.
    """
    train = plan.config.train
    if plan.checkpoint and (end := budget_end(train, plan.checkpoint.progress, plan.checkpoint.progress.seconds)):
        yield closing_event(plan.checkpoint.progress, end, seconds=plan.checkpoint.progress.seconds)
        return
    run = create_run(plan.path, plan.config, dataset) if plan.is_new else read_run(plan.path)
    with FolderLock(plan.path):
        remove_leftovers(plan.path)
        remove_leftovers(plan.path / names.CHECKPOINTS)
        keep_bytes = plan.checkpoint.progress.metrics_bytes if plan.checkpoint else 0
        step = plan.checkpoint.progress.step if plan.checkpoint else 0
        discard_damaged(plan.path, newer_than=step)
        if not plan.is_new:
            run = update_config(run, plan.config)
        prepare_device(device, deterministic=train.deterministic)
        from gptcli.training.tensorboard import TensorBoardLog

        with (
            closing(MetricsLog(plan.path, keep_bytes)) as metrics,
            closing(TensorBoardLog(plan.path, plan.config, step)) as board,
        ):
            trainer = Trainer(run, dataset, device, plan.checkpoint, stop_signal=stop_signal, log_bytes=metrics.sync)
            for event in trainer.fit():
                metrics.write(event)
                board.write(event)
                if isinstance(event, Finished):
                    write_card(run, dataset, trainer.progress)
                yield event


def prepare_device(device: torch.device, *, deterministic: bool) -> None:
    """Settings of torch for training: TF32 for float32 products on CUDA, or bit-exact kernels."""
    if device.type != "cuda":
        return
    if deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
    else:
        torch.set_float32_matmul_precision("high")
