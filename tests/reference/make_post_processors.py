#!/usr/bin/env python3
"""What Hugging Face tokenizers puts around a text, for each post-processor that zerod reads.

    python tests/reference/make_post_processors.py     writes tests/fixtures/tokenizers/post_processors.json

    {"library": "tokenizers 0.23.3", "tokenizer": "prefix_space",
     "processors": [{"name", "post_processor": {...}, "cases": [{"text", "ids"}]}]}

The tokenizer is the fixture of that name with the post-processor in the place of its own; `ids` is
encode(text, add_special_tokens=True)."""

import json
import os

import tokenizers
from tokenizers import Tokenizer

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(HERE, "..", "fixtures", "tokenizers")
BASE = "prefix_space"
TEXTS = ["", " ", "The miller's daughter", "a</s>b", "<s>x</s>", "\n\n", "caf\u00e9 123"]
BOS, EOS = ("<s>", 456), ("</s>", 457)


def template(*pieces, single="A"):
    """`pieces`: names of special tokens, or None for the text."""
    known = dict((BOS, EOS))
    listed = [{"Sequence": {"id": single, "type_id": 0}} if p is None else {"SpecialToken": {"id": p, "type_id": 0}}
              for p in pieces]
    return {"type": "TemplateProcessing", "single": listed,
            "pair": listed + [{"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {p: {"id": p, "ids": [known[p]], "tokens": [p]} for p in pieces if p is not None}}


def several():
    """One special token of several ids."""
    processor = template("<s>", None, "</s>")
    processor["special_tokens"]["</s>"].update(ids=[457, 456], tokens=["</s>", "<s>"])
    return processor


BYTES = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True}
PROCESSORS = {
    "none": None,
    "BOS": template("<s>", None),
    "EOS, as T5 has it": template(None, "</s>"),
    "both, as BERT has them": template("<s>", None, "</s>"),
    "two behind": template(None, "</s>", "<s>"),
    "a token of several ids": several(),
    "Sequence with a template": {"type": "Sequence", "processors": [BYTES, template("<s>", None, "</s>")]},
    "Sequence with ByteLevel behind": {"type": "Sequence", "processors": [template("<s>", None, "</s>"), BYTES]},
}


def main():
    assert tokenizers.__version__ == "0.23.3", tokenizers.__version__
    with open(os.path.join(OUT, BASE, "tokenizer.json"), encoding="utf-8") as f:
        doc = json.load(f)
    rows = []
    for name, processor in PROCESSORS.items():
        tok = Tokenizer.from_str(json.dumps({**doc, "post_processor": processor}))
        cases = [{"text": t, "ids": tok.encode(t, add_special_tokens=True).ids} for t in TEXTS]
        rows.append({"name": name, "post_processor": processor, "cases": cases})
    with open(os.path.join(OUT, "post_processors.json"), "w", encoding="utf-8") as f:
        f.write(json.dumps({"library": "tokenizers " + tokenizers.__version__, "tokenizer": BASE})[:-1]
                + ', "processors": [\n' + ",\n".join(json.dumps(r) for r in rows) + "\n]}\n")


if __name__ == "__main__":
    main()
