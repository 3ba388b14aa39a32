#!/usr/bin/env python3
"""Conversations as four kinds of folders, and what transformers makes of them with each family's tokenizer and template.

    python tests/reference/make_journey.py       writes tests/fixtures/journey/

ids.json is {family: {kind: digest}}: tests/program/journey.py's digest of ids and masks. The mask is transformers' own where the
template has generation tags, else of what each answer adds after the generation prompt, up to and with its end mark."""

import json
import os
import random
import sys
import tempfile

import pyarrow
import pyarrow.parquet
import zstandard
from transformers import AutoTokenizer

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.join(HERE, "../..")
OUT = os.path.join(SOURCE, "tests/fixtures/journey")
sys.path[:0] = [HERE, os.path.join(SOURCE, "tests/program")]
import chat_compare
import journey
import journey_models

PARTS = ("the miller's daughter", "2 + 2 = 4", "na\u00efve caf\u00e9", "\u65e5\u672c\u8a9e", "\U0001f525 ok", "def f(x):\n\treturn x", "HTTPServer won't", "12345",
         "I'LL see", "a/b//c", "two  spaces", "\u041f\u0440\u0438\u0432\u0435\u0442", "x_y = [1, 2]", "Why?")


def talks():
    rng = random.Random(34)
    for _ in range(16):
        yield [" ".join(rng.choice(PARTS) for _ in range(rng.randint(1, 2))).strip() for _ in range(2 * rng.choice((1, 1, 2, 2, 3)))]


def write(path, content):
    path = os.path.join(OUT, path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(content)


def lines(rows):
    return "".join(json.dumps(r, ensure_ascii=False) + "\n" for r in rows).encode()


def array(rows):
    return ("[\n" + ",\n".join(json.dumps(r, ensure_ascii=False) for r in rows) + "\n]\n").encode()


def write_folders(all_talks):
    def named(role, content, user, assistant):
        return [[{role: assistant if i % 2 else user, content: text} for i, text in enumerate(talk)] for talk in all_talks]
    os.makedirs(os.path.join(OUT, "messages/data"), exist_ok=True)
    pyarrow.parquet.write_table(pyarrow.table({"messages": named("role", "content", "user", "assistant")}),
                                os.path.join(OUT, "messages/data/train-00000-of-00001.parquet"), compression="snappy")
    write("sharegpt/train.jsonl.zst", zstandard.compress(lines({"conversations": t} for t in named("from", "value", "human", "gpt")), 19))
    write("alpaca/train.json", array({"instruction": t[0], "input": t[2] if len(t) > 2 else "", "output": t[1]} for t in all_talks))
    write("factory/talks.json", array({"dialog": t} for t in named("who", "what", "asker", "bot")))
    write("factory/dataset_info.json", json.dumps({"talks": {"file_name": "talks.json", "formatting": "sharegpt", "columns": {"messages": "dialog"}, "tags": {
        "role_tag": "who", "content_tag": "what", "user_tag": "asker", "assistant_tag": "bot"}}}, indent=1).encode() + b"\n")


def messages_of(kind, talk):
    if kind == "alpaca":
        talk = ["\n".join([talk[0]] + talk[2:3]), talk[1]]
    return {"messages": [{"role": "assistant" if i % 2 else "user", "content": text} for i, text in enumerate(talk)]}


def main():
    all_talks = list(talks())
    write_folders(all_talks)
    found = {}
    for family in journey_models.FAMILIES:
        with tempfile.TemporaryDirectory() as folder:
            journey_models.make(family, SOURCE, os.path.join(folder, "model"))
            tokenizer = AutoTokenizer.from_pretrained(os.path.join(folder, "model"))
        rows = {kind: [chat_compare.expect(tokenizer, tokenizer.chat_template, messages_of(kind, t)) for t in all_talks] for kind in journey_models.KINDS}
        assert max(len(ids) for all_rows in rows.values() for ids, _ in all_rows) < 250, family
        assert max(i for all_rows in rows.values() for ids, _ in all_rows for i in ids) < len(tokenizer), family
        found[family] = {kind: journey.digest(all_rows) for kind, all_rows in rows.items()}
        print(family, len(tokenizer), sum(len(ids) for ids, _ in rows["messages"]), flush=True)
    write("ids.json", json.dumps(found, indent=1).encode() + b"\n")


if __name__ == "__main__":
    main()
