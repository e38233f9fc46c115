"""One session of a run: from the plan to the last event. It owns the lock, the folder, the logs and the rhythm."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, closing, suppress
from functools import partial

from gptcli.checkpoints.checkpoint import Progress, discard_checkpoints
from gptcli.checkpoints.run_folder import update_config, write_card
from gptcli.config import with_train
from gptcli.errors import NonFiniteError, StorageError
from gptcli.runs.budget import EVALUATIONS_TO_TURN, StopReason, budget_end
from gptcli.runs.decision import Resume
from gptcli.runs.events import (
    CheckpointBegun,
    CheckpointSaved,
    CompilingBegun,
    EvalMetrics,
    EvalProgress,
    Event,
    Heartbeat,
    Note,
    Rescheduled,
    RunFinished,
    SampleDrawn,
    SaveFailed,
    StepMetrics,
)
from gptcli.runs.layers import measure_layers
from gptcli.runs.logs import MetricsLog
from gptcli.runs.opening import open_folder, remove_half_written, starting_trainer, tidy_up
from gptcli.runs.plan import Plan
from gptcli.runs.rescheduling import Timetable
from gptcli.runs.samples import draw_sample
from gptcli.runs.saving import Saving, attempt
from gptcli.runs.team import ALONE_TEAM, Team
from gptcli.runs.trackers import TrackerLog
from gptcli.storage import FolderLock
from gptcli.training import runtime
from gptcli.training.evaluation import bits_per_byte
from gptcli.training.trainer import Trainer, never
from gptcli.training.update import Update

HEARTBEAT_SECONDS = 10.0
"""Seconds without an event after which each step yields a `Heartbeat`, so that displays show progress of slow steps."""


def carry_out(plan: Plan, should_stop: Callable[[], bool] = never, team: Team = ALONE_TEAM) -> Iterator[Event]:
    """Carry out a plan; yields each event after it was logged. One process at a time writes to a run.

    A complete run is only tidied up: leftovers, old checkpoints, the model card. Raises the plan's refusal,
    StorageError, NonFiniteError at the next logged step after the loss or a gradient became NaN or infinite, and
    OutOfMemoryError with the micro-batch size that fits.
    """
    progress = plan.checkpoint.progress if plan.checkpoint else Progress()
    if plan.finished:
        yield tidy_up(plan, progress, plan.finished)
        return
    if plan.refusal:
        raise plan.refusal
    run = open_folder(plan)
    with FolderLock(run.path) as lock, ExitStack() as logs:
        remove_half_written(run)
        discard_checkpoints(run.path, plan.damaged, newer_than=progress.step)
        if isinstance(plan.decision, Resume):
            run = update_config(run, plan.config)
        runtime.prepare(plan.device, deterministic=plan.config.train.deterministic)
        from gptcli.runs.tensorboard import TensorBoardLog  # slow to import; neither a dry run nor a refusal needs it

        metrics = logs.enter_context(closing(MetricsLog(run.path, progress.metrics_bytes)))
        opened: list[MetricsLog | TensorBoardLog | TrackerLog] = [metrics]
        opened.append(logs.enter_context(closing(TensorBoardLog(run.path, plan.config, progress.step))))
        for name in plan.config.train.loggers or ():
            opened.append(logs.enter_context(closing(TrackerLog(name, run.path, plan.config))))
        saving = logs.enter_context(closing(Saving(plan, run, lock, metrics)))
        session = Session(
            starting_trainer(plan, run, team),
            progress,
            saving,
            should_stop=should_stop,
            pays_compiling=plan.pays_compiling_on_cpu,
            steps_limit=plan.steps_limit,
        )
        if progress.step:
            yield metrics.resumed(progress.step)
        try:
            for event in session.fit():
                writes = [partial(log.write, event) for log in opened]
                if isinstance(event, RunFinished):
                    writes.append(partial(write_card, saving.run, plan.dataset, progress))
                for write in writes:
                    for failure in attempt(progress.step, write):
                        if not lock.moved():  # the next save says that it was, and ends the session
                            yield failure
                yield event
        except StorageError as error:
            with suppress(StorageError):
                metrics.write(SaveFailed(progress.step, error.message, checkpoint=True))
            raise


class Session:
    """Trains a run until a budget ends or a stop is asked for; evaluates, samples and saves on the way."""

    def __init__(
        self,
        trainer: Trainer,
        progress: Progress,
        saving: Saving,
        *,
        should_stop: Callable[[], bool],
        pays_compiling: bool = False,
        steps_limit: int | None = None,
    ) -> None:
        self.config = trainer.config.train
        assert self.config.eval_every, "the config is not complete"
        assert self.config.save_every, "the config is not complete"
        self.eval_every, self.save_every = self.config.eval_every, self.config.save_every
        self.trainer = trainer
        self.progress = progress
        self.saving = saving
        self.should_stop = should_stop
        self.pays_compiling = pays_compiling
        self._timetable: Timetable | None = None
        if steps_limit is not None and self.config.max_time:
            self._timetable = Timetable(self.config.max_time, steps_limit)
        self._began = time.perf_counter() - progress.seconds  # as if all sessions had been one
        self.seconds_at_step = progress.seconds
        self._training_loss = float("inf")
        self._mark()

    def fit(self) -> Iterator[Event]:
        """Train until a budget ends; the last event is `RunFinished`."""
        try:
            yield from self._compile()
            yield from self._begin()
            while not (reason := self.stop_reason()):
                yield from self._step()
                yield from self.saving.report()
            yield from self.saving.finish()
            if self.progress.step and self.saving.saved_step != self.progress.step:
                yield from self.save()
                yield from self.saving.finish()
        except NonFiniteError as error:
            with suppress(StorageError):
                yield from self.saving.finish()
            step = self.saving.saved_step
            kept = "" if step is None else f"The checkpoint of step {step:,} is kept. "
            hint = f"{kept}{error.hint} Start again with `resume = never`."
            raise NonFiniteError(error.message, hint) from error
        if self.saving.best_weights_error:
            raise self.saving.best_weights_error
        yield RunFinished.after(self.progress, reason, self.trainer.dataset, seconds=self.seconds)

    def _begin(self) -> Iterator[Event]:
        """Make up for an interrupted evaluation; evaluate and save pretrained weights before any update."""
        progress = self.progress
        if progress.evaluation_pending or (self.config.init_from is not None and progress.val_loss is None):
            yield from self.evaluate()
            if progress.step:
                yield from self._sample()
            if not progress.evaluation_pending or self.saving.saved_step is None:
                yield from self.save()

    def _step(self) -> Iterator[Event]:
        update = self.trainer.step(self.should_stop)
        if update is None:
            return  # a stop came first
        self.progress.step = self.trainer.completed_steps
        self.progress.tokens += self.config.batch_size * self.trainer.config.model.block_size
        self.seconds_at_step = self.seconds
        if self.progress.step == 1 or self.due(self.config.log_every):
            yield self._step_metrics(update)
        elif time.perf_counter() - self._mark_time > HEARTBEAT_SECONDS:
            yield Heartbeat(self.progress.step)
        if self.due(self.eval_every):
            yield from self.evaluate()
        yield from self._sample()
        if self.due(self.save_every) and not self.progress.evaluation_pending:
            yield from self._keep_to_time()
            yield from self.save()

    def _sample(self) -> Iterator[SampleDrawn]:
        if self.due(self.config.sample_every) and not self.progress.evaluation_pending:
            text = draw_sample(self.trainer.whole_model(), self.trainer.dataset, seed=self.config.seed)
            self._mark()
            yield SampleDrawn(self.progress.step, text)

    def due(self, every: int) -> bool:
        """Whether what happens `every` steps (0: never) is due now. At the last step all of it is."""
        return every > 0 and (self.progress.step % every == 0 or self.budget_end() is not None)

    def stop_reason(self) -> StopReason | None:
        """The reason to end training now; None to continue."""
        if self.progress.evaluation_pending:
            return "interrupted"
        return self.budget_end() or ("interrupted" if self.should_stop() else None)

    def budget_end(self) -> StopReason | None:
        """The budget that has run out. The clock is read once per step, so that all of a step agrees on being last."""
        return budget_end(self.config, self.progress, self.seconds_at_step)

    def evaluate(self) -> Iterator[Event]:
        """Evaluate on the validation split; the best weights so far go into the run folder.

        A stop abandons the evaluation; the resumed training begins with it.
        """
        loss = yield from self._validation_loss()
        progress = self.progress
        yield from self.saving.finish_best_weights()
        if loss is not None and self.saving.lock.moved():  # the best weights would have no place
            progress.evaluation_pending = True
            yield from self.save()  # raises RunMoved
        progress.evaluation_pending = loss is None
        if loss is None:
            return
        best_loss, best_step = progress.best_val_loss, progress.best_step
        progress.val_loss = loss
        progress.evals_since_best += 1
        if best_loss is None or best_step is None or loss < best_loss:
            best_loss, best_step = loss, progress.step
            progress.evals_since_best = 0
            yield from self.saving.best_weights(progress, self.trainer.weights(), loss)
        yield EvalMetrics(
            step=progress.step,
            loss=loss,
            bits_per_byte=bits_per_byte(loss, self.trainer.dataset),
            best_loss=best_loss,
            best_step=best_step,
            seconds=self.seconds,
            parts=self.trainer.part_losses,
        )
        self._mark()
        if progress.evals_since_best == EVALUATIONS_TO_TURN:
            yield from self._say_that_it_turned()

    def _say_that_it_turned(self) -> Iterator[Note]:
        """A note where the validation loss has turned while the training loss falls."""
        progress = self.progress
        if progress.best_val_loss and self._training_loss < progress.best_val_loss:
            dropout = "" if self.trainer.config.model.dropout else "`model.dropout = 0.2`, "
            yield Note(
                f"No better validation loss since step {progress.best_step:,}, while the training loss falls: the model"
                " memorizes the text. The best weights are kept. "
                f"More text, {dropout}a smaller model or fewer steps help."
            )

    def _keep_to_time(self) -> Iterator[Event]:
        """Let the schedule end with the stated time, where updates are slower or faster than was planned.

        The checkpoint that is saved next is the first by the new number, which is stored before.
        """
        if self._timetable is None or self.budget_end():
            return
        self.trainer.check_finite()  # waits for the device, so that the clock counts all updates
        step = self.progress.step
        max_steps = self._timetable.max_steps(self.trainer.max_steps, step, self.seconds)
        if max_steps and (yield from self.saving.config(with_train(self.trainer.config, max_steps=max_steps), step)):
            self.trainer.reschedule(max_steps)
            self.config = self.trainer.config.train
            yield Rescheduled(step, max_steps)

    def _validation_loss(self) -> Generator[EvalProgress, None, float | None]:
        """The validation loss in nats per token; None if a stop was asked for before it was known."""
        batches = self.trainer.evaluation()
        try:
            while True:
                done, total = next(batches)
                yield EvalProgress(self.progress.step, done, total)
                if done < total and self.should_stop():
                    return None
        except StopIteration as finished:
            loss: float = finished.value
            return loss

    def _ends_at(self, step: int) -> bool:
        """Whether training has stopped at a step, so that nothing later can be saved."""
        return self.progress.step == step and self.stop_reason() is not None

    def save(self) -> Iterator[CheckpointBegun | CheckpointSaved | SaveFailed]:
        """Save a checkpoint; large ones are written while training continues, and reported at a later step."""
        self.trainer.check_finite()
        self.progress.seconds = self.seconds
        self.progress.metrics_bytes = self.saving.log.length()
        yield CheckpointBegun(self.progress.step)
        is_last = partial(self._ends_at, self.progress.step)
        yield from self.saving.checkpoint(self.progress, self.trainer.state(), is_last)
        self._mark()

    def _compile(self) -> Iterator[Note | CompilingBegun]:
        if self.trainer.will_compile(pays_on_cpu=self.pays_compiling):
            yield CompilingBegun()
            yield Note("Compiling the model, which takes from ten seconds to a few minutes.")
        if note := self.trainer.compile(pays_on_cpu=self.pays_compiling):
            yield Note(note)
        self._mark()

    def _step_metrics(self, update: Update) -> StepMetrics:
        """The figures of the last update. Waits for the device."""
        figures = self.trainer.figures(update)
        self._training_loss = figures.loss
        now, tokens = time.perf_counter(), self.progress.tokens
        rate = (tokens - self._mark_tokens) / max(now - self._mark_time, 1e-9)
        layers = measure_layers(self.trainer.whole_model(), self.trainer.dataset) if self.config.log_layers else None
        self._mark()
        return StepMetrics(
            step=self.progress.step,
            tokens_per_second=rate,
            seconds=self.seconds,
            layers=layers,
            **dataclasses.asdict(figures),
        )

    @property
    def seconds(self) -> float:
        """Training time over all sessions."""
        return time.perf_counter() - self._began

    def _mark(self) -> None:
        """Measure training speed from here: evaluations, saves and samples do not count as slow steps."""
        self._mark_time, self._mark_tokens = time.perf_counter(), self.progress.tokens
