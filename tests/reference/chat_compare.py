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
SLICE = 500  # conversations of a data file: five that zerod refuses cost another reading of it


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
    mask = [int(any(a < end and b > begin for begin, end in spans if end > begin)) for a, b in encoding["offset_mapping"]]
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
on_bad_row = "skip"
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
    """What is shown, the rows that were skipped with why (five at most), and their number; or the exit code and what was said."""
    done = subprocess.run([zerod, "data", "inspect", "--job", path, "--format", "json", "--ids", "--count", str(count)],
                          capture_output=True, text=True)
    if done.returncode:
        return done.returncode, done.stderr
    told = json.loads(done.stdout)
    rows = [([i for p in sample["pieces"] for i in p["ids"]], [int(p["trained"]) for p in sample["pieces"] for _ in p["ids"]])
            for sample in told["shown"]]
    return 0, (rows, told["first_bad_rows"], told["bad_rows"])


def match(good, rest, rows, bad):
    """Of which conversations the rows are, if those of the same ids leave out as many as were skipped; else None."""
    found, at = [], 0
    for ids, _ in rows:
        while at < len(rest) and list(good[rest[at]][1]) != ids:
            at += 1
        found.append(at)
        at += 1
    return [rest[i] for i in found] if at <= len(rest) and len(rows) + bad == len(rest) else None


def read_rows(zerod, path, data, good):
    """What zerod makes of each of these conversations; an error's first line for one that it refuses."""
    out, rest, bad = [None] * len(good), list(range(len(good))), True
    while rest and bad:
        with open(data, "w") as f:
            f.writelines(json.dumps(good[i][0], ensure_ascii=False) + "\n" for i in rest)
        code, answer = inspect(zerod, path, len(rest))
        if code:  # the first row of a file must be good
            if code != 65 or data + ":1" not in answer.replace(",", " ").split():
                sys.exit("%d %s" % (code, answer[:300]))
            out[rest.pop(0)] = answer.split("\n")[0]
            continue
        rows, bad, count = answer
        found = match(good, rest, rows, count)
        if found:  # without further readings
            for i in set(rest) - set(found):
                out[i] = "%s: skipped" % data
            for row in bad:
                out[rest[int(row[len(data) + 1:].replace(",", ":").split(":")[0]) - 1]] = row
            for i, row in zip(found, rows):
                out[i] = row
            break
        told = [(int(row[len(data) + 1:].replace(",", ":").split(":")[0]), row) for row in bad]
        for row, why in sorted(told, reverse=True):
            out[rest.pop(row - 1)] = why
        for i, row in zip(rest, rows if not bad else []):
            out[i] = row
    return out


def compare(options, tokenizer, name, talks):
    with open(name) as f:
        template = f.read()
    row = {"empty": 0, "of": 0, "ids": 0, "mask": 0, "mask differs": 0, "ahead": 0, "65": 0, "refused": 0, "refused by both": 0}
    told, refused = [], []
    with tempfile.TemporaryDirectory() as folder:
        data = os.path.join(folder, "data.jsonl")
        path = job(folder, options.tokenizer, name, data, len(tokenizer))
        for begin in range(0, len(talks), SLICE):
            good = []
            for talk in talks[begin:begin + SLICE]:
                try:
                    ids, mask = expect(tokenizer, template, talk)
                    row["empty"] += len(ids) == 0  # no sample
                    if len(ids):
                        good.append((talk, ids, mask))
                except Exception as error:
                    refused.append((talk, str(error), type(error) is jinja2.TemplateError))
            row["of"] += len(good)
            for (talk, ids, mask), ours in zip(good, read_rows(options.zerod, path, data, good)):
                if isinstance(ours, str):
                    row["65"] += 1
                    told.append("%s %s" % (ours[:200], json.dumps(talk) if options.show else ""))
                    continue
                row["ids"] += ours[0] == list(ids)
                if ours[0] != list(ids):
                    told.insert(0, "ids differ: %s\n  %r\n  %r" % (json.dumps(talk)[:2000], tokenizer.decode(ids), tokenizer.decode(ours[0])))
                elif mask is None:
                    row["ahead"] += 1
                elif ours[1][1:] == list(mask)[1:]:
                    row["mask"] += 1
                else:
                    row["mask differs"] += 1
                    told.insert(0, "mask differs: %s\n  wants %r\n  has   %r" % (
                        json.dumps(talk)[:2000], [tokenizer.decode([i]) for i, m in zip(ids, mask) if m], [tokenizer.decode([i]) for i, m in zip(*ours) if m]))
        for talk, why, was_raised in refused[:3]:
            with open(data, "w") as f:
                f.write(json.dumps(talk) + "\n")
            code, answer = inspect(options.zerod, path, 1)
            is_same = code == 65 and (not was_raised or why in answer)
            row["refused by both"] += is_same
            if not is_same:
                told.insert(0, "not refused so (%d): %s %s" % (code, why[:100], json.dumps(talk)[:200]))
        row["refused"] = len(refused)
    print("%-34s %s of %d" % (os.path.basename(name), row, len(refused[:3])), *told[:40 if options.show else 2], sep="\n      ", flush=True)
    return row


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
    total = {}
    for name in options.templates:
        for key, count in compare(options, tokenizer, name, talks).items():
            total[key] = total.get(key, 0) + count
    print(len(talks), "conversations:", total)


if __name__ == "__main__":
    main()
