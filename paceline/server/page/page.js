"use strict";
// The page asks the server's own API and draws what each chunk tells of speculation under the key `paceline`.

const at = (id) => document.getElementById(id);
const make = (tag, text = "", attributes = {}) => {
  const node = document.createElementNS(tag === "svg" || attributes.svg ? "http://www.w3.org/2000/svg" : "http://www.w3.org/1999/xhtml", tag);
  for (const [name, value] of Object.entries(attributes)) if (name !== "svg") node.setAttribute(name, value);
  if (text) node.textContent = text;
  return node;
};

let messages = [];       // the conversation
let last = null;         // the latest reply: { asked, text, seconds, tokens }
let running = null;      // AbortController of the reply under way
const sources = new Map(); // name -> { colour, drafted, accepted }

function colourOf(source) {
  if (!source) return "";
  if (!sources.has(source)) sources.set(source, { colour: `var(--s${sources.size % 5})`, drafted: 0, accepted: 0 });
  return sources.get(source).colour;
}

async function* chunksOf(body, signal) {
  const headers = { "Content-Type": "application/json" };
  const key = sessionStorage.getItem("key");
  if (key) headers.Authorization = `Bearer ${key}`;
  const response = await fetch("/v1/chat/completions", { method: "POST", headers, body: JSON.stringify(body), signal });
  if (response.status === 401) {
    const given = prompt("This server wants an API key:");
    if (given) {
      sessionStorage.setItem("key", given);
      yield* chunksOf(body, signal);
      return;
    }
  }
  if (!response.ok) {
    const said = await response.json().catch(() => null);
    throw new Error(said?.error?.message ?? `the server answered ${response.status}`);
  }
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    rest += value.replaceAll("\r\n", "\n");
    const parts = rest.split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      const data = part.split("\n").filter((line) => line.startsWith("data: ")).map((line) => line.slice(6)).join("\n");
      if (!data || data === "[DONE]") continue;
      const chunk = JSON.parse(data);
      if (chunk.error) throw new Error(chunk.error.message);
      yield chunk;
    }
  }
}

function bodyOf(asked, speculation) {
  return {
    model: at("model").value, messages: asked, stream: true, stream_options: { include_usage: true },
    temperature: Number(at("temperature").value), max_tokens: Number(at("most").value), seed: 1, speculation,
  };
}

function showTokens(turn, said) {
  for (const token of said.tokens ?? []) {
    const span = make("span", token.text);
    if (token.source) {
      span.dataset.source = token.source;
      span.style.color = colourOf(token.source);
      const odds = token.probability == null ? "" : `, likely to ${Math.round(100 * token.probability)} %`;
      span.title = `guessed by ${token.source} at depth ${token.depth}${odds}`;
    } else {
      span.title = "the target's own token";
    }
    turn.append(span);
  }
}

// ---- the panel

const totals = { tokens: 0, rounds: 0, drafted: [], accepted: [] };

function resetPanel() {
  Object.assign(totals, { tokens: 0, rounds: 0, drafted: [], accepted: [] });
  for (const source of sources.values()) source.drafted = source.accepted = 0;
}

function showPanel(said, started, first) {
  const round = said.round;
  if (round) {
    totals.rounds += 1;
    totals.tokens += said.tokens.length;
    round.drafted.forEach((count, depth) => { totals.drafted[depth] = (totals.drafted[depth] ?? 0) + count; });
    round.accepted.forEach((count, depth) => { totals.accepted[depth] = (totals.accepted[depth] ?? 0) + count; });
    for (const [name, [drafted, accepted]] of Object.entries(round.by_source)) {
      colourOf(name);
      sources.get(name).drafted += drafted;
      sources.get(name).accepted += accepted;
    }
  }
  const seconds = (performance.now() - first) / 1000;
  const speed = totals.tokens > 1 && seconds > 0 ? (totals.tokens - 1) / seconds : null;
  at("speed").textContent = speed ? `${speed.toFixed(1)} tokens/s` : "–";
  const plain = said.plain_tokens_per_second;
  if (plain) at("plain").textContent = `${plain.toFixed(1)} tokens/s`;
  if (plain && speed) at("gain").textContent = `${(speed / plain).toFixed(2)}×`;
  if (totals.rounds) at("length").textContent = (totals.tokens / totals.rounds).toFixed(2);
  if (said.reason) at("reason").textContent = said.reason;
  at("sources").replaceChildren(...[...sources].map(([name, one]) => {
    const item = make("li");
    const label = make("span", name);
    label.style.color = one.colour;
    item.append(label, make("span", `${one.accepted} of ${one.drafted} accepted`));
    return item;
  }));
  at("depths").replaceChildren(...totals.drafted.slice(0, 12).map((count, depth) => {
    const share = count ? (totals.accepted[depth] ?? 0) / count : 0;
    const item = make("li"), bar = make("span", "", { class: "bar" }), fill = make("i");
    fill.style.width = `${100 * share}%`;
    bar.append(fill);
    item.append(make("span", String(depth + 1)), bar, make("span", `${Math.round(100 * share)} %`));
    return item;
  }));
  if (said.tree && said.tree.tokens.length > 1) drawTree(said.tree);
}

function drawTree(tree) {
  const height = 22, depth = [0], row = [0], kept = new Set([0, ...tree.accepted]);
  const children = tree.tokens.map(() => []);
  tree.parents.forEach((parent, node) => { if (parent >= 0) children[parent].push(node); });
  let rows = 0;
  const place = (node, level) => {
    depth[node] = level;
    row[node] = rows;
    children[node].forEach((child, i) => { if (i) rows += 1; place(child, level + 1); });
  };
  place(0, 0);
  const shown = tree.tokens.map((text) => {
    const visible = text.replaceAll("\n", "⏎").replaceAll(" ", "·");
    return visible.length > 10 ? `${visible.slice(0, 9)}…` : visible;
  });
  const starts = [4], widths = [];
  for (let level = 0; level <= Math.max(...depth); level += 1) {
    widths[level] = 7.3 * Math.max(...shown.filter((_, node) => depth[node] === level).map((text) => text.length));
    starts[level + 1] = starts[level] + widths[level] + 24;
  }
  const picture = make("svg", "", { width: starts.at(-1), height: (rows + 1) * height + 8, role: "img",
    "aria-label": `draft of ${tree.tokens.length - 1} guesses, ${tree.accepted.length} accepted` });
  shown.forEach((text, node) => {
    const x = starts[depth[node]], y = row[node] * height + 16, parent = tree.parents[node];
    if (parent >= 0) {
      const x0 = starts[depth[parent]] + 7.3 * shown[parent].length + 3, y0 = row[parent] * height + 12;
      picture.append(make("path", "", { svg: 1, d: `M${x0},${y0} C${x - 12},${y0} ${x - 14},${y - 4} ${x - 3},${y - 4}`,
        class: kept.has(node) ? "kept" : "" }));
    }
    const group = make("g", "", { svg: 1, class: kept.has(node) ? "kept" : "" });
    const label = make("text", text, { svg: 1, x, y });
    const odds = tree.probabilities[node];
    const told = node ? `${tree.sources[node]}${odds == null ? "" : `, ${Math.round(100 * odds)} %`}` : "last token";
    label.append(make("title", told, { svg: 1 }));
    group.append(label);
    picture.append(group);
  });
  at("tree").replaceChildren(picture);
}

// ---- asking

async function play(asked, speculation, turn) {
  const started = performance.now();
  let first = null, text = "", tokens = [];
  running = new AbortController();
  at("send").disabled = true;
  at("stop").disabled = false;
  at("compare").disabled = true;
  at("error").textContent = "";
  try {
    for await (const chunk of chunksOf(bodyOf(asked, speculation), running.signal)) {
      const said = chunk.paceline ?? {};
      text += chunk.choices?.[0]?.delta?.content ?? "";
      if (said.tokens?.length) {
        first ??= performance.now();
        tokens.push(...said.tokens.map((token) => token.id));
        if (turn) {
          showTokens(turn, said);
          showPanel(said, started, first);
          at("turns").scrollTop = at("turns").scrollHeight;
        }
      }
    }
    return { asked, text, tokens, seconds: (performance.now() - (first ?? started)) / 1000 }; // from the first token on
  } finally {
    running = null;
    at("send").disabled = false;
    at("stop").disabled = true;
    at("compare").disabled = !last;
  }
}

async function send() {
  const text = at("text").value.trim();
  if (!text || running) return;
  at("text").value = "";
  const asked = [...messages, { role: "user", content: text }];
  at("turns").append(make("li", text, { class: "user" }));
  const turn = make("li", "", { class: "reply" });
  at("turns").append(turn);
  resetPanel();
  at("compared").textContent = "";
  try {
    last = await play(asked, { trace: true }, turn);
    messages = [...asked, { role: "assistant", content: last.text }];
    at("compare").disabled = false;
  } catch (error) {
    if (error.name !== "AbortError") at("error").textContent = error.message;
    messages = turn.textContent ? [...asked, { role: "assistant", content: turn.textContent }] : messages;
  }
  at("text").focus();
}

async function compare() {
  if (!last || running) return;
  const before = last;
  at("compared").textContent = "running without speculation …";
  try {
    const plain = await play(before.asked, false, null);
    const same = plain.text === before.text;
    at("compared").textContent = `${same ? "The same" : "NOT the same"} ${before.tokens.length} tokens: `
      + `${before.seconds.toFixed(2)} s of decoding with speculation, ${plain.seconds.toFixed(2)} s without (${(plain.seconds / before.seconds).toFixed(2)}×).`;
  } catch (error) {
    at("compared").textContent = error.name === "AbortError" ? "stopped" : error.message;
  }
}

at("ask").addEventListener("submit", (event) => { event.preventDefault(); send(); });
at("text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); send(); }
});
document.addEventListener("keydown", (event) => { if (event.key === "Escape" && running) running.abort(); });
at("stop").addEventListener("click", () => running?.abort());
at("compare").addEventListener("click", compare);
at("anew").addEventListener("click", () => {
  running?.abort();
  messages = [];
  last = null;
  at("turns").replaceChildren();
  at("compare").disabled = true;
  at("text").focus();
});

async function begin() {
  const key = sessionStorage.getItem("key");
  const response = await fetch("/v1/models", key ? { headers: { Authorization: `Bearer ${key}` } } : {});
  if (response.status === 401) {
    const given = prompt("This server wants an API key:");
    if (!given) return;
    sessionStorage.setItem("key", given);
    return begin();
  }
  const said = await response.json();
  at("model").replaceChildren(...(said.data ?? []).map((one) => make("option", one.id)));
  if (!response.ok) at("error").textContent = said.error?.message ?? "the server is not ready";
}
begin().catch((error) => { at("error").textContent = error.message; });
