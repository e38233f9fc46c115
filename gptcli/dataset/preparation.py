"""One preparation of a dataset: its sources and settings, its key, and the dataset folder that it makes or finds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from gptcli import storage
from gptcli.config import DataConfig, TokenizerConfig
from gptcli.dataset.corpus import Corpus
from gptcli.dataset.finding import Found, find_sources
from gptcli.dataset.folder import Dataset, is_dataset, open_dataset
from gptcli.dataset.hashes import KeptHashes, SourceHashes
from gptcli.dataset.key import dataset_key
from gptcli.dataset.manifest import SourceEntry, TokenizerEntry, read_manifest
from gptcli.dataset.notes import notes_on_idle_patterns
from gptcli.dataset.place import refuse_foreign, remove_outdated_work
from gptcli.dataset.progress import SAVE_EVERY_BYTES, Journal
from gptcli.dataset.readers import format_of
from gptcli.dataset.scanning import scan
from gptcli.dataset.sources import STANDARD_INPUT, BeginStage, OnBytes, OnProgress
from gptcli.dataset.splits import split
from gptcli.dataset.spool import Spool
from gptcli.dataset.summary import ReadSummary
from gptcli.dataset.vocabulary import make_tokenizer, require_known
from gptcli.dataset.writing import FEW_TOKENS, write_dataset
from gptcli.errors import CorpusError, DatasetError, StorageError, counted, size
from gptcli.tokenizer import Unknown
from gptcli.tokenizer.processes import Encoding, encoding
from gptcli.tokenizer.tokenizer import Tokenizer, is_path, load_tokenizer

BeforeEncoding = Callable[[Corpus, Iterable[SourceEntry]], None]
"""Called with a text and its sources once it was scanned."""
_NAMED_SOURCES = 3
_PROGRESS_BYTES = 1 << 17
"""Text after which progress is reported again: once for each of a million small files would take seconds."""


@dataclass(frozen=True)
class Prepared:
    """A dataset that is ready to be trained on."""

    dataset: Dataset
    reused: bool = False
    """Whether it existed already."""
    notes: list[str] = field(default_factory=list)
    """Sentences for the user about its text and tokenizer."""
    summary: ReadSummary = field(default_factory=ReadSummary)
    """Files that were read and skipped."""


class _MadeMeanwhile(Exception):  # noqa: N818 - not an error
    """Another process was quicker with the same dataset folder."""


@dataclass(frozen=True)
class Preparation:
    """The sources and the settings that a dataset is made from."""

    found: Found
    hashes: SourceHashes
    config: TokenizerConfig
    given: Tokenizer | None
    """The tokenizer, if it exists already."""
    data: DataConfig
    unknown: Unknown
    report: BeginStage
    earlier: Sequence[Path] = ()
    """Datasets of texts with the same name, perhaps of an earlier state of this one."""
    encoding: Encoding = encoding
    """How texts are encoded: on this machine, or on a cluster."""
    was_learned: bool = False
    """Whether the settings may have led to the given tokenizer, so that a dataset of theirs may have it."""
    _keys: dict[tuple[bool, bool], str] = field(default_factory=dict)

    def key(self, *, has_skipped: bool = False, of_settings: bool = False) -> str:
        """The key of the dataset. It depends on the content of a given tokenizer, not on its path.

        `of_settings`: the key of the dataset that the settings lead to without a given tokenizer.
        """
        kind = has_skipped, of_settings
        if kind not in self._keys:
            self._keys[kind] = self._computed_key(has_skipped, of_settings)
        return self._keys[kind]

    def _computed_key(self, has_skipped: bool, of_settings: bool) -> str:
        settings: list[str | int | float | None]
        if self.given and not of_settings:
            settings = [self.given.fingerprint, None, self.data.val_fraction, *(["skip"] if has_skipped else [])]
        else:
            entries = None if self.config.kind == "char" else self.config.entries
            settings = [self.config.wanted, entries, self.data.val_fraction]
        self.hashes.complete(self.report)
        return dataset_key(settings, self.data, ((source, self.hashes.entry(source)) for source in self.found.sources))

    def possible_keys(self) -> list[str]:
        """The keys that the dataset may have. Only a scan of the text shows whether characters are skipped."""
        may_skip = self.given and self.unknown == "skip"
        learned = [self.key(of_settings=True)] if self.was_learned else []
        return [*learned, self.key(), *([self.key(has_skipped=True)] if may_skip else [])]

    def fits(self, path: Path) -> bool:
        """Whether the dataset at `path` has the tokenizer that was given, if one was. Raises DamagedDataset."""
        if self.given is None or not self.was_learned:
            return True
        return read_manifest(path).tokenizer == TokenizerEntry.of(self.given)

    def reuse(self, path: Path, hint: str = "Choose another place with `out`.") -> Prepared:
        """Open the dataset at `path`. Raises DatasetError, with a hint, if it is one of other sources or settings."""
        key = read_manifest(path).key
        if key not in self.possible_keys():
            raise DatasetError(f"'{path}' is a dataset of other text or settings.", hint)
        dataset = open_dataset(path)
        storage.remove_unfinished(path)
        self.hashes.keep_in(path)
        skipped = "The dataset is without the characters that the tokenizer does not know."
        summary = ReadSummary(dict(Counter(map(format_of, self.found.sources)).most_common()), self.found.skipped)
        notes = [
            *self.found.notes,
            summary.sentence("found"),
            *notes_on_idle_patterns(self.found),
            skipped if key not in (self.key(), self.key(of_settings=True)) else "",
        ]
        return Prepared(dataset, reused=True, notes=[*filter(None, notes)], summary=summary)

    def write(
        self,
        place: Callable[[str], Path],
        name: str,
        *,
        force: bool = False,
        before_encoding: BeforeEncoding | None = None,
    ) -> Prepared:
        """Make the dataset at `place(key)`, or open the one that another process has made there meanwhile.

        A large one is continued where an earlier process was interrupted.
        """
        if len(self.found.sources) == 1:
            self.hashes.complete(self.report)
        with ExitStack() as temporary:
            spool = None
            with suppress(StorageError):  # it only saves time
                spool = Spool(temporary.enter_context(storage.unnamed_file()))
            corpus = self._scan(spool)
            key = self.key(has_skipped=corpus.has_skipped)
            if before_encoding:
                before_encoding(corpus, map(self.hashes.entry, corpus.sources))
            return self._write(corpus, key, place(key), name, force)

    def _scan(self, spool: Spool | None) -> Corpus:
        on_bytes, skip_unknown = self.report("reading"), self.given if self.unknown == "skip" else None
        corpus = scan(self.found, on_bytes, skip_unknown=skip_unknown, read=self.hashes.read, spool=spool)
        if self.given and not self.was_learned:  # from this text: another text is refused before it is encoded
            require_known(self.given, corpus, is_chosen=is_path(self.config.kind))
        return corpus

    def _write(self, corpus: Corpus, key: str, out: Path, name: str, force: bool) -> Prepared:
        refuse_foreign(out)
        remove_outdated_work(out, key)
        with ExitStack() as turn:
            try:
                with _new_folder(out, corpus.bytes) as new:
                    notes = self._fill(new, corpus, name, key)
                    turn.enter_context(storage.alone_in(out.parent))  # without locks, the slower one fails to rename
                    refuse_foreign(out)  # it may have appeared since
                    if is_dataset(out) and not force:
                        raise _MadeMeanwhile
            except _MadeMeanwhile:
                return self.reuse(out)
            dataset = open_dataset(out, verify=False)
            if dataset.val.tokens < FEW_TOKENS:
                few = counted(dataset.val.tokens, "token")
                notes.insert(0, f"The validation part has only {few}: its loss is rough.")
            return Prepared(dataset, notes=notes, summary=corpus.summary)

    def _fill(self, new: storage.NewDirectory, corpus: Corpus, name: str, key: str) -> list[str]:
        """Write the files of the dataset, and return the notes about it."""
        train, val, note = split(corpus, self.data.val_fraction)
        notes = [*corpus.notes, *filter(None, [note])]
        journal = Journal(new, key, corpus, self.earlier) if isinstance(new, storage.UnfinishedDirectory) else None
        if journal and journal.progress:
            notes.insert(0, f"Continued after {size(journal.progress.bytes)}, where this was interrupted before.")
        if journal:
            self.hashes.keep_in(new.path)
        tokenizer = self.given
        if tokenizer is None:
            trained = journal.tokenizer if journal else None
            tokenizer, more = make_tokenizer(self.config, corpus, train, self.report, trained)
            notes += more
        entries = map(self.hashes.entry, corpus.sources)
        on_bytes = self.report("encoding")
        manifest = write_dataset(
            new,
            corpus,
            (train, val),
            tokenizer,
            entries,
            name=name,
            key=key,
            encoding=self.encoding,
            on_bytes=on_bytes,
            journal=journal,
        )
        if journal and journal.reused:
            done = size(journal.reused.place.bytes)
            notes.insert(0, f"The beginning, {done}, is that of '{journal.reused.folder}': its tokens were reused.")
        self.hashes.refuse_changes()
        self.hashes.keep_in(new.path, manifest.shards())
        if len(corpus.documents) > 1 and tokenizer.end_of_text is None:
            notes.append("The tokenizer has no <|endoftext|>, so nothing separates the documents.")
        return notes


@contextmanager
def preparation(
    inputs: Sequence[str],
    config: TokenizerConfig,
    data: DataConfig,
    unknown: Unknown,
    on_progress: OnProgress | None,
    *,
    given: Tokenizer | None = None,
    was_learned: bool = False,
    earlier: Sequence[Path] = (),
    encoding: Encoding = encoding,
) -> Iterator[Preparation]:
    """The preparation of the sources that `inputs` name. `earlier`: datasets of texts with the same name, and
    unfinished work on them, in which hashes and ids are looked for."""
    for path in inputs:
        if path != STANDARD_INPUT and is_dataset(path):
            raise _not_text(Path(path))
    if given is None and is_path(config.kind):
        given = load_tokenizer(Path(config.kind))  # an error is reported before any text is read
    with find_sources(inputs, data, on_progress) as found:
        hashes = SourceHashes(found.sources, KeptHashes(earlier))
        report = reporter(on_progress, hashes.bytes)
        yield Preparation(found, hashes, config, given, data, unknown, report, earlier, encoding, was_learned)


def _not_text(folder: Path) -> CorpusError:
    """The error for a dataset among texts, or where text is expected."""
    texts = "the texts that it was made from"
    with suppress(DatasetError):
        if names := [source.name for source in read_manifest(folder).sources]:
            listed = ", ".join(f"'{name}'" for name in names[:_NAMED_SOURCES])
            texts += f" ({listed}{', …' * (len(names) > _NAMED_SOURCES)})"
    hint = f"Train on it alone; or name {texts} together with the others, to make a dataset of all."
    return CorpusError(f"'{folder}' is a dataset already, not text.", hint)


def _new_folder(out: Path, text_bytes: int) -> AbstractContextManager[storage.NewDirectory]:
    """A folder that becomes `out`; that of a large text stays if this process is interrupted."""
    if text_bytes < SAVE_EVERY_BYTES:
        return storage.new_directory(out, manifest=None, replace=True)
    return storage.unfinished_directory(out, replace=True)


def reporter(on_progress: OnProgress | None, total: int) -> BeginStage:
    """A function that begins a stage of `total` bytes, and passes the sum of its bytes to `on_progress`."""

    def begin(stage: str) -> OnBytes:
        done, shown = 0, -_PROGRESS_BYTES

        def add(count: int) -> None:
            nonlocal done, shown
            done += count
            if on_progress and (done - shown >= _PROGRESS_BYTES or done >= total):
                shown = done
                on_progress(stage, min(done, total), total)

        add(0)
        return add

    return begin
