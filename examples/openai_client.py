"""OpenAI's own client against `paceline serve`: the reply as it comes, and what speculation did.

paceline serve & pip install openai; python examples/openai_client.py [ADDRESS]
"""

import sys

from openai import OpenAI

client = OpenAI(base_url=(sys.argv[1:2] or ["http://127.0.0.1:8080/v1"])[0], api_key="none")
model = client.models.list().data[0].id
stream = client.chat.completions.create(
    model=model,
    messages=[{"role": "user", "content": "Say hello in three languages."}],
    max_tokens=40,
    stream=True,
    stream_options={"include_usage": True},
)
for chunk in stream:
    for choice in chunk.choices:
        print(choice.delta.content or "", end="", flush=True)
    if chunk.usage:
        print(f"\n{chunk.usage.completion_tokens} tokens; speculation: {chunk.model_extra['speculation']}")
