"""How each family cuts text into words before byte-level BPE, by the name a GGUF file gives it.

A family is a list of patterns applied one after the other: each cuts every piece left by the one before into its
matches and what lies between them. Patterns are for Oniguruma and give llama.cpp's cuts. Knows nothing of vocabularies.
"""

from __future__ import annotations

from dataclasses import dataclass

from paceline.errors import UnsupportedModel

# What the English contractions, then the rest of the line, look like in each generation of tokenizers.
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_CONTRACTION = r"'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]"
_WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_SYMBOLS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"

# Only ASCII letters have a case here: every other letter may stand in the upper and in the lower part of a word.
_UPPER, _LOWER = r"[\p{L}&&[^a-z]]", r"[\p{L}&&[^A-Z]]"


def _cl100k(digits: str) -> str:
    return "|".join((_CONTRACTION, _WORD, digits, _SYMBOLS, _SPACES))


def _o200k(digits: str, ending: str) -> str:
    lead = r"[^\r\n\p{L}\p{N}]?"
    low = f"{lead}{_UPPER}*{_LOWER}+{ending}"
    up = f"{lead}{_UPPER}+{_LOWER}*{ending}"
    return "|".join((low, up, digits, r" ?[^\s\p{L}\p{N}]+[\r\n/]*", _SPACES))


_DEEPSEEK3 = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"
    r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|" + _SPACES
)


@dataclass(frozen=True)
class PreTokenizer:
    """The patterns of one family and what the family's name implies when the file does not say it."""

    patterns: tuple[str, ...]
    ignore_merges: bool = False
    add_bos: bool = False


_DIGIT_THEN_GPT2 = PreTokenizer((r"\p{N}", _GPT2))
_PLAIN_GPT2 = PreTokenizer((_GPT2,))
_ONE_DIGIT = PreTokenizer((_cl100k(r"\p{N}"),))
_THREE_DIGITS = PreTokenizer((_cl100k(r"\p{N}{1,3}"),))
_LLAMA3 = PreTokenizer(_THREE_DIGITS.patterns, ignore_merges=True, add_bos=True)
_GPT4O = PreTokenizer((_o200k(r"\p{N}{1,3}", f"(?:{_CONTRACTION})?"),))

PRETOKENIZERS: dict[str, PreTokenizer] = {
    "default": PreTokenizer((r"[\p{P}$+<=>^~|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]")),
    **dict.fromkeys(("gpt-2", "phi-2", "gigachat", "a.x-4.0", "mellum", "exaone4"), _PLAIN_GPT2),
    **dict.fromkeys(("mpt", "olmo", "jais", "trillion", "granite-docling"), _PLAIN_GPT2),
    **dict.fromkeys(("smollm", "starcoder", "refact", "command-r", "codeshell"), _DIGIT_THEN_GPT2),
    **dict.fromkeys(("exaone", "minerva-7b"), _DIGIT_THEN_GPT2),
    **dict.fromkeys(
        ("llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"), _LLAMA3
    ),
    **dict.fromkeys(("smaug-bpe", "dbrx", "glm4", "chatglm-bpe"), _THREE_DIGITS),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "stablelm2", "hunyuan", "megrez", "grok-2"), _ONE_DIGIT),
    **dict.fromkeys(("gpt-4o", "llama4", "kanana2"), _GPT4O),
    "tekken": PreTokenizer((_o200k(r"\p{N}", ""),), ignore_merges=True, add_bos=True),
    "falcon": PreTokenizer((r"[\p{P}$+<=>^~|`]+", _GPT2, r"[0-9][0-9][0-9]")),
    "deepseek-coder": PreTokenizer(
        (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", r"[一-龥ࠀ-一가-\x{d7ff}&&[^\s]]+", r"\p{N}")
    ),
    **dict.fromkeys(
        ("deepseek-v3", "hunyuan-dense", "joyai-llm"),
        PreTokenizer((r"\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+", _DEEPSEEK3)),
    ),
    "qwen35": PreTokenizer(
        (
            "|".join(
                (
                    _CONTRACTION,
                    r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+",
                    r"\p{N}",
                    r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*",
                    _SPACES,
                )
            ),
        )
    ),
    "seed-coder": PreTokenizer(
        ("|".join((_CONTRACTION, _WORD, r"\p{N}", r" ?[^\s\p{L}\p{N}\r\n]+", _SPACES)),),
    ),
}


def pretokenizer(name: str) -> PreTokenizer:
    """Return the family called `name`; raise UnsupportedModel for a name that is not in the table."""
    found = PRETOKENIZERS.get(name)
    if found is None:
        raise UnsupportedModel(
            f"the file's pre-tokenizer must be one of {', '.join(sorted(PRETOKENIZERS))}; got `{name}`",
            hint="use the model's Hugging Face folder (its tokenizer.json says how to cut words) or another model",
        )
    return found
