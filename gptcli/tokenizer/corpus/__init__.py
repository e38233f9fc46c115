"""TODO"""

from gptcli.tokenizer.corpus.encoder import CorpusEncoder
from gptcli.tokenizer.corpus.merges import learn_vocabulary
from gptcli.tokenizer.corpus.pattern import recut

__all__ = ["CorpusEncoder", "learn_vocabulary", "recut"]
