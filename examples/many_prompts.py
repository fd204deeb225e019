"""Many prompts side by side: they share each pass of the model. A failed one does not stop the others.

python examples/many_prompts.py [MODEL]
"""

import sys

import paceline

PROMPTS = ["A haiku about rain.", "A limerick about code.", "A proverb about patience."]

with paceline.load(*sys.argv[1:2], context=512) as llm:
    for prompt, one in zip(
        PROMPTS, llm.generate(PROMPTS, chat=True, max_tokens=40, temperature=0.7, seed=1), strict=True
    ):
        print(f"{prompt}\n{one.error or one.text}\n")
