"""One reply, and what speculation did for it.

python examples/first_reply.py [MODEL]
"""

import sys

import paceline

with paceline.load(*sys.argv[1:2]) as llm:
    done = llm.generate("List three rivers of Europe.", chat=True, max_tokens=60)
    print(done.text)
    print(f"\n{done.tokens_per_second:.1f} tokens/s, {done.metrics.acceptance_length:.2f} tokens a pass of the model")
    for source, counts in done.metrics.by_source.items():
        print(f"{source}: {counts['accepted']} of {counts['drafted']} guesses were right")
