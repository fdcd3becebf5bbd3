"""Workloads: prompts and token budgets that follow from a seed."""

import random
from enum import StrEnum

# Common English words: most tokenizers make one token of each, so words are a fair stand-in for tokens.
_TEXT = """
    time year people way day man thing woman life child world school state family student group country
    problem hand part place case week company system program question work government number night point
    home water room mother area money story fact month lot right study book eye job word business issue
    side kind head house service friend father power hour game line end member law car city community
    name president team minute idea body information back parent face others level office door health
    person art war history party result change morning reason research girl guy moment air teacher force
    education
"""
_WORDS = _TEXT.split()


class Workload(StrEnum):
    """How the prompts of a cohort relate to each other."""

    IDENTICAL = "identical"
    SHARED_PREFIX = "shared-prefix"
    DISTINCT = "distinct"
    MIXED_LENGTH = "mixed-length"


def make_prompts(workload: Workload, count: int, words: int, seed: int) -> list[str]:
    """`count` prompts of `words` words; mixed lengths start at a quarter of that.

    Prompts that share a prefix differ in their last eighth.
    """
    if workload is Workload.IDENTICAL:
        return [_text(seed, 0, words)] * count
    if workload is Workload.SHARED_PREFIX:
        own = max(1, words // 8)
        return [f"{_text(seed, 0, words - own)} {_text(seed, i + 1, own)}" for i in range(count)]
    if workload is Workload.MIXED_LENGTH:
        sizes = _spread(count, max(1, words // 4), words)
        return [_text(seed, i + 1, size) for i, size in enumerate(sizes)]
    return [_text(seed, i + 1, words) for i in range(count)]


def make_budgets(workload: Workload, count: int, max_tokens: int) -> list[int]:
    """Token budgets: the maximum for all, or from one token to the maximum for mixed lengths.

    The shortest budget goes to the longest prompt, so that long answers do not only follow long prompts.
    """
    if workload is not Workload.MIXED_LENGTH:
        return [max_tokens] * count
    return _spread(count, 1, max_tokens)[::-1]


def _spread(count: int, low: int, high: int) -> list[int]:
    """`count` whole numbers evenly from low to high; a single one is the high one."""
    if count == 1:
        return [high]
    return [low + round(i * (high - low) / (count - 1)) for i in range(count)]


def _text(seed: int, part: int, words: int) -> str:
    # A string seed is hashed by SHA-512 inside random: the same on every Python and machine.
    chooser = random.Random(f"{seed}/{part}")
    return " ".join(chooser.choice(_WORDS) for _ in range(words))
