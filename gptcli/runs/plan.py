"""The plan of a training: everything decided, nothing built yet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from gptcli.checkpoints import names
from gptcli.checkpoints.checkpoint import Checkpoint, newest_checkpoint
from gptcli.checkpoints.run_folder import StoredRun, card_step, logged_saves
from gptcli.checkpoints.tensors import read_metadata
from gptcli.checkpoints.weights import stored_step
from gptcli.config import DataConfig, RunConfig, TokenizerConfig, parse_section
from gptcli.config.values import merge
from gptcli.dataset.corpus import Corpus
from gptcli.dataset.folder import Dataset
from gptcli.dataset.manifest import SourceEntry
from gptcli.dataset.mixing import find_or_prepare_mixture, refuse_unweighted
from gptcli.dataset.place import dataset_roots
from gptcli.dataset.preparing import Prepared, find_or_prepare
from gptcli.dataset.sources import OnProgress
from gptcli.dataset.summary import ReadSummary
from gptcli.errors import ModelFolderError, StorageError, TokenizerError, UsageError, size
from gptcli.model.cost import parameter_shapes
from gptcli.model.devices import current_gpu
from gptcli.runs.budget import StopReason, finished_by, why_finished
from gptcli.runs.changes import other_texts, refuse_other_data, refuse_other_settings, refuse_other_text
from gptcli.runs.completion import Completed, complete
from gptcli.runs.decision import Decision, FineTune, Resume, check, decide, training_device
from gptcli.runs.host_copy import DIRECT_BYTES
from gptcli.runs.pretrained import require_its_tokenizer, stored_initial_state
from gptcli.runs.request import Request
from gptcli.runs.team import ALONE_TEAM, Team
from gptcli.storage import FolderLock, free_space, scratch_folder
from gptcli.tokenizer.tokenizer import Tokenizer, is_path, parse_tokenizer
from gptcli.training.compilation import CPU_SECONDS
from gptcli.training.optimizer import state_numbers
from gptcli.training.schedule import learning_rate


@dataclass(frozen=True, kw_only=True)
class Plan(Completed):
    """A training that is decided in every respect."""

    decision: Decision
    dataset: Dataset
    device: torch.device
    disk: int
    """Bytes that a checkpoint and the best weights take on the disk."""
    copy: int
    """Bytes of host memory for the copy from which a checkpoint is written; 0 for a small one, which needs none."""
    checkpoint: Checkpoint | None = None
    """The checkpoint from which a run resumes."""
    initial: dict[str, Tensor] | None = None
    """The pretrained weights, where a fine-tuned run without a checkpoint starts over."""
    damaged: tuple[int, ...] = ()
    """Steps of damaged checkpoints that are newer."""
    summary: ReadSummary = field(default_factory=ReadSummary)
    """Files that were read and skipped, where the dataset was made from text."""

    @property
    def path(self) -> Path:
        """The run folder."""
        return self.decision.path

    @property
    def finished(self) -> StopReason | None:
        """The budget that has ended the run, if nothing is left to train."""
        return finished_by(self.config.train, self.checkpoint.progress) if self.checkpoint else None

    @property
    def pays_compiling_on_cpu(self) -> bool:
        """Whether a training on a CPU is long enough to be compiled; one that resumes stays as it was."""
        if self.checkpoint:
            return self.checkpoint.state.compiled
        return self.measured_compiled or (self.seconds or 0) >= CPU_SECONDS

    @property
    def begin(self) -> int:
        """The step from which training continues; 0 for a new run."""
        return self.checkpoint.progress.step if self.checkpoint else 0


def make_plan(
    request: Request,
    team: Team = ALONE_TEAM,
    *,
    on_progress: OnProgress | None = None,
    quiet: bool = False,
    dry_run: bool = False,
) -> Plan:
    """Decide, prepare the data and complete the config; a dry run keeps no dataset that it had to make.

    `on_progress` is called with the progress of preparing the data; `quiet` hides the progress of downloads. Raises the
    errors of `decide`, of the data, and of `complete`; UsageError for a run of other data or with other fixed settings.
    """
    decision = decide(request, quiet=quiet)
    if isinstance(decision, Resume) and not dry_run:
        FolderLock(decision.path).release()  # another process that trains the run is reported before anything else
    device, moved = training_device(request, decision)
    _refuse_for_several(request, device, team)
    check(request, decision, device)
    with _scratch(dry_run) as scratch:
        prepared = _prepare(request, decision, scratch, on_progress)
        if on_progress and not isinstance(decision, Resume):
            on_progress("measuring", 0, 0)
        plan = plan_for(request, decision, prepared.dataset, device, team)
    plan.notes[:0] = [*([moved] if moved else []), *prepared.notes]
    return replace(plan, summary=prepared.summary)


def plan_for(
    request: Request, decision: Decision, dataset: Dataset, device: torch.device, team: Team = ALONE_TEAM
) -> Plan:
    """The plan of a decision for an existing dataset; raises as `make_plan` does."""
    if isinstance(decision, FineTune):
        require_its_tokenizer(decision.pretrained, dataset)
    with current_gpu(device):
        completed = complete(request, decision, dataset, device, team)
    weights, state = _stored_bytes(completed.config)
    disk, copy = 2 * weights + state, weights + state
    copy = copy if copy > DIRECT_BYTES else 0
    refusal = completed.refusal or _disk_refusal(decision.path, disk)
    notes = [
        f"New run: '{decision.path}'.",
        *completed.notes,
        f"Disk: a checkpoint and the best weights take {size(disk)}.",
        *([f"Saving: takes {size(copy)} more memory of the host; without it training waits."] if copy else []),
    ]
    checkpoint, damaged, initial = None, dict[int, str](), None
    if isinstance(decision, Resume):
        refuse_other_data(decision.run, dataset, request)
        refuse_other_settings(decision.run, completed.config, request)
        checkpoint, damaged = newest_checkpoint(decision.path)
        if checkpoint is None:
            initial = _weights_to_start_over(decision.run, [*damaged.values()])
        notes = _notes_on_resume(decision.run, completed.config, checkpoint, damaged, notes[1:])
    return Plan(
        config=completed.config,
        memory=completed.memory,
        seconds=completed.seconds,
        notes=notes,
        refusal=refusal,
        steps_limit=completed.steps_limit,
        measured_compiled=completed.measured_compiled,
        choice=completed.choice,
        decision=decision,
        dataset=dataset,
        device=device,
        disk=disk,
        copy=copy,
        checkpoint=checkpoint,
        initial=initial,
        damaged=tuple(damaged),
    )


def _refuse_for_several(request: Request, device: torch.device, team: Team) -> None:
    """Raise UsageError for what several processes, or processes that are restarted, cannot do."""
    if team.ranks.size > 1 and (device.type == "mps" or device.index is not None):
        hint = "Use `train.device = cuda`, of which each process takes a GPU, or `train.device = cpu`."
        raise UsageError(f"Several processes cannot train on '{device}'.", hint)
    if team.max_restarts and "-" in request.data:
        raise UsageError("Standard input cannot be read again after a restart.", "Give a file.")
    if team.max_restarts and request.resume == "never":
        message = "With `resume = never` each restart would begin another run."
        raise UsageError(message, "Leave `resume` out, and give a new place with `out`.")


@contextmanager
def _scratch(dry_run: bool) -> Iterator[Path | None]:
    """A temporary folder for a dry run's dataset. Its memory maps outlive it."""
    if not dry_run:
        yield None
        return
    with scratch_folder() as folder:
        yield folder


def _prepare(request: Request, decision: Decision, scratch: Path | None, on_progress: OnProgress | None) -> Prepared:
    """The dataset of the request's data: opened, found again, or made with the tokenizer of a pretrained model."""
    settings = parse_section(TokenizerConfig, request.explicit.get("tokenizer", {}))

    def refuse(corpus: Corpus, sources: Iterable[SourceEntry]) -> None:
        if isinstance(decision, Resume):
            refuse_other_text(decision.run, corpus, sources, request)

    data = parse_section(DataConfig, merge(decision.kept(request).get("data", {}), request.explicit.get("data", {})))
    own = _own_tokenizer(request, decision, is_mixture=data.weights is not None)
    if data.weights is None:
        refuse_unweighted(request.data)
        prepare = partial(find_or_prepare, request.data, before_encoding=refuse, was_learned=own is not None)
    else:
        prepare = partial(find_or_prepare_mixture, request.data, data.weights)
    try:
        return prepare(
            dataset_roots(decision.path),
            settings,
            data,
            given=decision.pretrained.tokenizer if decision.pretrained else own,
            unknown=request.unknown,
            scratch=scratch,
            on_progress=on_progress,
        )
    except TokenizerError as error:
        if own and isinstance(decision, Resume):
            raise other_texts(decision.run, error) from None
        raise


def _own_tokenizer(request: Request, decision: Decision, *, is_mixture: bool) -> Tokenizer | None:
    """The tokenizer of a run that resumes, unless the request states one; that of one text only if it was learned.

    So a mixture does not learn it from all texts again, and a text gets it whatever a later version would choose.
    """
    if not isinstance(decision, Resume) or request.states("tokenizer.kind", "tokenizer.vocab_size"):
        return None
    if is_path(decision.run.config.tokenizer.kind) and not is_mixture:
        return None
    return parse_tokenizer(decision.run.tokenizer_json, decision.path / names.TOKENIZER)


def _notes_on_resume(
    run: StoredRun, config: RunConfig, checkpoint: Checkpoint | None, damaged: dict[int, str], notes: list[str]
) -> list[str]:
    if checkpoint is None:
        return [f"'{run.path}' has no checkpoint yet: training starts from its beginning.", *notes]
    step = checkpoint.progress.step
    if why := why_finished(config, checkpoint.progress):  # nothing is trained by the config that the notes describe
        return [*damaged.values(), f"'{run.path}' is finished: {why}. To train another run, add `resume = never`."]
    jump = _learning_rate_jump(run.config, config, step)
    return [*damaged.values(), f"Resuming '{run.path}' at step {step:,}.", *notes, *jump]


def _learning_rate_jump(stored: RunConfig, config: RunConfig, step: int) -> list[str]:
    """A sentence if a run resumes at `step` with another number of steps, which moves the schedule."""
    old_steps, new_steps = stored.train.max_steps or 0, config.train.max_steps or 0
    if old_steps == new_steps:
        return []
    old = learning_rate(stored.optim, min(step, old_steps - 1), old_steps)
    new = learning_rate(config.optim, step, new_steps)
    return [
        f"The schedule now runs over {new_steps:,} steps instead of {old_steps:,}: "
        f"the learning rate continues at {new:.3g} instead of {old:.3g}."
    ]


def _weights_to_start_over(run: StoredRun, damaged: list[str]) -> dict[str, Tensor] | None:
    """The weights from which a run without checkpoints starts over; None for random ones.

    Raises ModelFolderError for a run that lost its checkpoints: starting over would cut its log and replace its
    results. A run that never had one was killed before its first save, or has logged that every save failed.
    """
    instead = "from a copy, or start another run with `resume = never`; the best weights are untouched."
    if damaged:
        message = f"No checkpoint of '{run.path}' can be used. {' '.join(damaged)}"
        raise ModelFolderError(message, f"Restore one {instead}")
    initial = stored_initial_state(run) if run.config.train.init_from else None
    best = 0 if initial else stored_step(read_metadata(run.path / names.MODEL)) or 0
    logged, failed = logged_saves(run.path)
    carded, save_every = card_step(run.path), run.config.train.save_every or 1
    step = max(best, logged, carded)
    has_folder = (run.path / names.CHECKPOINTS).is_dir()
    done = -(-logged // save_every) - 2  # saves: one may still be written when the next is due, which waits for it
    was_saved = carded > 0 or failed < done
    if was_saved or (step > 0 and not has_folder):
        problem = f"its folder 'checkpoints' is {'empty' if has_folder else 'missing'}"
        message = f"'{run.path}' was trained for at least {step:,} steps, but {problem}."
        raise ModelFolderError(message, f"Restore its checkpoints {instead}")
    return initial


def _stored_bytes(config: RunConfig) -> tuple[int, int]:
    """Bytes of the weights and of the optimizer's state, all float32."""
    shapes = parameter_shapes(config.model)
    weights = sum(shape.numel() for shape in shapes.values())
    return 4 * weights, 4 * state_numbers(shapes, config.optim)


def _disk_refusal(path: Path, needed: int) -> StorageError | None:
    """The error for a disk without room for one checkpoint."""
    free = free_space(path)
    if needed <= free:
        return None
    return StorageError(
        f"A checkpoint and the best weights need {size(needed)} of disk, and {size(free)} are free.",
        "Free some space, or choose another place with `out`.",
    )
