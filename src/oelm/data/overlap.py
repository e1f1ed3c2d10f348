"""Do documents that are held out also stand in train? A loss on such text is no loss on unseen text.

Only where the source itself has several parts: what is held out of train is chosen by content, twins together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice

from oelm.data.corpora import Corpus, content_hash, is_empty
from oelm.data.readers import Document

MOST_DOCUMENTS = 200_000  # of a part, its first: so many hashes are kept, however large the source is


class Overlap:
    """Watches a corpus go by, train first."""

    def __init__(self, corpus: Corpus) -> None:
        parts = [part for name, part in corpus.parts.items() if name != "train" and part.source_bytes is not None]
        texts = (document.text for part in parts for document in islice(part.read(), MOST_DOCUMENTS))
        self._held_out = {content_hash(text) for text in texts if not is_empty(text)}
        self._in_train: set[int] = set()
        self.counts: Counter[str] = Counter()  # split -> documents that are also in train

    def watched(self, documents: Iterator[tuple[str, Document]]) -> Iterator[tuple[str, Document]]:
        if not self._held_out:
            yield from documents
            return
        for split, document in documents:
            number = content_hash(document.text)
            if split == "train" and number in self._held_out:
                self._in_train.add(number)
            elif split != "train" and number in self._in_train:
                self.counts[split] += 1
            yield split, document
