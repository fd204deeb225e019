"""How much of a vocabulary target and draft share."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.config import drafters_of
from paceline.core.aliases import Json
from paceline.core.batch import Batch, Forward
from paceline.draft.auto import companion_among
from paceline.draft.base import Loaded
from paceline.draft.vocab.pairing import ENOUGH, aligned
from paceline.draft.vocab.token_map import first_difference, map_tokens
from paceline.engine.loading import read_tokenizer
from paceline.formats.catalog import resolve
from paceline.formats.companions import Companion
from paceline.formats.files import open_model
from paceline.formats.spec import ModelSpec
from paceline.model.base import Capabilities
from paceline.model.cache import PagedCache
from paceline.service.llm import LLM


def check_pair(target: Loaded, draft: Loaded) -> Json:
    """Compare two vocabularies id by id and by what the tokens stand for.

    `same` says every id means the same text in both; `overlap` is the share of the target's text tokens that the draft
    has under any id; `through` is how drafts get across: "ids", "tli" (exact, in the common tokens) or "slem" (exact,
    retokenised text).
    """
    ours, theirs = target.tokenizer, draft.tokenizer
    words = map_tokens(ours, theirs, vocab=target.model.spec.vocab)
    same = aligned(target, draft) is not None
    through = "ids" if same else "tli" if words.overlap >= ENOUGH else "slem"
    return {
        "target": target.name,
        "draft": draft.name,
        "target_tokens": ours.vocab_size,
        "draft_tokens": theirs.vocab_size,
        "same": same,
        "first_difference": None if same else first_difference(target, draft),
        "overlap": words.overlap,
        "through": through,
    }


def companion_of(llm: LLM) -> Companion | None:
    """Return the smaller model that `auto` found and drafts with; `None` if it has none."""
    return companion_among(llm.target.path, llm.setup.drafters) if "auto" in drafters_of(llm.config) else None


def draft_models(llm: LLM) -> list[str]:
    """Return the sources of the draft models that go by their own names, and of the one that `auto` found."""
    named = [name for name, choice in drafters_of(llm.config).items() if choice is None]
    found = companion_of(llm)
    return [*named, *([str(found.path)] if found else [])]


def check_pairs(llm: LLM) -> list[Json]:
    """Compare the target's vocabulary with that of every draft model that goes by its own name."""
    return [check_pair(llm.target, read_draft(source)) for source in draft_models(llm)]


def read_draft(source: str) -> Loaded:
    """Return a draft model's tokenizer and shape; its weights are not read."""
    file = open_model(resolve(source))
    try:
        return Loaded(source, Outline(file.spec), read_tokenizer(file), file.spec.context)
    finally:
        file.close()


class Outline:
    """A model that has a shape and nothing else."""

    capabilities = Capabilities()
    page_bytes = 0

    def __init__(self, spec: ModelSpec) -> None:
        self.spec = spec

    def new_cache(self, tokens: int) -> PagedCache:
        raise NotImplementedError("an outline holds no weights")

    def forward(self, batch: Batch, cache: PagedCache, *, taps: Sequence[int] = ()) -> Forward:
        raise NotImplementedError("an outline holds no weights")
