"""Measure `paceline serve` as its clients see it, beside llama.cpp's own server where xllamacpp is installed.

    python tools/serving.py rates --model smollm2-135m --clients 1,4,8    tokens/s: ours, without drafts, llama.cpp
    python tools/serving.py pause                                         a running reply while a long prompt arrives
    python tools/serving.py document                                      ten questions about one long document
    python tools/serving.py overhead                                      one client against `paceline.LLM` itself
    python tools/serving.py memory --requests 10000                       resident bytes before and after; idle time
    python tools/serving.py swap --model qwen2.5-coder-1.5b               two models under a ceiling for one
    python tools/serving.py storm --seconds 120                           64 clients over a tiny cache

Prompts are new to every way and repeat, for caches would tell the rest. Ways take turns. The last line is JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
from llama_server import llama_server

from paceline.bench.workloads import asks
from paceline.formats.catalog import resolve

WHAT = ("rates", "pause", "document", "overhead", "memory", "swap", "storm")
WORKLOADS = ("code", "chat", "math", "edit")
PACELINE = Path(sys.executable).with_name("paceline")
WORDS = "the river carries old boats slowly down towards grey hills where people trade salt for copper and tell stories"


def main() -> None:
    options = parsed()
    known = (rates, pause, document, overhead, memory, swap, storm)
    found = {one.__name__: one for one in known}[options.what](options)
    print(json.dumps({"what": options.what, "model": options.model, **found}))


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=WHAT)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--draft", default="auto")
    parser.add_argument("--peer-draft", default="", help="a draft model for llama.cpp, by its name here")
    parser.add_argument("--clients", default="1,4,8", help="how many at once, with commas between")
    parser.add_argument("--peer", default="plain,ngram-mod", help="llama.cpp's modes to run beside; empty for none")
    parser.add_argument("--each", type=int, default=3, help="requests of a client")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=120.0)
    return parser.parse_args()


# ---- servers


@contextlib.contextmanager
def served(model: str, draft: str = "auto", *more: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Start a server of ours; give its URL once it is ready."""
    line = [PACELINE, "serve", "--model", model, "--draft", draft, "--port", "0", *more]
    process = subprocess.Popen(line, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        while not (found := re.search(r"http://\S+", process.stderr.readline())):
            if process.poll() is not None:
                sys.exit("error: the server ended; its own words are above")
        threading.Thread(target=process.stderr.read, daemon=True).start()
        while httpx.get(f"{found[0]}/ready").status_code != 200:
            time.sleep(0.1)
        yield found[0], process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


# ---- clients


def prompts(count: int) -> list[str]:
    chance = random.SystemRandom()
    found = [ask.fresh(chance) for ask in asks(WORKLOADS, 1 + count // len(WORKLOADS), None)]
    chance.shuffle(found)
    return found[:count]


def document_of(words: int) -> str:
    chance, known = random.SystemRandom(), WORDS.split()
    return " ".join(
        chance.choice(known) + (str(chance.randrange(99)) if chance.random() < 0.2 else "") for _ in range(words)
    )


def body(text: str, tokens: int, **more: Any) -> dict[str, Any]:
    said = [{"role": "user", "content": text}]
    return {"messages": said, "temperature": 0, "max_tokens": tokens, "ignore_eos": True, **more}


async def throughput(url: str, clients: int, each: int, tokens: int, **more: Any) -> float:
    """Return tokens a second of all clients together, each with one request at a time."""
    texts, made = iter(prompts(clients * each)), 0
    async with httpx.AsyncClient(timeout=900) as http:

        async def client() -> None:
            nonlocal made
            for _ in range(each):
                answer = await http.post(f"{url}/v1/chat/completions", json=body(next(texts), tokens, **more))
                answer.raise_for_status()
                made += answer.json()["usage"]["completion_tokens"]

        started = time.perf_counter()
        await asyncio.gather(*(client() for _ in range(clients)))
        return made / (time.perf_counter() - started)


async def streamed(
    http: httpx.AsyncClient, url: str, text: str, tokens: int, **more: Any
) -> tuple[float, list[tuple[float, int]], Any]:
    """Return when a reply was asked for, the seconds at which text came with its tokens, and its usage."""
    asked, times, usage = time.perf_counter(), [], None
    said = body(text, tokens, stream=True, stream_options={"include_usage": True}, **more)
    async with http.stream("POST", f"{url}/v1/chat/completions", json=said) as answer:
        async for line in answer.aiter_lines():
            if line.startswith("data: {"):
                chunk = json.loads(line[6:])
                if "error" in chunk:
                    sys.exit(f"error: {chunk['error']['message']}")
                if chunk["choices"] and chunk["choices"][0]["delta"].get("content"):
                    count = len(chunk["paceline"]["tokens"]) if "paceline" in chunk else 1
                    times.append((time.perf_counter(), count))
                usage = chunk.get("usage") or usage
    return asked, times, usage


# ---- what is measured


def rates(options: argparse.Namespace) -> dict[str, Any]:
    """Tokens a second, ours against ours without drafts and against llama.cpp's modes, the same minutes."""
    found: dict[str, Any] = {}
    for count in map(int, options.clients.split(",")):
        with contextlib.ExitStack() as stack:
            url, _ = stack.enter_context(
                served(options.model, options.draft, "--slots", str(max(count, 8)), "--context", "2048")
            )
            ways = {"on": (url, {}), "off": (url, {"speculation": False})}
            for mode in filter(None, options.peer.split(",")):
                other = stack.enter_context(llama_server(options.model, mode, options.peer_draft, count))
                ways[f"llama.cpp {mode}"] = (other, {})
            said: dict[str, list[float]] = {name: [] for name in ways}
            for repeat in range(-1, options.repeats):
                for name in [*ways][:: 1 if repeat % 2 else -1]:
                    address, more = ways[name]
                    rate = asyncio.run(
                        throughput(address, count, options.each if repeat >= 0 else 1, options.tokens, **more)
                    )
                    if repeat >= 0:  # the first round warms up
                        said[name].append(rate)
        medians = {name: statistics.median(values) for name, values in said.items()}
        others = [value for name, value in medians.items() if name.startswith("llama.cpp")]
        ratios = {"on/off": statistics.geometric_mean([a / b for a, b in zip(said["on"], said["off"], strict=True)])}
        if others:
            ratios["on/llama.cpp"] = medians["on"] / max(others)
        found[str(count)] = {"rates": said, "ratios": ratios}
        print(f"{count} clients: {shown(medians)}; {shown(ratios, 2)}", flush=True)
    return {"clients": found}


def pause(options: argparse.Namespace) -> dict[str, Any]:
    """The seconds between a running reply's tokens while a prompt of some 4,000 arrives, against their median.

    A round's tokens come together and share its seconds, as in the server's own counters.
    """

    async def play(url: str) -> dict[str, float]:
        async with httpx.AsyncClient(timeout=900) as http:
            trace = {"speculation": {"trace": True}}
            running = asyncio.create_task(streamed(http, url, "Tell me a very long story.", 900, **trace))
            await asyncio.sleep(2)
            came, firsts, usage = await streamed(http, url, document_of(2400), 4)
            _, times, _ = await running
        gaps = [(b, (b - a) / n) for (a, _), (b, n) in itertools.pairwise(times) for _ in range(n)]
        during = sorted(gap for at, gap in gaps if came < at <= firsts[0][0])
        before = statistics.median(gap for at, gap in gaps if at <= came)
        p99 = during[int(len(during) * 0.99)] if during else float("nan")
        return {
            "prompt": usage["prompt_tokens"], "first_token_s": firsts[0][0] - came, "gaps": len(during),
            "median_before_ms": 1e3 * before, "p99_during_ms": 1e3 * p99,
            "p99/median": p99 / statistics.median(gap for _, gap in gaps), "p99/before": p99 / before,
        }  # fmt: skip

    with served(options.model, options.draft, "--context", "8192") as (url, _):
        found = []
        for _ in range(options.repeats):
            found.append(asyncio.run(play(url)))
            print(shown(found[-1], 2), flush=True)
    return {"runs": found}


def document(options: argparse.Namespace) -> dict[str, Any]:
    """The first token of questions about one document of some 7,000 tokens: the first user's, and the others'."""

    async def play(url: str) -> list[float]:
        text, found = document_of(4300), []
        async with httpx.AsyncClient(timeout=900) as http:
            for user in range(10):
                question = f"{text}\nQuestion {user}: " + "what does the story say of the river and the salt? " * 8
                asked, times, usage = await streamed(http, url, question, 256)
                found.append(times[0][0] - asked)
                if not user:
                    print(f"{usage['prompt_tokens']} tokens", flush=True)
        return found

    with served(options.model, options.draft, "--context", "8192") as (url, _):
        first, *others = asyncio.run(play(url))
    ratio = statistics.median(others) / first
    print(f"first token: first user {first:.2f} s, others {ratio * first:.3f} s, ratio {ratio:.3f}")
    return {"first_s": first, "others_s": others, "second/first": others[0] / first, "median/first": ratio}


def overhead(options: argparse.Namespace) -> dict[str, Any]:
    """One client's tokens a second against `LLM.generate` in a process of its own, both taking turns."""
    library = (
        "import sys, json, time\nfrom paceline import LLM, SamplingParams\n"
        "llm = LLM(sys.argv[1], draft=sys.argv[2], context=2048)\nprint('ready', flush=True)\n"
        "for line in sys.stdin:\n    n, texts = json.loads(line)\n    t = time.perf_counter()\n"
        "    p = SamplingParams(max_tokens=n, ignore_eos=True)\n"
        "    made = sum(len(llm.generate(x, p, chat=True).token_ids) for x in texts)\n"
        "    print(made / (time.perf_counter() - t), flush=True)\n"
    )
    line = [sys.executable, "-c", library, options.model, options.draft]
    alone = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert alone.stdin is not None
    assert alone.stdout is not None
    alone.stdout.readline()
    texts, ratios = prompts(options.each), []

    async def serve(url: str) -> float:
        made = 0
        async with httpx.AsyncClient(timeout=900) as http:
            started = time.perf_counter()
            for text in texts:
                answer = await http.post(f"{url}/v1/chat/completions", json=body(text, options.tokens))
                made += answer.json()["usage"]["completion_tokens"]
            return made / (time.perf_counter() - started)

    with served(options.model, options.draft, "--context", "2048") as (url, _):
        for repeat in range(-2, options.repeats):
            found = {}
            for way in ("server", "library")[:: 1 if repeat % 2 else -1]:
                if way == "server":
                    found[way] = asyncio.run(serve(url))
                else:
                    print(json.dumps([options.tokens, texts]), file=alone.stdin, flush=True)
                    found[way] = float(alone.stdout.readline())
            if repeat >= 0:
                ratios.append(found["server"] / found["library"])
                print(f"{shown(found)}, server/library {ratios[-1]:.3f}", flush=True)
    alone.stdin.close()
    alone.wait()
    return {"ratios": ratios, "median": statistics.median(ratios)}


def memory(options: argparse.Namespace) -> dict[str, Any]:
    """Resident bytes after a tenth of the requests and after all, and the share of a core an idle server takes."""

    async def play(url: str, count: int) -> None:
        async with httpx.AsyncClient(timeout=900) as http:
            left = iter(range(count))

            async def client() -> None:
                for i in left:
                    text = f"Say {i} and {random.random()} please."
                    answer = await http.post(
                        f"{url}/v1/chat/completions", json=body(text, 1 + i % 8, stream=bool(i % 2))
                    )
                    answer.raise_for_status()

            await asyncio.gather(*(client() for _ in range(8)))

    with served(options.model, options.draft, "--context", "1024") as (url, process):
        asyncio.run(play(url, options.requests // 10))
        early = resident(process.pid)
        asyncio.run(play(url, options.requests - options.requests // 10))
        late = resident(process.pid)
        time.sleep(3)
        before = cpu_seconds(process.pid)
        time.sleep(20)
        idle = (cpu_seconds(process.pid) - before) / 20
    found = {"early_mb": early / 1e6, "late_mb": late / 1e6, "growth": late / early - 1, "idle": idle}
    print(shown(found, 4))
    return found


def resident(pid: int) -> int:
    text = Path(f"/proc/{pid}/status").read_text()
    return 1024 * int(re.search(r"VmRSS:\s+(\d+)", text)[1])  # type: ignore[index]


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def swap(options: argparse.Namespace) -> dict[str, Any]:
    """The seconds until a model that was unloaded for another one has replied with a token."""
    found, bytes_before = list[float](), list[int]()
    size = resolve(options.model).stat().st_size
    with served(options.model, "off", "--model", "smollm2-135m", "--models-bytes", str(size + 1000)) as (url, process):
        for _ in range(options.repeats + 1):
            for name in ("smollm2-135m", options.model):
                started = time.perf_counter()
                answer = httpx.post(f"{url}/v1/chat/completions", json=body("x", 1, model=name), timeout=600)
                answer.raise_for_status()
                seconds = time.perf_counter() - started
                if name == options.model:
                    found.append(seconds)
                else:
                    bytes_before.append(resident(process.pid))
    print(f"swap back: {[round(one, 2) for one in found]} s; resident without it: {bytes_before}")
    return {"seconds": found, "resident_mb": [one / 1e6 for one in bytes_before]}


def storm(options: argparse.Namespace) -> dict[str, Any]:
    """Clients that come, stream, leave early and come again, over a cache that holds little; the statuses they got."""
    seen, ended, sizes = Counter[str](), Counter[str](), list[int]()

    async def client(http: httpx.AsyncClient, url: str, until: float, chance: random.Random) -> None:
        while time.perf_counter() < until:
            said = body(
                f"Tell of {chance.random()} " * chance.choice([1, 5, 60]), chance.choice([1, 20, 100, 300]), stream=True
            )
            leaves = chance.random() < 0.2
            async with http.stream("POST", f"{url}/v1/chat/completions", json=said) as answer:
                seen[str(answer.status_code)] += 1
                if answer.status_code == 429:
                    await answer.aread()
                    await asyncio.sleep(float(answer.headers["retry-after"]))
                    continue
                last = ""
                async for line in answer.aiter_lines():
                    last = line if line.startswith("data: ") else last
                    if leaves and chance.random() < 0.05:
                        break
                else:
                    ended["done" if last == "data: [DONE]" else f"cut: {last[:80]}"] += 1

    async def play(url: str, pid: int) -> None:
        limits = httpx.Limits(max_connections=100)
        async with httpx.AsyncClient(timeout=900, limits=limits) as http:
            until = time.perf_counter() + options.seconds
            clients = [asyncio.create_task(client(http, url, until, random.Random(i))) for i in range(64)]
            while time.perf_counter() < until:
                await asyncio.sleep(options.seconds / 8)
                sizes.append(resident(pid))
            await asyncio.gather(*clients)

    more = ("--context", "2048", "--cache-bytes", str(256 << 20), "--slots", "16", "--max-queue", "32")
    with served(options.model, options.draft, *more) as (url, process):
        asyncio.run(play(url, process.pid))
    print(f"statuses {dict(seen)}, streams {dict(ended)}, resident MB {[round(one / 1e6) for one in sizes]}")
    return {"statuses": dict(seen), "streams": dict(ended), "resident_mb": [one / 1e6 for one in sizes]}


def shown(values: dict[str, float], digits: int = 1) -> str:
    return ", ".join(f"{name} {value:.{digits}f}" for name, value in values.items())


if __name__ == "__main__":
    main()
