#!/usr/bin/env python3
"""Compare our ids with those of Hugging Face tokenizers, and demand that none differs.

    ninja -C build bench/bench_tokenizer
    python tests/reference/tokenizer_compare.py build/bench/bench_tokenizer TOKENIZER_DIR... [--corpus FILE]

The text is made here, the same in every run: the corpus, prose in many scripts, code, numbers, emoji, odd white space,
combining marks in every order, strings of random code points of every kind (letters newer than Unicode 14 among
them), added tokens in awkward places, and degenerate runs. At least --megabytes of it, and as much again by line:
each line by itself, so that the ends of texts are tried too."""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import unicodedata

from tokenizers import Tokenizer

with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "samples.txt"), encoding="utf-8") as samples:
    SAMPLES = [json.loads(line) for line in samples]  # strings of JSON, for their control characters
SPACES = [chr(c) for c in (*range(9, 14), 0x1C, 0x1D, 0x1E, 0x1F, 0x20, 0x85, 0xA0, 0x1680, 0x180E, *range(0x2000, 0x200E),
                           0x2028, 0x2029, 0x202F, 0x205F, 0x2060, 0x3000, 0xFEFF)]
CONTRACTIONS = ["'s", "'S", "'ſ", "'t", "'T", "'re", "'Re", "'rE", "'VE", "'ve", "'m", "'LL", "'lL", "'d", "'", "''", "’s"]
ALL = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
MARKS = [c for c in ALL if unicodedata.combining(chr(c))] + [
    0x897, 0x1ACF, 0x10EFC, 0x113CE, 0x1612F, 0x11930, 0x11935, 0x11A7, 0x1161, 0x11A8, 0x9BE, 0x1D165]
COMPOSED = [c for c in ALL if unicodedata.decomposition(chr(c)) and "<" not in unicodedata.decomposition(chr(c))]
LATIN = [c for c in COMPOSED if c < 0x2000]
COMMON_MARKS = [*range(0x300, 0x329), 0x32D, 0x330, 0x331, 0x338, 0x345, 0x653, 0x654, 0x93C, 0x1161, 0x11A8]
NEWER = [*range(0x1C89, 0x1C8B), *range(0xA7CB, 0xA7CE), *range(0x105C0, 0x105F4), *range(0x10D40, 0x10D86),
         *range(0x11380, 0x113D4), *range(0x11F00, 0x11F5A), *range(0x16100, 0x1613A), *range(0x1E030, 0x1E06E),
         *range(0x1E4D0, 0x1E4FA), *range(0x1E5D0, 0x1E5FB), *range(0x2EBF0, 0x2EE5E), *range(0x31350, 0x323B0)]


def random_line(rng):
    kind = rng.randrange(9)
    n = rng.randrange(1, 60)
    if kind == 0:
        return "".join(chr(rng.choice(ALL)) for _ in range(n))
    if kind == 1:
        return "".join(rng.choice(SPACES + list("ab1\n\r \n")) for _ in range(n))
    if kind == 2:
        return "".join(chr(rng.choice(rng.choice([MARKS, MARKS, COMMON_MARKS, COMMON_MARKS, LATIN]))) if rng.random() < 0.7
                       else rng.choice("aeiouAOU가각ᄀนक" + chr(rng.choice(COMPOSED))) for _ in range(n))
    if kind == 3:
        return "".join(rng.choice(CONTRACTIONS + list("aZé 1s!\n")) for _ in range(n))
    if kind == 4:
        return "".join(chr(rng.choice(NEWER)) if rng.random() < 0.6 else rng.choice("a 1!'\n\u00b2") for _ in range(n))
    if kind == 5:
        return "".join(chr(rng.choice(COMPOSED)) for _ in range(n))
    if kind == 6:
        return "".join(chr(rng.randrange(0x20, 0x250)) for _ in range(n))
    if kind == 7:
        return "".join(rng.choice("0123456789٣४²½ⅷ𝟗 .,-") for _ in range(n))
    words = rng.choice(SAMPLES).split(" ")
    return rng.choice(SPACES[:10] + [" "] * 9).join(rng.choice(words) for _ in range(n))


def token_line(rng, contents):
    pieces = contents + [" ", "  ", "\t", "a", "é", "_", "1", "\n", "²", "\u200d", "\u3000", "x y", "e\u0301", "<"]
    return "".join(rng.choice(pieces) for _ in range(rng.randrange(1, 20)))


def make_text(megabytes, corpus, contents):
    rng = random.Random(20261121)
    parts = [corpus]
    size = len(corpus.encode())
    code = open(os.__file__, encoding="utf-8").read()
    for name in ("argparse.py", "typing.py", "tarfile.py", "datetime.py"):
        path = os.path.join(os.path.dirname(os.__file__), name)
        if os.path.exists(path):
            code += open(path, encoding="utf-8").read()
    parts.append(code)
    size += len(code.encode())
    while size < megabytes * 1_000_000:
        line = random_line(rng) if rng.random() < 0.9 or not contents else token_line(rng, contents)
        parts.append(line + rng.choice(["\n", "\n", " ", "\n\n", "\r\n"]))
        size += len(parts[-1].encode())
    parts += ["x" * 100_000, " " * 200_000, "\n" * 50_000, "你好" * 40_000, "ab" * 50_000, "1" * 60_000, "é́̂" * 20_000,
              "!?" * 50_000, " \n" * 30_000, "\u0301\u0327" * 5_000]
    return "".join(parts)


def ours(bench, tokenizer, text, mode):
    """Ids of the text (--ids), or of each of its lines (--lines)."""
    with tempfile.NamedTemporaryFile("wb", suffix=".txt") as file:
        file.write(text.encode())
        file.flush()
        out = subprocess.run([bench, mode, tokenizer, file.name], check=True, stdout=subprocess.PIPE).stdout.decode()
    if mode == "--ids":
        return [int(i) for i in out.split()]
    texts, ids = [], []
    for line in out.split("\n")[:-1]:
        if line:
            ids.append(int(line))
        else:
            texts.append(ids)
            ids = []
    return texts


def show(tokenizer, theirs, mine):
    at = next((i for i, (a, b) in enumerate(zip(theirs, mine)) if a != b), min(len(theirs), len(mine)))
    for name, ids in (("theirs", theirs), ("ours", mine)):
        near = ids[max(0, at - 3):at + 5]
        print(f"  {name}: at id {at}: {near} {[tokenizer.id_to_token(i) for i in near]}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bench")
    parser.add_argument("tokenizers", nargs="+")
    parser.add_argument("--corpus")
    parser.add_argument("--megabytes", type=float, default=6)
    parser.add_argument("--piece", type=int, help="characters of a text: the library takes the square of its length to "
                        "replace its spaces")
    parser.add_argument("--write", help="only write the text there, without added tokens")
    args = parser.parse_args()
    corpus = open(args.corpus, encoding="utf-8").read() if args.corpus else ""
    if args.write:
        with open(args.write, "w", encoding="utf-8", newline="") as file:
            file.write(make_text(args.megabytes, corpus, []))
        return 0
    failures = 0
    for path in args.tokenizers:
        tokenizer = Tokenizer.from_file(os.path.join(path, "tokenizer.json"))
        contents = [t.content for t in tokenizer.get_added_tokens_decoder().values()][:40]
        text = make_text(args.megabytes, corpus, contents)
        step = args.piece or len(text)
        theirs, mine = [], []
        for begin in range(0, len(text), step):
            theirs += tokenizer.encode(text[begin:begin + step], add_special_tokens=False).ids
            mine += ours(args.bench, path, text[begin:begin + step], "--ids")
        lines = text.split("\n")
        if lines[-1] == "":
            lines.pop()
        bad = 0
        each = ours(args.bench, path, text, "--lines")
        if len(each) != len(lines):
            raise SystemExit(f"{len(lines)} lines gave {len(each)} texts")
        for begin in range(0, len(lines), 20_000):
            batch = tokenizer.encode_batch(lines[begin:begin + 20_000], add_special_tokens=False)
            for line, a, b in zip(lines[begin:], (e.ids for e in batch), each[begin:]):
                if a != b:
                    bad += 1
                    print(repr(line[:200]))
                    show(tokenizer, a, b)
        same = theirs == mine
        print(f"{path}: {len(text.encode()):,} bytes, {len(theirs):,} ids: {'equal' if same else 'DIFFERENT'}; "
              f"{len(lines):,} lines by themselves: {bad} differ")
        if not same:
            show(tokenizer, theirs, mine)
        failures += bad + (not same)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
