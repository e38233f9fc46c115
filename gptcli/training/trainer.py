"""The trainer: one model with its optimizer and batches, updated step by step.

It knows no folder, no clock, no signal and no display; a session (`gptcli/runs/session.py`) owns those. A training
without any of them reads:

    trainer = Trainer(config, dataset, torch.device("cpu"))
    while trainer.completed_steps < config.train.max_steps:
        update = trainer.step()
    print(trainer.evaluate())

Letters: B sequences per update, T tokens each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial

import numpy as np
import torch
from torch import Tensor

from gptcli.config import RunConfig, with_train
from gptcli.config.presets import LR_TIMES_ADAMW, preset
from gptcli.dataset.folder import Dataset
from gptcli.dataset.mixture import Mixture
from gptcli.errors import NonFiniteError
from gptcli.model.devices import to_device, torch_dtype
from gptcli.model.experts import ExpertLoad
from gptcli.model.gpt import GPT, gpt_of
from gptcli.training.compilation import compile_hidden, will_compile
from gptcli.training.evaluation import Evaluation, evaluation_batches, mean_loss, tokens_of_part, weighted_evaluation
from gptcli.training.gradients import Hidden, UpdateStopped, accumulate_gradients, unless_stopped
from gptcli.training.mixed_batches import training_batches
from gptcli.training.optimizer import Optimizer
from gptcli.training.out_of_memory import room_for_gradients, room_for_optimizer
from gptcli.training.ranks import ALONE, GradientSums, Ranks, shards_of
from gptcli.training.schedule import learning_rate
from gptcli.training.state import TrainerState, random_states, restore_random_states
from gptcli.training.update import Figures, Update


def never() -> bool:
    """False: nothing asks to stop."""
    return False


class Trainer:
    """Updates one model by the recipe of `config`, which must be complete."""

    def __init__(self, config: RunConfig, dataset: Dataset, device: torch.device, ranks: Ranks = ALONE) -> None:
        """Random weights by the recipe's seed, before the first update; `load_state` continues another training.

        With several `ranks` every process makes the same calls, and each computes its part.
        """
        train = config.train
        assert train.max_steps, "the config is not complete"
        assert train.micro_batch_size, "the config is not complete"
        assert train.dtype, "the config is not complete"
        self.config = config
        self.dataset = dataset
        self.device = device
        self.ranks = ranks
        self.completed_steps = 0
        self.part_losses: dict[str, float] = {}
        """Validation losses of the parts of a mixture at the last evaluation, in nats per token."""
        self.max_steps = train.max_steps
        self.micro_batch_size = train.micro_batch_size
        self.dtype = torch_dtype(train.dtype)
        self.batches = training_batches(config, dataset)
        torch.manual_seed(train.seed)
        self.model = GPT(config.model)
        self.shards = shards_of(self.model, train.parallel, device, ranks)
        if not self.shards:
            self.model.to(device)
            ranks.broadcast(self.model.state_dict().values())
        self.sums = self.shards or GradientSums([*self.model.parameters()], ranks)
        self.optimizer = Optimizer(self.model, config.optim, self.dtype, ranks, self.shards)
        whole: Hidden = self.model.hidden
        self.eager = partial(whole, activation_checkpointing=True) if train.activation_checkpointing else whole
        self.hidden = self.eager

    def will_compile(self, *, pays_on_cpu: bool = False) -> bool:
        """Whether `compile` tries to compile, which takes from seconds to minutes."""
        return will_compile(self.config.train.compile, self.device, self.max_steps, pays_on_cpu=pays_on_cpu)

    def compile(self, *, evaluates: bool = True, pays_on_cpu: bool = False) -> str:
        """Use torch.compile if the config asks for it or it pays; for evaluations too if the trainer `evaluates`.

        Returns a sentence about the choice, "" if the config made it. Raises OutOfMemoryError, and DeviceError if
        compiling was asked for and fails.
        """
        ids = self._next_batch()  # (B, T + 1); sliced on the device, as updates do: strides are part of the compilation
        with self._room_for_gradients(ids):
            self.hidden, note = compile_hidden(
                self.model,
                self.eager,
                ids[: self.micro_batch_size],
                mode=self.config.train.compile,
                max_steps=self.max_steps,
                dtype=self.dtype,
                evaluates=evaluates,
                pays_on_cpu=pays_on_cpu,
                is_sharded=self.shards is not None,
            )
        if self.shards:
            self.shards.forget()
        return note

    @property
    def is_compiled(self) -> bool:
        """Whether the model is compiled."""
        return self.hidden is not self.eager

    def step(self, should_stop: Callable[[], bool] = never) -> Update | None:
        """Update the weights once, without waiting for the device.

        If `should_stop` becomes true between two micro-batches, nothing changes and None is returned. Raises
        OutOfMemoryError, which names a micro-batch size that fits, or a smaller one to try.
        """
        ids = self._next_batch()  # (B, T + 1), or this rank's part of B
        self._seed_dropout()
        before = random_states(self.device) if len(ids) > self.micro_batch_size else {}
        spread = ExpertLoad() if self.config.model.n_expert else None
        asked = should_stop if self.ranks.size == 1 else never  # all ranks hear of a stop, between two updates
        backward = unless_stopped(self.optimizer.backward, asked)
        longest = self.ranks.largest_part(self.config.train.batch_size) if self.shards else len(ids)
        passes = -(-longest // self.micro_batch_size)
        try:
            with self._room_for_gradients(ids):
                loss = accumulate_gradients(
                    self.model,
                    self.hidden,
                    ids,
                    micro_batch_size=self.micro_batch_size,
                    dtype=self.dtype,
                    backward=self.sums.during(backward, passes),
                    batch_size=self.config.train.batch_size,
                    expert_balance=self.config.optim.expert_balance,
                    spread=spread,
                    passes=passes,
                )
        except UpdateStopped:
            self.model.zero_grad()
            restore_random_states(before, self.device)
            return None
        self.sums.finish()
        for part in [loss, *(spread.tensors() if spread else [])]:
            self.ranks.sum(part)
        lr = learning_rate(self.config.optim, self.completed_steps, self.max_steps)
        with room_for_optimizer(self.device):
            grad_norm = self.optimizer.step(lr, loss)
        self.completed_steps += 1
        return Update(loss, grad_norm, lr, spread)

    def reschedule(self, max_steps: int) -> None:
        """Let the schedule end after another number of updates, from the next one on."""
        self.config = with_train(self.config, max_steps=max_steps)
        self.max_steps = max_steps

    def figures(self, update: Update) -> Figures:
        """The figures of the last update. Waits for the device. Raises NonFiniteError as `check_finite` does."""
        self.check_finite()
        tensors = [update.loss, update.grad_norm, self.optimizer.skips, self.optimizer.skipped_spikes()]
        tensors += [update.spread.balance_loss, update.spread.largest_load()] if update.spread else []
        loss, norm, skips, spikes, *experts = torch.stack(tensors).cpu().double().tolist()
        spread = (experts[0], experts[1]) if experts else None
        return Figures(loss, norm, update.lr, int(skips + spikes), int(spikes), spread)

    def evaluation(self) -> Evaluation:
        """Evaluate on the validation split, batch by batch: see `evaluation_batches`. Raises NonFiniteError.

        The loss of a mixture is the mean of its parts' losses by weight, as in training.
        """
        max_tokens = self.config.train.eval_tokens
        assert max_tokens, "the config is not complete"
        self.check_finite()
        if isinstance(self.dataset, Mixture):
            parts = self.dataset.parts
            losses = yield from weighted_evaluation(
                [self._evaluation_of(part.dataset, tokens_of_part(part, max_tokens)) for part in parts]
            )
            self.part_losses = dict(zip((part.name for part in parts), losses, strict=True))
            loss = sum(part.weight * one for part, one in zip(parts, losses, strict=True))
        else:
            loss = yield from self._evaluation_of(self.dataset, max_tokens)
        if not math.isfinite(loss):
            message = f"The validation loss became {loss} at step {self.completed_steps:,}."
            raise NonFiniteError(message, self.retry_hint())
        return loss

    def _evaluation_of(self, dataset: Dataset, max_tokens: int) -> Evaluation:
        return evaluation_batches(
            self.model,
            dataset.val,
            batch_size=self.micro_batch_size,
            max_tokens=max_tokens,
            dtype=self.dtype,
            hidden=self.hidden,
            ranks=self.ranks,
            sum_scores=self.sum_scores,
            begin_pass=self.begin_pass if self.shards else None,
        )

    def begin_pass(self) -> None:
        """Begin a pass of an evaluation with sharded weights, which all ranks make together."""

    def sum_scores(self, scores: Tensor) -> Tensor:
        """The sums over all ranks of what each has scored in an evaluation."""
        return self.ranks.sum(scores)

    def evaluate(self) -> float:
        """Validation loss in nats per token. Raises NonFiniteError."""
        return mean_loss(self.evaluation())

    def state(self) -> TrainerState:
        """The state to store or to hand to another trainer's `load_state`; tensors are not copied."""
        return TrainerState(
            step=self.completed_steps,
            model=self.weights(),
            optimizer=self.optimizer_state(),
            random=random_states(self.device),
            scaler=self.optimizer.scaler_state(),
            threads=torch.get_num_threads(),
            compiled=self.is_compiled,
            ranks=self.ranks.size,
        )

    def weights(self) -> dict[str, Tensor]:
        """The weights by name; where they are sharded, whole ones on the host of rank 0, and none on the others."""
        return self.shards.gathered(self.shards.parameters) if self.shards else self.model.state_dict()

    def optimizer_state(self) -> dict[str, Tensor]:
        """The optimizer's state by name, as `weights` has the weights."""
        tensors = self.optimizer.tensors()
        return self.shards.gathered(tensors) if self.shards else tensors

    def whole_model(self) -> GPT:
        """The model, for rank 0 to use alone; a copy on the host where weights are sharded."""
        return gpt_of(self.config.model, self.weights()) if self.shards else self.model

    def load_state(self, state: TrainerState) -> None:
        """Continue from a state exactly, with its number of CPU threads where as many ranks share the work.

        Every rank needs the state. Raises KeyError, TypeError, ValueError or RuntimeError where it is not one of this
        recipe.
        """
        self.load_part(self.shards.part_of(state) if self.shards else state)

    def load_part(self, state: TrainerState) -> None:
        """As `load_state`, from a state with this rank's rows where weights are sharded."""
        if state.ranks == self.ranks.size:
            torch.set_num_threads(state.threads)
        (self.shards.load if self.shards else self.model.load_state_dict)(state.model)
        self.optimizer.load_tensors(state.optimizer)
        self.optimizer.load_scaler_state(state.scaler)
        restore_random_states(state.random, self.device)
        self.completed_steps = state.step

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Begin with these weights instead of random ones; every rank gets those of rank 0."""
        if self.shards:
            self.shards.hand_out(weights)
        else:
            self.model.load_state_dict(weights)
            self.ranks.broadcast(self.model.state_dict().values())

    def check_finite(self) -> None:
        """Raise NonFiniteError if the loss or a gradient was NaN or infinite. Waits for the device."""
        if failure := self.optimizer.failure():
            raise NonFiniteError(f"Training stopped at step {self.completed_steps:,}: {failure}.", self.retry_hint())

    def retry_hint(self) -> str:
        """A lower learning rate to try after a training diverged."""
        rate, usual = self.config.optim.lr, preset(self.config.preset)["optim"]
        its, ours = usual.get("optimizer", "adamw"), self.config.optim.optimizer
        known = usual["lr"] * LR_TIMES_ADAMW.get(ours, 1.0) / LR_TIMES_ADAMW.get(its, 1.0)
        whose = " (the preset's)" if its == ours else ""
        lower = f"{known:g}`{whose}" if rate > known else f"{rate / 2:g}`"
        return f"Try a lower learning rate, such as `optim.lr = {lower}."

    def _next_batch(self) -> Tensor:
        """Token ids of this rank's part of the next update on the device, (B, T + 1)."""
        part = self.ranks.part_of(self.config.train.batch_size)
        return to_device(self.batches.batch(self.completed_steps, part), self.device)

    def _seed_dropout(self) -> None:
        """With several ranks, let dropout depend on seed, step and rank alone, not on the number of ranks so far."""
        if self.ranks.size > 1 and self.config.model.dropout:
            words = np.random.SeedSequence((self.config.train.seed, self.completed_steps, self.ranks.rank))
            torch.manual_seed(int(words.generate_state(1, np.uint64)[0] >> 1))

    def _room_for_gradients(self, ids: Tensor) -> AbstractContextManager[None]:
        return room_for_gradients(
            self.model,
            self.eager,
            self.optimizer,
            ids,
            micro_batch_size=self.micro_batch_size,
            dtype=self.dtype,
            searches=self.shards is None,
        )
