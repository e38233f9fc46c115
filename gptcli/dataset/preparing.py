"""Preparing dataset folders from text. A hash of sources and settings finds a dataset that exists already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from gptcli import storage
from gptcli.config import DataConfig, TokenizerConfig, parse_section
from gptcli.config.values import nest
from gptcli.dataset.cluster import on_cluster
from gptcli.dataset.folder import is_dataset, open_dataset
from gptcli.dataset.importing import import_tokens
from gptcli.dataset.manifest import DamagedDataset
from gptcli.dataset.place import (
    earlier_folders,
    name_of_folder,
    name_of_text,
    refuse_foreign,
    restore_interrupted,
    traces_of,
    writable_root,
)
from gptcli.dataset.preparation import BeforeEncoding, Prepared, preparation
from gptcli.dataset.sources import OnProgress
from gptcli.dataset.token_files import are_token_files, find_token_files
from gptcli.dataset.vocabulary import require_bpe_for_size
from gptcli.paths import given_path, output_path, text_paths
from gptcli.tokenizer import Unknown, processes
from gptcli.tokenizer.tokenizer import Tokenizer

__all__ = ["Prepared", "find_or_prepare", "tokenize"]


def tokenize(
    texts: str | Path | Sequence[str | Path],
    out: str | Path,
    *,
    tokenizer: str | Path = "auto",
    vocab_size: int | None = None,
    val_fraction: float | None = None,
    include: Sequence[str] | None = None,
    unknown: Unknown = "error",
    settings: Mapping[str, Any] | None = None,
    force: bool = False,
    ray: str | None = None,
    on_progress: OnProgress | None = None,
) -> Prepared:
    """Turn texts into the dataset folder `out`, which appears complete or not at all.

    Args:
        texts: text files, folders, addresses, names of corpora, or "-" for standard input; or token files of nanoGPT,
            llm.c or datatrove, with the path of their tokenizer (docs/data.md).
        tokenizer: "char", "bpe", the path of a tokenizer.json or vocab.json, or "auto": characters below 1.5 MB of
            text, else BPE.
        vocab_size: entries of a BPE vocabulary, by default 8,192. With it, "auto" is BPE.
        val_fraction: share of the text, its last part, held out for validation; by default 10 %, less for large text.
        include: file name patterns to read from folders, by default every format that can be read.
        unknown: "skip" leaves out characters that a tokenizer given by its path does not know, and adds a note.
        settings: fields of the config's sections `data` and `tokenizer` by dotted name, such as
            {"data.encoding": "cp1252"}.
        force: replace another dataset at `out`. A folder with other files is never replaced.
        ray: encode on the Ray cluster at this address, "local" for one that is started on this machine (docs/data.md).
            Token files and characters are not sent to it.

    A dataset of exactly these sources and settings at `out` is opened instead, unless `force` is set. Raises UsageError
    for settings that contradict each other, ConfigError, CorpusError, TokenizerError, DatasetError, ClusterError or
    StorageError.

    >>> tokenize("book.txt", "data/book").dataset.train.tokens  # doctest: +SKIP
    1003854
    """
    stated = {"tokenizer.kind": str(tokenizer), "tokenizer.vocab_size": vocab_size}
    values = nest(stated | {"data.val_fraction": val_fraction, "data.include": include} | dict(settings or {}))
    config = parse_section(TokenizerConfig, values["tokenizer"])
    given_path(config.kind)
    data = parse_section(DataConfig, values.get("data", {}))
    require_bpe_for_size(config.kind, config.vocab_size)
    inputs, out = text_paths(texts), output_path(out)
    restore_interrupted(out, *inputs)
    refuse_foreign(out)
    if force or not is_dataset(out):
        storage.refuse_impossible_place(out)
    if are_token_files(inputs, data.format):
        files = find_token_files(inputs, data.format)
        return import_tokens(files, out, config, data, on_progress, name=name_of_folder(out), force=force)
    earlier = (out, storage.unfinished_of(out))
    with ExitStack() as cluster:
        encoding = cluster.enter_context(on_cluster(ray)) if ray else processes.encoding
        ours = cluster.enter_context(
            preparation(inputs, config, data, unknown, on_progress, earlier=earlier, encoding=encoding)
        )
        if is_dataset(out) and not force:
            return ours.reuse(out, "Choose another place with `out`, or replace it with `force`.")
        return ours.write(lambda key: out, name_of_folder(out), force=force)


def find_or_prepare(
    inputs: Sequence[str],
    roots: Sequence[Path],
    tokenizer: TokenizerConfig,
    data: DataConfig,
    *,
    given: Tokenizer | None = None,
    was_learned: bool = False,
    unknown: Unknown = "error",
    scratch: Path | None = None,
    before_encoding: BeforeEncoding | None = None,
    on_progress: OnProgress | None = None,
) -> Prepared:
    """The dataset of `inputs`: a dataset folder itself, or texts as `<root>/<name>-<8 hex of the key>/`.

    It is looked for in all of `roots` (see `place.dataset_roots`), and made in the first that can be written; in
    `scratch` instead, if that is given. A damaged one among them is made again, with a note. A `given` tokenizer
    replaces the one that `tokenizer` asks for; where that may have led to it (`was_learned`), a dataset with it is also
    looked for under the key of the settings. `before_encoding` is called with the text of a dataset that has to be
    made, and may raise. Raises as `tokenize` does.
    """
    restore_interrupted(*inputs)
    if len(inputs) == 1 and is_dataset(inputs[0]):
        return Prepared(open_dataset(Path(inputs[0])), reused=True)
    name = name_of_text(inputs[0])
    traces = [trace for root in roots for trace in traces_of(root, name)]
    with preparation(
        inputs,
        tokenizer,
        data,
        unknown,
        on_progress,
        given=given,
        was_learned=was_learned,
        earlier=earlier_folders(traces),
    ) as ours:
        damage: list[str] = []
        keys = ours.possible_keys() if traces else []
        for found in (root / f"{name}-{key[:8]}" for root in roots for key in keys):
            restore_interrupted(found)
            try:
                if is_dataset(found) and ours.fits(found):
                    return ours.reuse(found, "Move it to another place.")
            except DamagedDataset as error:
                damage.append(f"{error.message} It is made again from the text.")
        root = scratch or writable_root(roots)
        storage.remove_leftovers(root)
        place, force = (lambda key: root / f"{name}-{key[:8]}"), bool(damage)
        prepared = ours.write(place, name, force=force, before_encoding=before_encoding)
        prepared.notes[:0] = damage
        if root not in (scratch, roots[0]):
            note = f"'{roots[0]}' cannot be written, so the dataset is kept in '{prepared.dataset.path}'."
            prepared.notes.append(note)
        return prepared
