#!/usr/bin/env python3
"""Measure the character tables of Hugging Face tokenizers, code point by code
point, and write data/tokenizer/unicode_ranges.txt.

Only what the library does is used, never a Unicode data file: its ids, not a
Unicode version, are what the tokenizer has to reproduce. Run it with
`tokenizers` 0.23.3 installed:

    tests/reference/unicode_ranges.py > data/tokenizer/unicode_ranges.txt
"""
import unicodedata

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers
from tokenizers.pre_tokenizers import Split

POINTS = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
TEXT = "".join(map(chr, POINTS))
# All but Cs and Cn: a text has no surrogates, and no pattern asks for what is not assigned.
CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co".split()


def by_pattern(pattern):
    """Code points that `pattern` matches: those that a removing split removes."""
    split = Split(Regex(pattern), behavior="removed")
    kept = bytearray(len(POINTS))
    for _, (begin, end) in split.pre_tokenize_str(TEXT):
        kept[begin:end] = b"\1" * (end - begin)
    return [c for c, k in zip(POINTS, kept) if not k]


def word_characters():
    """Code points that keep a single_word token from matching before them."""
    tokenizer = Tokenizer(models.WordLevel({"?": 0}, unk_token="?"))
    tokenizer.add_tokens([AddedToken("@@", single_word=True, normalized=False)])
    out = []
    for at in range(0, len(POINTS), 1 << 14):
        points = POINTS[at : at + (1 << 14)]
        text = "".join("@@" + chr(c) + "\n" for c in points)
        code = tokenizer.encode(text, add_special_tokens=False)
        found = {b for i, (b, _) in zip(code.ids, code.offsets) if i == 1}
        out += [c for k, c in enumerate(points) if 4 * k not in found]
    return out


def normal_form():
    """(triggers, bases): a trigger is no starter, or changes by itself, or is
    the second of a composition; a base is the first of a composition, or
    decomposes into one (e with acute, then a dot below: the dot goes first)."""
    nfc, nfd = normalizers.NFC().normalize_str, normalizers.NFD().normalize_str
    triggers, bases = set(), set()
    for c in POINTS:
        s = chr(c)
        moved = nfc(s + "\u0334") != s + "\u0334" or nfc("\u0345" + s) != "\u0345" + s
        if moved or nfc(s) != s:
            triggers.add(c)
        elif nfd(s) != s and not 0xAC00 <= c <= 0xD7A3:
            bases.add(c)
    for c in POINTS:
        parts = unicodedata.decomposition(chr(c)).split()
        if len(parts) == 2 and not parts[0].startswith("<"):
            a, b = (int(p, 16) for p in parts)
            if nfc(chr(a) + chr(b)) != chr(a) + chr(b):
                bases.add(a)
                triggers.add(b)
    for c in range(0x1100, 0x1200):
        if nfc(chr(c) + "\u1161") != chr(c) + "\u1161":
            bases.add(c)
        if nfc("\u1100" + chr(c)) != "\u1100" + chr(c):
            triggers.add(c)
        if nfc("\uac00" + chr(c)) != "\uac00" + chr(c):
            triggers.add(c)
    for c in range(0xAC00, 0xD7A4):
        if nfc(chr(c) + "\u11a8") != chr(c) + "\u11a8":
            assert (c - 0xAC00) % 28 == 0  # tokenizer/unicode.c relies on it
            bases.discard(c)
        else:
            assert (c - 0xAC00) % 28 != 0
    return sorted(triggers), sorted(bases)


def ranges(points):
    out = []
    for c in points:
        if out and out[-1][1] == c - 1:
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def write(name, comment, points):
    print(f"\n# {comment}: {len(points):,} code points.\n{name}:")
    line = ""
    for begin, end in ranges(points):
        item = f"{begin:X}" if begin == end else f"{begin:X}-{end:X}"
        if len(line) + 1 + len(item) > 119:
            print(line)
            line = ""
        line += f" {item}" if line else item
    print(line)


def main():
    triggers, bases = normal_form()
    print(f"""\
# What Hugging Face tokenizers {tokenizers.__version__} takes for a letter, a number and so on, asked code point by code point. Written by
# tests/reference/unicode_ranges.py; unicode_tables.py makes C of it. Do not edit.
#
# A table begins with its name and a colon; then come its ranges, both ends included, in hexadecimal, in ascending order.""")
    for name in CATEGORIES:
        write(name, f"What \\p{{{name}}} matches", by_pattern(rf"\p{{{name}}}"))
    write("spaces", "What \\s matches", by_pattern(r"\s"))
    write("words", "Word characters for single_word", word_characters())
    write("nfc_triggers", "Code points that NFC may move or change", triggers)
    write("nfc_bases",
          "What NFC may compose with what follows, but for Hangul syllables", bases)


if __name__ == "__main__":
    main()
