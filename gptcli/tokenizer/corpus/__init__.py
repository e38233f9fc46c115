"""Encoding large texts, and learning a vocabulary from them.

Four names are public: `is_cut`, `CorpusEncoder` encodes texts, `recut` cuts a long text into pieces that can be encoded
one by one, and `learn_vocabulary` learns a BPE vocabulary.

How it works. GPT-2's pattern splits text into words, and merges never reach across words: the ids of a text are the ids
of its words in a row. A text repeats its words: of 15.6 million in 60 MB of sources, 204 thousand are distinct. So

    text ──▶ words            pattern.py      the pattern as array operations on the bytes of the text
    words ──▶ numbers         word_table.py   distinct words numbered, a whole text at a time
    numbers ──▶ ids           encoder.py      the library encodes each distinct word once; a gather does the rest
    counted words ──▶ merges  merges.py       all places of a pair are merged at once

The ids are those of the `tokenizers` library and the vocabularies those of its trainer, bit for bit. The library
classifies characters as letters, numbers and white space, and encodes every distinct word. The tests compare with it
for characters of all planes and for random mixtures of awkward text.

Memory is bounded for any text, at a price in two rare cases. Where the distinct words take more than 5 MiB, the rarest
are dropped while a vocabulary is learned; the library keeps them all. And a stretch of more than a million characters
of one class, such as a genome in one line, is cut anywhere.

Why it exists. The libraries encode every word of a text anew, and count words slowly. Processor seconds of the whole
`gptcli tokenize` and, in parentheses, elapsed seconds on 2 cores (docs/log.md, 2026-11-22, has the commands):

    text                                      this package      tiktoken in threads, vocabulary by `tokenizers`
    3 MB, given vocabulary                    1.0  (0.8)        1.0  (0.7)
    3 MB, 8,192 entries learned               1.6  (1.4)        2.2  (1.4)
    60 MB, given vocabulary                   3.9  (3.0)        7.6  (4.1)
    60 MB, 8,192 entries learned              6.7  (5.7)        26   (42)
    250 MB, given vocabulary                  11.7 (18)         27.9 (29)
    250 MB, 8,192 entries learned             16.2 (30)         99.6 (325)

Learning from 50 MB of the 250 takes 47.7 seconds there, and gives another vocabulary.
"""

from gptcli.tokenizer.corpus.encoder import CorpusEncoder
from gptcli.tokenizer.corpus.merges import learn_vocabulary
from gptcli.tokenizer.corpus.pattern import is_cut, recut

__all__ = ["CorpusEncoder", "is_cut", "learn_vocabulary", "recut"]
