#!/usr/bin/env python3
"""Conversations through zerod and through transformers: the same ids, and the same mask?

    python tests/reference/chat_compare.py ZEROD TOKENIZER_DIR TEMPLATE... [--count N] [--seed N] [--show]

Makes N conversations of every kind (tools, reasoning, special tokens in the text, empty turns), renders them with
apply_chat_template of each template, and asks `zerod data inspect` for the same. The mask is transformers' own where a
template has {% generation %}; elsewhere it is made here of texts of prefixes where they are prefixes, and other
conversations are counted apart. Conversations that transformers refuses have to end zerod with 65."""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile

from transformers import AutoTokenizer

DATE = "2026-07-04"
WORDS = ("the quick brown fox", "2 + 2 = 4", "naïve café", "日本語のテキスト", "🙂 ok", "def f(x):\n    return x", "\"quoted\" \\ back",
         "a<|im_end|>b", "<b>bold</b>", "line one\nline two\n\n", "  indented", "trailing  ", "\t tab", "x" * 40, "I'll don't", "ﬁ ﬀ", "e\u0301 a\u030a",
         "Hi", "No.", "1234567890", "<|eot_id|>", "</s>", "[INST]", "{% raw %}", "{{ x }}", "http://a.b/c?d=e&f")


def text(rng, most=6):
    return " ".join(rng.choice(WORDS) for _ in range(rng.randint(1, most)))


def tool(rng):
    return {"type": "function", "function": {"name": rng.choice(("search", "add", "get_weather")), "description": text(rng, 2), "parameters": {
        "type": "object", "properties": {"q": {"type": "string", "description": "what"}, "n": {"type": "integer"}}, "required": ["q"]}}}


def call(rng, n):
    args = {"q": text(rng, 2)}
    if rng.random() < .5:
        args["n"] = rng.randint(0, 99)
    if rng.random() < .2:
        args["deep"] = {"a": [1, "two", None, True, 2.5], "b": {}}
    return {"id": "call%05d" % n, "type": "function", "function": {"name": rng.choice(("search", "add")), "arguments": args}}


def conversation(rng, kind):
    messages, tools = [], None
    if rng.random() < .5:
        messages.append({"role": "system", "content": text(rng, 3)})
    if kind == "tools":
        tools = [tool(rng) for _ in range(rng.randint(1, 3))]
    for _ in range(rng.randint(1, 4)):
        messages.append({"role": "user", "content": text(rng)})
        if kind == "tools" and rng.random() < .7:
            calls = [call(rng, n) for n in range(rng.choice((1, 1, 1, 2)))]
            answer = {"role": "assistant", "content": rng.choice(("", text(rng, 2))), "tool_calls": calls}
            if rng.random() < .3:
                answer["reasoning_content"] = text(rng, 2)
            messages.append(answer)
            for one in calls:
                messages.append({"role": "tool", "tool_call_id": one["id"], "name": one["function"]["name"], "content": text(rng, 2)})
        answer = {"role": "assistant", "content": text(rng)}
        if kind == "reasoning" and rng.random() < .7:
            if rng.random() < .5:
                answer["reasoning_content"] = text(rng, 3)
            else:
                answer["content"] = "<think>\n%s\n</think>\n\n%s" % (text(rng, 3), text(rng))
        if kind == "parts":
            answer["content"] = [{"type": "text", "text": text(rng, 2)} for _ in range(rng.randint(1, 2))]
        if kind == "empty" and rng.random() < .5:
            answer["content"] = ""
        messages.append(answer)
    if kind == "order":
        rng.shuffle(messages)
    return {"messages": messages, **({"tools": tools} if tools else {})}


def render(tokenizer, template, talk, count=None, prompt=False):
    import transformers.utils.chat_template_utils as utils
    messages = talk["messages"] if count is None else talk["messages"][:count]
    return tokenizer.apply_chat_template(messages, tools=talk.get("tools"), chat_template=template, tokenize=False,
                                         add_generation_prompt=prompt)


def spans_by_prefixes(tokenizer, template, talk, whole):
    spans = []
    for i, message in enumerate(talk["messages"]):
        if message["role"] != "assistant":
            continue
        try:
            before, upto = render(tokenizer, template, talk, i, True) if i else "", render(tokenizer, template, talk, i + 1)
        except Exception:
            return None
        if not i or not whole.startswith(before) or not whole.startswith(upto):
            return None
        spans.append((len(before), max(len(before), len(upto.rstrip()))))
    return spans


def expect(tokenizer, template, talk):
    """ids, mask or None."""
    tagged = "endgeneration" in template
    if tagged:
        out = tokenizer.apply_chat_template(talk["messages"], tools=talk.get("tools"), chat_template=template, return_dict=True,
                                            return_assistant_tokens_mask=True)
        return out["input_ids"], out["assistant_masks"]
    whole = render(tokenizer, template, talk)
    spans = spans_by_prefixes(tokenizer, template, talk, whole)
    encoding = tokenizer(whole, add_special_tokens=False, return_offsets_mapping=True)
    if spans is None:
        return encoding["input_ids"], None
    mask = [int(any(a < end and b > begin for begin, end in spans)) for a, b in encoding["offset_mapping"]]
    return encoding["input_ids"], mask


def job(folder, tokenizer, template, data, vocab):
    path = os.path.join(folder, "job.toml")
    with open(path, "w") as f:
        f.write(f'''schema = 1
[job]
output_dir = "{folder}/out"
[model]
tokenizer = "{tokenizer}"
[model.config]
model_type = "llama"
hidden_size = 8
intermediate_size = 8
num_hidden_layers = 1
num_attention_heads = 1
num_key_value_heads = 1
vocab_size = {vocab}
max_position_embeddings = 65536
[data]
cutoff_len = 32768
packing = false
shuffle = false
cache_dir = "{folder}/cache"
chat_template = "{template}"
template_date = "{DATE}"
[[data.train]]
path = "{data}"
[train]
max_steps = 1
''')
    return path


def inspect(zerod, path, count):
    done = subprocess.run([zerod, "data", "inspect", "--job", path, "--format", "json", "--ids", "--count", str(count)],
                          capture_output=True, text=True)
    if done.returncode:
        return done.returncode, done.stderr
    rows = []
    for sample in json.loads(done.stdout)["shown"]:
        rows.append(([i for p in sample["pieces"] for i in p["ids"]], [int(p["trained"]) for p in sample["pieces"] for _ in p["ids"]]))
    return 0, rows


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("zerod")
    parser.add_argument("tokenizer")
    parser.add_argument("templates", nargs="+")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", action="store_true")
    options = parser.parse_args()
    import datetime
    import transformers.utils.chat_template_utils as utils

    class day(datetime.datetime):
        @classmethod
        def now(cls, tz=None):
            return cls.fromisoformat(DATE)

    utils.datetime = day
    tokenizer = AutoTokenizer.from_pretrained(options.tokenizer)
    rng = random.Random(options.seed)
    kinds = ("plain", "plain", "tools", "reasoning", "parts", "empty", "order")
    talks = [conversation(rng, kinds[n % len(kinds)]) for n in range(options.count)]
    total = {"ids": 0, "mask": 0, "looked ahead": 0, "refused": 0, "refused by both": 0, "differ": 0}
    for name in options.templates:
        with open(name) as f:
            template = f.read()
        good, refused = [], []
        for talk in talks:
            try:
                good.append((talk, *expect(tokenizer, template, talk)))
            except Exception as error:
                refused.append((talk, str(error)))
        with tempfile.TemporaryDirectory() as folder:
            data = os.path.join(folder, "data.jsonl")
            row = {"ids": 0, "mask": 0, "ahead": 0, "of": len(good), "refused": len(refused)}
            rest, code, answer = good, 0, []
            path = job(folder, options.tokenizer, name, data, len(tokenizer))
            failed = []
            while rest:
                with open(data, "w") as f:
                    f.writelines(json.dumps(t, ensure_ascii=False) + "\n" for t, _, _ in rest)
                code, answer = inspect(options.zerod, path, len(rest))
                if code != 65 or len(failed) >= 20:
                    break
                at = [w for w in answer.replace(",", " ").split() if w.startswith(data + ":")]
                if not at:
                    break
                n = int(at[0].split(":")[1]) - 1
                failed.append(answer.strip().split("\n")[0][:200] + " " + json.dumps(rest[n][0])[:300 if options.show else 0])
                rest = rest[:n] + rest[n + 1:]
            if code:
                failed.append("%d %s" % (code, answer[:300]))
            else:
                for (talk, ids, mask), (ours, trained) in zip(rest, answer):
                    row["ids"] += ours == list(ids)
                    if ours != list(ids) and options.show:
                        print(name, "ids", json.dumps(talk)[:600], "\n ", repr(tokenizer.decode(ids)), "\n ", repr(tokenizer.decode(ours)))
                    if mask is None:
                        row["ahead"] += 1
                    elif trained[1:] == list(mask)[1:]:
                        row["mask"] += 1
                    elif options.show:
                        print(name, "mask", json.dumps(talk)[:600])
                        print("  wants", [tokenizer.decode([i]) for i, m in zip(ids, mask) if m])
                        print("  has  ", [tokenizer.decode([i]) for i, m in zip(ours, trained) if m])
            both = 0
            for talk, why in refused[:3]:
                with open(data, "w") as f:
                    f.write(json.dumps(talk) + "\n")
                code, answer = inspect(options.zerod, path, 1)
                both += code == 65
                if code != 65:
                    failed.append("not refused (%d): %s %s" % (code, why[:100], json.dumps(talk)[:200]))
        print("%-34s %s refused by both %d of %d" % (os.path.basename(name), row, both, len(refused[:3])), *failed[:4 if options.show else 2], sep="\n      " if failed else "",
              flush=True)
        total["ids"] += row["ids"]
        total["mask"] += row["mask"]
        total["looked ahead"] += row["ahead"]
        total["refused"] += len(refused)
        total["differ"] += len(good) - row["ids"]
    print(total)


if __name__ == "__main__":
    main()
