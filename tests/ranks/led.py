"""A training that rank 0 leads, in one of several processes: `python -m tests.ranks.led FOLDER SCENARIO`

Started once for each rank, with the variables of torchrun; without them, alone. It continues from the checkpoint in the
folder, if there is one. Rank 0 prints the error with which the training ends; the rank that failed does where rank 0
has not heard of it.
"""

from __future__ import annotations

import sys
import time
from datetime import timedelta
from pathlib import Path

import torch

from gptcli.checkpoints.checkpoint import Checkpoint, Progress, newest_checkpoint, save_checkpoint
from gptcli.dataset.folder import Dataset, open_dataset
from gptcli.errors import GptcliError, OutOfMemoryError
from gptcli.interop.huggingface import tensors_to_hf
from gptcli.runs import team as team_module
from gptcli.runs.followers import end_followers, follow, new_trainer
from gptcli.runs.saving import restore
from gptcli.runs.team import Team, joined
from gptcli.training import trainer as trainer_module
from tests.ranks.trained import CASES, LARGER
from tests.runs.small_runs import CPU, plan

STEPS = 4
"""Updates of a session, unless a scenario says `8 steps`."""
BAD_STEP = 3
TIMEOUT = timedelta(seconds=8)


def lead(folder: Path, scenario: str, dataset: Dataset, team: Team) -> None:
    """Train some steps from the newest checkpoint on, and store another."""
    sharded = {"train.parallel": "fsdp" if "sharded" in scenario else "replicated"}
    config = plan(dataset, folder / "new-run", LARGER | CASES["muon"] | sharded).config
    trainer = new_trainer(config, dataset, CPU, team)
    checkpoint, _ = newest_checkpoint(folder)
    if checkpoint:
        restore(trainer, checkpoint)
    for _ in range(int(scenario.split()[0]) if scenario.endswith("steps") else STEPS):
        if "abandoned evaluation" in scenario:
            next(trainer.evaluation())
        trainer.step()
        if scenario == "rescheduled" and trainer.completed_steps == STEPS // 2:
            trainer.reschedule(STEPS)
    loss = trainer.evaluate()
    state = trainer.state()
    state.model = tensors_to_hf(state.model, config.model)
    save_checkpoint(folder, Checkpoint(Progress(step=state.step, val_loss=loss), state))
    end_followers(team)


def spoil(scenario: str) -> None:
    """Let an update of a follower fail, or last too long."""
    step = trainer_module.Trainer.step

    def spoiled(self: trainer_module.Trainer, *arguments: object) -> object:
        if self.completed_steps == BAD_STEP and scenario == "error":
            raise OutOfMemoryError("There is no room.", "Use less.")
        if self.completed_steps == BAD_STEP and scenario == "crash":
            raise ZeroDivisionError("nothing to share")
        if self.completed_steps == BAD_STEP and scenario == "time-out":
            time.sleep(1.5 * TIMEOUT.total_seconds())
        return step(self)

    trainer_module.Trainer.step = spoiled  # type: ignore[method-assign, assignment]


def main(folder: Path, scenario: str) -> int:
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    trainer_module.torch_dtype = lambda _name: torch.float64
    if scenario == "time-out":
        team_module.TIMEOUT = TIMEOUT
    dataset = open_dataset(folder / "data")
    leads = False
    try:
        with joined() as team:
            leads = team.leads
            if leads:
                lead(folder, scenario, dataset, team)
            else:
                spoil(scenario)
                follow(team)
    except GptcliError as error:
        if leads or error.unheard:
            print(f"{type(error).__name__}: {error.message}")  # noqa: T201
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2]))
