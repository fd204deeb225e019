"""An edit: the old text is what the reply is expected to be, so most of it costs little more than reading.

python examples/expected_reply.py [MODEL]
"""

import sys

import paceline

CODE = "def area(width, height):\n    return width * height\n\n\nprint(area(2, 3))\n"

with paceline.load(*sys.argv[1:2]) as llm:
    done = llm.generate(
        f"Write this again with `side` for `width`:\n\n{CODE}", chat=True, prediction=CODE, max_tokens=80
    )
    guessed = done.metrics.by_source.get("predicted", {"accepted": 0, "drafted": 0})
    print(done.text)
    print(f"\n{guessed['accepted']} of {guessed['drafted']} expected tokens were right")
