"""A reply that is JSON by a schema, whatever the model would like to say; guesses are checked against it too.

pip install 'paceline[grammar]'; python examples/form_of_a_reply.py [MODEL]
"""

import json
import sys

import paceline

SCHEMA = {
    "type": "object",
    "properties": {"city": {"enum": ["Oslo", "Rome"]}, "warm": {"type": "boolean"}},
    "required": ["city", "warm"],
    "additionalProperties": False,
}

with paceline.load(*sys.argv[1:2]) as llm:
    done = llm.generate("Where shall we go?", chat=True, grammar=paceline.Grammar.json_schema(SCHEMA), max_tokens=60)
    print(json.loads(done.text))
