"""A conversation, read while it is written; guesses that were right are marked. Earlier turns come from the cache.

python examples/conversation.py [MODEL]
"""

import sys

import paceline

with paceline.load(*sys.argv[1:2]) as llm:
    messages = []
    for question in ("Name a fruit.", "And what colour has it?"):
        messages.append({"role": "user", "content": question})
        reply = llm.chat(messages, max_tokens=40, stop="\n")
        for event in reply:
            print(f"[{event.text}]" if any(event.sources) else event.text, end="", flush=True)
        print()
        messages.append({"role": "assistant", "content": reply.completion.text})
