#!/usr/bin/env python3
"""What Hugging Face tokenizers puts around a text, for each post-processor that zerod reads.

    python tests/reference/make_post_processors.py     writes tests/fixtures/tokenizers/post_processors.json anew

    {"library": "tokenizers 0.23.3", "tokenizer": "prefix_space",
     "processors": [{"name", "post_processor": {...}, "cases": [{"text", "ids"}]}]}

Processors and texts are those of the file. The tokenizer is the fixture of that name with the post-processor in the place
of its own; `ids` is encode(text, add_special_tokens=True)."""

import json
import os

import tokenizers

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fixtures", "tokenizers")


def main():
    with open(os.path.join(OUT, "post_processors.json"), encoding="utf-8") as f:
        made = json.load(f)
    with open(os.path.join(OUT, made["tokenizer"], "tokenizer.json"), encoding="utf-8") as f:
        doc = json.load(f)
    for row in made["processors"]:
        tok = tokenizers.Tokenizer.from_str(json.dumps({**doc, "post_processor": row["post_processor"]}))
        row["cases"] = [{"text": case["text"], "ids": tok.encode(case["text"], add_special_tokens=True).ids} for case in row["cases"]]
    with open(os.path.join(OUT, "post_processors.json"), "w", encoding="utf-8") as f:
        f.write(json.dumps({"library": "tokenizers " + tokenizers.__version__, "tokenizer": made["tokenizer"]})[:-1]
                + ', "processors": [\n' + ",\n".join(json.dumps(r) for r in made["processors"]) + "\n]}\n")


if __name__ == "__main__":
    main()
