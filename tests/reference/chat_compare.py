#!/usr/bin/env python3
"""Conversations through zerod and through transformers: the same ids, and the same mask?

    python tests/reference/chat_compare.py ZEROD TOKENIZER_DIR TEMPLATE... [--count N] [--seed N] [--show]

Makes N conversations (chat_corpus.py), renders them with apply_chat_template of each template (those that the package trl has:
trl/chat_templates), and asks `zerod data inspect` for the same. The mask is transformers' own where a
template has {% generation %}; elsewhere it is made here of texts of prefixes where they are prefixes, and other
conversations are counted apart. Of those that transformers refuses three have to end zerod with 65 and the same words."""

import argparse
import json
import os
import subprocess
import sys
import tempfile

import chat_corpus
import chat_render
import jinja2
from transformers import AutoTokenizer

DATE = "2026-07-04"


def talk_of(context):
    """A row of data for a context of chat_corpus; None: zerod takes no such content."""
    texts = [m.get("content", "") for m in context["messages"]]
    if not all(isinstance(t, str) or isinstance(t, list) and all(isinstance(p, dict) and "text" in p for p in t) for t in texts):
        return None
    kwargs = {k: context[k] for k in ("enable_thinking", "reasoning_effort", "preserve_thinking") if k in context}
    talk = {"messages": context["messages"], "tools": context["tools"], "documents": context.get("documents"), "chat_template_kwargs": kwargs or None}
    return {k: v for k, v in talk.items() if v}


def given(talk):
    return {"tools": talk.get("tools"), "documents": talk.get("documents"), **talk.get("chat_template_kwargs", {})}


def render(tokenizer, template, talk, count=None, prompt=False):
    messages = talk["messages"] if count is None else talk["messages"][:count]
    return tokenizer.apply_chat_template(messages, chat_template=template, tokenize=False, add_generation_prompt=prompt, **given(talk))


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
        out = tokenizer.apply_chat_template(talk["messages"], chat_template=template, return_dict=True, return_assistant_tokens_mask=True,
                                            **given(talk))
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
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=34)
    parser.add_argument("--show", action="store_true")
    options = parser.parse_args()
    chat_render.Day.day = DATE
    tokenizer = AutoTokenizer.from_pretrained(options.tokenizer)
    talks = [t for t in map(talk_of, chat_corpus.corpus(options.count, options.seed)) if t]
    total = {"ids": 0, "mask": 0, "looked ahead": 0, "refused": 0, "refused by both": 0, "differ": 0}
    for name in options.templates:
        with open(name) as f:
            template = f.read()
        good, refused = [], []
        for talk in talks:
            try:
                good.append((talk, *expect(tokenizer, template, talk)))
            except Exception as error:
                refused.append((talk, str(error), type(error) is jinja2.TemplateError))
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
                if code != 65 or len(failed) >= 400:
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
            row["65"], both = len(failed), 0
            for talk, why, was_raised in refused[:3]:
                with open(data, "w") as f:
                    f.write(json.dumps(talk) + "\n")
                code, answer = inspect(options.zerod, path, 1)
                is_same = code == 65 and (not was_raised or why in answer)
                both += is_same
                if not is_same:
                    failed.append("not refused so (%d): %s %s" % (code, why[:100], json.dumps(talk)[:200]))
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
