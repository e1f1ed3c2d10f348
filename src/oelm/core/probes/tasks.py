"""The probe tasks. A row of TASKS is a whole task: its options, its dial, what an example asks, its words and source.

How its examples are made is a function of the same name in generators.py. No numpy here: a wrong option is one line
before anything is loaded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from oelm.core.sections import MOST_DIGITS

Value = int | float
Options = Mapping[str, Value]  # those besides the dial
Phrase = tuple[str, str]  # English, Chinese


@dataclass(frozen=True)
class Option:
    name: str
    default: Value
    meaning: str
    least: Value = 1
    most: Value = 10**MOST_DIGITS - 1

    @property
    def is_whole(self) -> bool:
        return isinstance(self.default, int)


LENGTH = Option("length", 64, "tokens of an example; must be model.seq_len", least=4)
VOCABULARY = Option("vocabulary", 64, "different tokens", least=8)


@dataclass(frozen=True)
class Task:
    name: str
    dial: str  # the option that may be a list: a run trains on all of its values, and reports each
    usual: tuple[int, ...]
    problems: Callable[[int, Options], Iterator[str]]  # of one value of the dial, each beginning with its option
    words: Phrase
    dial_words: Phrase
    documentation: str  # what an example looks like
    source: str
    options: tuple[Option, ...] = (LENGTH, VOCABULARY)  # besides the dial
    # Scored positions of an example, and answers that the context offers (None: it offers none): what the dial says.
    answers: Callable[[int, Options], int] = lambda value, options: value
    candidates: Callable[[int, Options], int] | None = lambda value, options: value
    holds_out: bool = True  # whether held-out examples are kept apart from those trained on


def keys_of(options: Options) -> range:
    """Tokens that serve as keys: the first half, without 0."""
    return range(1, int(options["vocabulary"]) // 2)


def values_of(options: Options) -> range:
    """Tokens that serve as values: the second half, without what is kept for noise."""
    noise_tokens = int(options["vocabulary"]) // 8 if "noise" in options else 0
    return range(int(options["vocabulary"]) // 2, int(options["vocabulary"]) - noise_tokens)


def noise_of(options: Options) -> range:
    return range(values_of(options).stop, int(options["vocabulary"]))


def noise_count(pairs: int, options: Options) -> int:
    """Noise tokens among the pairs of a context, of which they make up the stated share."""
    noise = options.get("noise", 0.0)
    return round(2 * pairs * noise / (1 - noise))


def query_space(pairs: int, options: Options) -> int:
    """Places at which a query can stand, each as long as a pair."""
    width = 2 * int(options.get("tokens", 1))
    return int(options["length"] - width * pairs - noise_count(pairs, options)) // width


def _recall(pairs: int, options: Options) -> Iterator[str]:
    width = int(options.get("tokens", 1))
    different_keys = len(keys_of(options)) ** width
    if pairs > different_keys:
        yield f"pairs: {pairs} is more than the {different_keys} keys that a vocabulary of {options['vocabulary']} has"
    elif pairs > len(values_of(options)):
        yield f"pairs: {pairs} is more than the {len(values_of(options))} values of the vocabulary"
    if pairs > query_space(pairs, options):
        needed = 4 * width * pairs + noise_count(pairs, options)
        yield f"length: {options['length']} is too short for {pairs} pairs and their queries; at least {needed}"


def _copy(tokens: int, options: Options) -> Iterator[str]:
    if tokens > options["vocabulary"] - FIRST_CONTENT:
        yield f"tokens: {tokens} different ones are more than the {options['vocabulary'] - FIRST_CONTENT} there are"
    if 2 * tokens + 1 > options["length"]:
        yield f"length: {options['length']} is too short for {tokens} tokens and their copy; at least {2 * tokens + 1}"


def letters_of(pairs: int, options: Options) -> int:
    """So few that keys of several tokens share them: as many as tell so many keys apart, at least two."""
    width = int(options["tokens"])
    return next(count for count in range(2, pairs + 2) if count**width >= pairs)


def _induction(period: int, options: Options) -> Iterator[str]:
    if period < 3:
        yield f"period: must be at least 3, not {period}: two tokens would only alternate"
    if period > options["vocabulary"]:
        yield f"period: {period} different tokens are more than the vocabulary of {options['vocabulary']}"
    if period + 2 > options["length"]:
        yield f"length: {options['length']} is too short for {period} tokens and a question; at least {period + 2}"


def questions_after(period: int, options: Options) -> int:
    """Every second place after the ring, which is closed by its first token."""
    return -(-(int(options["length"]) - period - 1) // 2)


BLANK, MARK, FIRST_CONTENT = 0, 1, 2  # a place without content, a sign, the first of the tokens with content
MOST_HOPS = 8  # as many signs say how often to follow


def _hops(hops: int, options: Options) -> Iterator[str]:
    nodes, queries = int(options["nodes"]), int(options["queries"])
    if hops > MOST_HOPS:
        yield f"hops: at most {MOST_HOPS}, not {hops}"
    elif hops >= nodes:
        yield f"hops: {hops} pointers lead around a ring of {nodes} nodes; at most {nodes - 1}"
    if nodes > options["vocabulary"] - MOST_HOPS - 1:
        yield f"nodes: {nodes} is more than the {options['vocabulary'] - MOST_HOPS - 1} tokens that can be nodes"
    if queries > nodes:
        yield f"queries: {queries} is more than the {nodes} nodes, each of which is asked for at most once"
    if 2 * (nodes + queries) > options["length"]:
        needed = 2 * (nodes + queries)
        yield f"length: {options['length']} is too short for the pointers and the queries; at least {needed}"


def items_at_once(options: Options) -> int:
    return int(options["length"]) // 3


def key_alphabet(most_items: int) -> int:
    """A key is two tokens of so many."""
    return math.isqrt(most_items - 1) + 1


def stored_values(most_items: int, options: Options) -> range:
    return range(key_alphabet(most_items) + 1, int(options["vocabulary"]))


def _memorise(items: int, options: Options) -> Iterator[str]:
    if items < items_at_once(options):
        yield f"items: {items} is less than the {items_at_once(options)} that an example of this length asks for"
    if len(stored_values(items, options)) < 2:
        yield f"vocabulary: {options['vocabulary']} is too small for {items} items; at least {key_alphabet(items) + 3}"


TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        Task(
            name="recall",
            dial="pairs",
            usual=(4, 8, 16),
            problems=_recall,
            words=("associative recall", "联想回忆"),
            dial_words=("key-value pairs", "键值对数"),
            documentation="pairs of a key and a value, then the keys again at drawn distances, each asking for its "
            "value; random tokens between them",
            source="multi-query associative recall, Arora et al. 2023, arXiv 2312.04927 (Zoology)",
        ),
        Task(
            name="fuzzy_recall",
            dial="pairs",
            usual=(2, 4, 8),
            options=(Option("tokens", 2, "tokens of a key, and of a value", least=2, most=8), LENGTH, VOCABULARY),
            problems=_recall,
            words=("fuzzy recall", "多 token 回忆"),
            dial_words=("key-value pairs", "键值对数"),
            documentation="the same with keys and values of several tokens; keys are made of so few that they share "
            "them, and the first token of the value is asked for",
            source="fuzzy in-context recall, Poli et al. 2024, arXiv 2403.17844 (MAD)",
        ),
        Task(
            name="noisy_recall",
            dial="pairs",
            usual=(4, 8),
            options=(Option("noise", 0.2, "share of noise among the pairs", least=0.0, most=0.9), LENGTH, VOCABULARY),
            problems=_recall,
            words=("noisy recall", "带噪回忆"),
            dial_words=("key-value pairs", "键值对数"),
            documentation="recall with noise of its own alphabet (an eighth of the vocabulary) between the pairs and "
            "the queries",
            source="noisy in-context recall, Poli et al. 2024, arXiv 2403.17844 (MAD)",
        ),
        Task(
            name="copy",
            dial="tokens",
            usual=(8, 16, 31),
            problems=_copy,
            words=("copying", "复制"),
            dial_words=("tokens to copy", "待复制的 token 数"),
            documentation="different tokens, a sign, then the same tokens again, each of which is asked for",
            source="copying, Jelassi et al. 2024, arXiv 2402.01032",
        ),
        Task(
            name="selective_copy",
            dial="tokens",
            usual=(4, 8, 16),
            problems=_copy,
            words=("selective copying", "选择性复制"),
            dial_words=("tokens to copy", "待复制的 token 数"),
            documentation="different tokens at random places among blanks, then as many signs, which ask for them in "
            "order",
            source="selective copying, Gu and Dao 2023, arXiv 2312.00752 (Mamba)",
        ),
        Task(
            name="induction",
            dial="period",
            usual=(4, 8, 16),
            problems=_induction,
            answers=questions_after,
            words=("induction", "归纳"),
            dial_words=("tokens of the sequence", "序列的 token 数"),
            documentation="a random ring of different tokens, then drawn tokens of it, each of which asks for the one "
            "that followed it and is followed by that; no fixed distance leads there",
            source="induction heads, Olsson et al. 2022, arXiv 2209.11895",
        ),
        Task(
            name="hops",
            dial="hops",
            usual=(1, 2, 3),
            options=(
                Option("nodes", 8, "nodes of the ring", least=3),
                Option("queries", 4, "nodes that are asked for"),
                LENGTH,
                VOCABULARY,
            ),
            problems=_hops,
            answers=lambda hops, options: int(options["queries"]),
            candidates=lambda hops, options: int(options["nodes"]),
            words=("hops", "多跳"),
            dial_words=("pointers to follow", "需跟随的指针数"),
            documentation="a ring as shuffled pairs of a node and its successor, then queries: a sign that says how "
            "many pointers to follow, and a node to start from",
            source="k-hop induction, Sanford et al. 2024, arXiv 2402.09268",
        ),
        Task(
            name="memorise",
            dial="items",
            usual=(1024,),
            problems=_memorise,
            answers=lambda items, options: items_at_once(options),
            candidates=None,
            words=("memorising", "记忆"),
            dial_words=("items", "条目数"),
            documentation="items of a fixed random table, each a key of two tokens and its value; nothing is held "
            "out, and the bits stored are reported per trainable parameter",
            source="memorisation, Poli et al. 2024, arXiv 2403.17844 (MAD); bits a parameter, Allen-Zhu and Li 2024, "
            "arXiv 2404.05405",
            holds_out=False,
        ),
    )
}


def documentation() -> Iterator[str]:
    """The table of docs/probes.md."""
    yield "| task | dial | other options | an example | source |"
    yield "|---|---|---|---|---|"
    for task in TASKS.values():
        usual = ",".join(map(str, task.usual))
        options = ", ".join(f"`{each.name}={each.default}`" for each in task.options)
        yield f"| `{task.name}` | `{task.dial}={usual}` | {options} | {task.documentation} | {task.source} |"
