#!/usr/bin/env python3
"""Small tokenizers for the tests, and what Hugging Face tokenizers makes of awkward text with them.

    python tests/reference/make_tokenizers.py          writes tests/fixtures/tokenizers/

Each folder gets tokenizer.json, tokenizer_config.json and cases.json:

    {"library": "tokenizers 0.23.3", "prefix": [ids], "eos": id or null,
     "cases": [{"text": T or "hex": H, "ids": [...], "decoded": HEX}]}

`ids` is encode(T, add_special_tokens=False). `prefix` is what the post-processor puts in front.
`borders` (tokenizers with byte fallback): see borders_of. `decoded` is there only where the tokens' exact bytes are not T itself; it follows the rule of the ByteLevel decoder (a
token all of whose characters are in the byte table gives those bytes, any other its own UTF-8) and is checked here
against the library's decode, which can only show it with U+FFFD in place of bytes that are no UTF-8.

The vocabularies are trained on text.txt beside this file, which was written for this purpose."""

import json
import os
import random
import sys

import tokenizers
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from tokenizers.pre_tokenizers import ByteLevel, Sequence, Split

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(HERE, "..", "fixtures", "tokenizers")
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
          r"\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
CASED = (rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+SUFFIX|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*SUFFIX|"
         r"DIGITS| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
TEKKEN = CASED.replace("SUFFIX", "").replace("DIGITS", r"\p{N}")
O200K = CASED.replace("SUFFIX", "(?i:'s|'t|'re|'ve|'m|'ll|'d)?").replace("DIGITS", r"\p{N}{1,3}")


def byte_table():
    """GPT-2's map from bytes to printable characters."""
    kept = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table, extra = {}, 0
    for b in range(256):
        if b in kept:
            table[b] = chr(b)
        else:
            table[b] = chr(0x100 + extra)
            extra += 1
    return table


def train(pattern, merges, normalizer=None):
    """(vocab, merges) of a byte-level BPE; merges as pairs. `pattern` None: the ByteLevel pre-tokenizer's own."""
    tok = Tokenizer(models.BPE())
    if normalizer:
        tok.normalizer = normalizer
    if pattern is None:
        tok.pre_tokenizer = ByteLevel(add_prefix_space=False)
    else:
        tok.pre_tokenizer = Sequence([Split(tokenizers.Regex(pattern), "isolated"),
                                      ByteLevel(add_prefix_space=False, use_regex=False)])
    trainer = trainers.BpeTrainer(vocab_size=256 + merges, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                  show_progress=False)
    with open(os.path.join(HERE, "text.txt"), encoding="utf-8") as f:
        tok.train_from_iterator([f.read()], trainer)
    model = json.loads(tok.to_str())["model"]
    return model["vocab"], [tuple(m) for m in model["merges"]]


def added(token_id, content, special=True, normalized=False, lstrip=False, rstrip=False, single_word=False):
    return {"id": token_id, "content": content, "single_word": single_word, "lstrip": lstrip, "rstrip": rstrip,
            "normalized": normalized, "special": special}


def split(pattern):
    return {"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False},
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}]}


def byte_level(**keys):
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True, **keys}


def template(name, token_id):
    token = {"SpecialToken": {"id": name, "type_id": 0}}
    return {"type": "TemplateProcessing", "single": [token, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [token, {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {name: {"id": name, "ids": [token_id], "tokens": [name]}}}


def document(vocab, merges, added_tokens, pre_tokenizer, normalizer=None, post_processor=None, legacy=False, **model):
    encoded = [" ".join(m) for m in merges] if legacy else [list(m) for m in merges]
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added_tokens,
            "normalizer": normalizer, "pre_tokenizer": pre_tokenizer, "post_processor": post_processor,
            "decoder": byte_level(),
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                      **model, "vocab": vocab, "merges": encoded}}


def gpt2():
    """As the published GPT-2 file: merges as strings, no keys that came later, a special token that is normalized."""
    vocab, merges = train(None, 255)
    doc = document(vocab, merges, [added(511, "<|endoftext|>", normalized=True)],
                   {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True},
                   post_processor={"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False}, legacy=True)
    for key in ("type", "byte_fallback", "ignore_merges"):
        del doc["model"][key]
    doc["model"]["continuing_subword_prefix"] = doc["model"]["end_of_word_suffix"] = ""
    doc["model"]["merges"].insert(0, "#version: 0.2")
    vocab["<|endoftext|>"] = 511
    return doc, {"eos_token": "<|endoftext|>", "model_max_length": 1024}


def prefix_space():
    """add_prefix_space, and tokenizer_config.json's eos as an object, the older spelling."""
    vocab, merges = train(None, 200)
    doc = document(vocab, merges, [added(456, "<s>"), added(457, "</s>")],
                   byte_level(add_prefix_space=True), post_processor=template("<s>", 456))
    return doc, {"bos_token": "<s>", "eos_token": {"__type": "AddedToken", "content": "</s>", "lstrip": False,
                                                   "normalized": False, "rstrip": False, "single_word": False}}


def llama3():
    """Llama 3's pattern; ignore_merges with whole words that no merge reaches; BOS inside a Sequence."""
    vocab, merges = train(LLAMA3, 230)
    for word in ("Ġunreachable", "sesquipedalian", "777", "ĠMÃ¼hle"):
        assert word not in vocab
        vocab[word] = len(vocab)
    n = len(vocab)
    names = ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
    doc = document(vocab, merges, [added(n + i, name) for i, name in enumerate(names)], split(LLAMA3),
                   post_processor={"type": "Sequence", "processors": [byte_level(), template(names[0], n)]},
                   legacy=True, ignore_merges=True)
    return doc, {"bos_token": names[0], "eos_token": names[1]}


def qwen2():
    """Qwen2's pattern and NFC; merges as pairs; words in the vocabulary that ignore_merges = false must not use."""
    vocab, merges = train(QWEN2, 240, tokenizers.normalizers.NFC())
    for word in ("Ġunreachable", "sesquipedalian"):
        vocab[word] = len(vocab)
    n = len(vocab)
    names = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    doc = document(vocab, merges, [added(n + i, name) for i, name in enumerate(names)], split(QWEN2),
                   normalizer={"type": "NFC"}, post_processor=byte_level())
    return doc, {"bos_token": None, "eos_token": names[0], "pad_token": names[0]}


def added_tokens():
    """Every property of an added token, alone and against others, under NFC."""
    vocab, merges = train(QWEN2, 120, tokenizers.normalizers.NFC())
    n = len(vocab)
    spec = [("<l>", dict(lstrip=True)), ("<r>", dict(rstrip=True)), ("<lr>", dict(lstrip=True, rstrip=True)),
            ("<w>", dict(single_word=True)), ("word", dict(single_word=True, special=False)),
            ("foo", dict(special=False)), ("foobar", dict(single_word=True, special=False)),
            ("xyz", dict(normalized=True, special=False)), ("xy", dict(special=False)),
            ("caf\u00e9", dict(normalized=True, special=False)), ("e\u0301t", dict(normalized=True, special=False)),
            ("na\u00efve", dict(normalized=False, special=False)), ("\u65e5\u672c", dict(special=False)),
            ("Z\u00fcrich", dict(special=False)), ("<n l>", dict(normalized=True, lstrip=True, special=False)),
            ("<n r>", dict(normalized=True, rstrip=True, special=False)), ("\n\n\n", dict(special=False)),
            ("<|end|>", dict())]
    tokens = [added(n + i, content, **keys) for i, (content, keys) in enumerate(spec)]
    # One whose content the vocabulary has already: its id and its bytes are the vocabulary's.
    shared = next(m for m in sorted(vocab, key=vocab.get) if len(m) == 3 and m.isascii() and m.isalpha())
    tokens.append(added(vocab[shared], shared, special=False))
    tokens.sort(key=lambda t: t["id"])
    return document(vocab, merges, tokens, split(QWEN2), normalizer={"type": "NFC"}), {"eos_token": "<|end|>"}


def lacking_bytes():
    """A vocabulary without some bytes (they are dropped), and one pair twice in the merges (the later rank counts)."""
    vocab, merges = train(None, 40)
    table = byte_table()
    for gone in (ord("~"), 0xF0, ord("Q")):
        del vocab[table[gone]]
    vocab = {k: i for i, k in enumerate(vocab)}
    merges = [m for m in merges if all(p in vocab for p in (*m, "".join(m)))]
    merges.append(merges[0])
    return document(vocab, merges, [], byte_level()), {}


def ministral3():
    """Words end where lower case does; a word that is a token skips the merges."""
    vocab, merges = train(TEKKEN, 240)
    vocab = {t: i + 3 for t, i in vocab.items()}
    doc = document(vocab, merges, [added(i, t) for i, t in enumerate(("<unk>", "<s>", "</s>"))], split(TEKKEN),
                   post_processor=template("<s>", 1), ignore_merges=True)
    vocab.update({"<unk>": 0, "<s>": 1, "</s>": 2})
    return doc, {"bos_token": "<s>", "eos_token": "</s>"}


def phi4_mini():
    """The pattern of OpenAI's o200k, written as what is removed."""
    vocab, merges = train(O200K, 240)
    pre_tokenizer = split(O200K)
    pre_tokenizer["pretokenizers"][0].update(behavior="Removed", invert=True)
    tokens = [added(496, "<|endoftext|>", lstrip=True, rstrip=True), added(497, "<|end|>", rstrip=True)]
    return document(vocab, merges, tokens, pre_tokenizer), {"eos_token": "<|endoftext|>"}


def granite():
    """Digits one by one, then GPT-2's pattern between them."""
    vocab, merges = train(None, 240)
    doc = document(vocab, merges, [added(496, "<|end_of_text|>"), added(497, "<|pad|>")],
                   {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level()]})
    return doc, {"bos_token": "<|end_of_text|>", "eos_token": "<|end_of_text|>"}


def stages():
    """Patterns of many categories, one after the other, as DeepSeek's; runs of digits between them."""
    patterns = r"\p{N}{1,3}", r"[!-/:-~]\p{Lu}+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{Sm}\P{So}]+", r"\p{Zs}+\p{Lt}?"
    splits = [{"type": "Split", "pattern": {"Regex": p}, "behavior": "Isolated", "invert": False} for p in patterns]
    splits.insert(1, {"type": "Digits", "individual_digits": False})
    vocab, merges = train(None, 240)
    return document(vocab, merges, [], {"type": "Sequence", "pretokenizers": splits + [byte_level(use_regex=False)]}), {}


SPACE = "\u2581"
REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
PREPEND = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": SPACE}, REPLACE]}
STRIP = {"type": "Strip", "content": " ", "start": 1, "stop": 0}


def train_fallback(path, size, first):
    """(vocab, merges) of a BPE of characters with bytes for those it lacks, as converted from SentencePiece: `first`
    are the first tokens, then come the bytes, then what was trained."""
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.BpeTrainer(vocab_size=size, show_progress=False, limit_alphabet=max(90, size // 8),
                                  initial_alphabet=[SPACE])
    with open(path, encoding="utf-8") as f:
        tok.train_from_iterator(f, trainer)
    model = json.loads(tok.to_str())["model"]
    tokens = first + [f"<0x{b:02X}>" for b in range(256)] + sorted(model["vocab"], key=model["vocab"].get)
    for run in (2, 4):  # SentencePiece has tokens of many spaces
        tokens.append(SPACE * run)
        model["merges"].append([SPACE * (run // 2)] * 2)
    return {t: i for i, t in enumerate(dict.fromkeys(tokens))}, [tuple(m) for m in model["merges"]]


def fallback_document(vocab, merges, added_tokens, normalizer=None, pre_tokenizer=None, strip=True, **model):
    doc = document(vocab, merges, added_tokens, pre_tokenizer, normalizer, template(added_tokens[1]["content"], 1),
                   byte_fallback=True, fuse_unk=True, unk_token="<unk>", **model)
    doc["decoder"] = {"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": SPACE}, "content": " "}, {"type": "ByteFallback"},
        {"type": "Fuse"}] + [STRIP] * strip}
    return doc


def metaspace(scheme, split):
    return {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": scheme, "split": split}


TEXT = os.path.join(HERE, "text.txt")


def gemma(path=TEXT, size=500):
    """No space in front; a Split that finds nothing; line feeds as added tokens; a few merges over a space."""
    first = ["<unk>", "<bos>", "<eos>", "\n", "\n\n", "<start_of_turn>"]
    vocab, merges = train_fallback(path, size, first)
    for left, right in (("e", SPACE), ("e" + SPACE, "the"), ("\u65e5", SPACE)):
        if left in vocab and right in vocab:
            vocab[left + right] = len(vocab)
            merges.append((left, right))
    doc = fallback_document(vocab, merges, [added(i, t, special=t[0] == "<") for i, t in enumerate(first)], REPLACE,
                            {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious",
                             "invert": False}, strip=False)
    return doc, {"bos_token": "<bos>", "eos_token": "<eos>"}


def llama2(path=TEXT, size=450):
    """Prepend; special tokens that are normalized, as older files have them."""
    first = ["<unk>", "<s>", "</s>"]
    vocab, merges = train_fallback(path, size, first)
    doc = fallback_document(vocab, merges, [added(i, t, normalized=True) for i, t in enumerate(first)], PREPEND,
                            legacy=True)
    return doc, {"bos_token": "<s>", "eos_token": "</s>"}


def mistral(path=TEXT, size=450):
    """Metaspace for the first stretch alone, without a split; tokens that somebody added."""
    first = ["<unk>", "<s>", "</s>", "[INST]"]
    vocab, merges = train_fallback(path, size, first)
    n = len(vocab)
    tokens = [added(i, t) for i, t in enumerate(first)]
    tokens += [added(n, "foo", special=False, normalized=True), added(n + 1, "xyz", special=False, normalized=True)]
    doc = fallback_document(vocab, merges, tokens, None, metaspace("first", False))
    return doc, {"bos_token": "<s>", "eos_token": "</s>"}


def phi3(path=TEXT, size=450):
    """Prepend; tokens that take the spaces after them."""
    first = ["<unk>", "<s>", "</s>"]
    vocab, merges = train_fallback(path, size, first)
    n = len(vocab)
    tokens = [added(i, t, rstrip=t == "</s>") for i, t in enumerate(first)]
    tokens += [added(n + i, t, rstrip=True) for i, t in enumerate(("<|endoftext|>", "<|im_start|>", "<|im_end|>"))]
    doc = fallback_document(vocab, merges, tokens, PREPEND)
    return doc, {"bos_token": "<s>", "eos_token": "<|endoftext|>"}


def metaspace_split(path=TEXT, size=450):
    """Metaspace for every stretch, with a split, and whole words that no merge reaches."""
    first = ["<unk>", "<s>", "</s>"]
    vocab, merges = train_fallback(path, size, first)
    for word in (SPACE + "unreachable", SPACE + "sesquipedalian"):
        vocab[word] = len(vocab)
    doc = fallback_document(vocab, merges, [added(i, t) for i, t in enumerate(first)], None,
                            metaspace("always", True), ignore_merges=True)
    return doc, {"bos_token": "<s>", "eos_token": "</s>"}


with open(os.path.join(HERE, "texts.json"), encoding="utf-8") as texts:
    SPACED, TEXTS, WORDS = json.load(texts).values()


def random_texts(seed, count):
    """Strings that lean on boundaries: marks, spaces of all kinds, digits, apostrophes, pieces of added tokens."""
    rng = random.Random(seed)
    pools = [" \t\n\r\u00a0\u2003\u3000", "abcdefxyzeE", "0123456789\u0663\u00bd", "'\u2019.,;!?-_#(", "\u0301\u0323\u0307\u0308\u030a\u0345",
             "\u00e9\u00fc\u00df\u0107\u017c", "\u65e5\u672c\u4e2d\u6587\uac00\ud55c", "\u1100\u1161\u11a8\u11a7", "\U0001f525\u200d\ufe0f",
             "\u0915\u093c\u0947\u0e35\u0e48", "\U00011f02\U00010d41\u07fd\u1ac5"]
    pieces = ["'s", "'ll", "'VE", " the", "the", "<l>", "<r>", "<lr>", "<w>", "word", "foo", "foobar", "xyz", "xy",
              "caf\u00e9", "<|endoftext|>", "<|im_start|>", "<|eot_id|>", "<n l>", "<n r>", "  ", "\n\n", "123", "\r\n"]
    texts = []
    for _ in range(count):
        text = ""
        for _ in range(rng.randint(2, 14)):
            text += rng.choice(pieces) if rng.random() < 0.3 else \
                "".join(rng.choice(pool) for pool in [rng.choice(pools)] for _ in range(rng.randint(1, 3)))
        texts.append(text)
    return texts


def token_bytes(token, back, is_fallback=False):
    if is_fallback:
        byte = len(token) == 6 and token.startswith("<0x") and token.endswith(">")
        return bytes([int(token[3:5], 16)]) if byte else token.replace(SPACE, " ").encode()
    return bytes(back[c] for c in token) if all(c in back for c in token) else token.encode()


def borders_of(text, offsets):
    """Of some characters [byte, the first token that ends after it, the first that does not begin before it]."""
    def first(holds):
        return next((i for i, o in enumerate(offsets) if holds(o)), len(offsets))
    return [[len(text[:at].encode()), first(lambda o: o[1] > at), first(lambda o: o[0] >= at)]
            for at in sorted({0, 1, len(text) // 3, 2 * len(text) // 3}) if at < len(text)]


def cases_of(doc, config, seed):
    full = Tokenizer.from_str(json.dumps(doc))
    back = {c: b for b, c in byte_table().items()}
    rows = []
    is_fallback = doc["model"].get("byte_fallback", False)
    strips = is_fallback and STRIP in doc["decoder"]["decoders"]
    texts = SPACED + TEXTS if is_fallback else WORDS + TEXTS if seed > 10 else TEXTS
    for text in texts + random_texts(seed, 30 if seed > 5 else 100):
        ids = full.encode(text, add_special_tokens=False).ids
        row = {"hex": text.encode().hex()} if "\0" in text else {"text": text}
        row["ids"] = ids
        if is_fallback:
            row["borders"] = borders_of(text, full.encode(text, add_special_tokens=False).offsets)
        decoded = b"".join(token_bytes(full.id_to_token(i), back, is_fallback) for i in ids)
        shown = full.decode(ids, skip_special_tokens=False)
        # The library decodes runs between added tokens one by one: with bytes that are no UTF-8 the two may replace
        # differently, so only valid text is compared.
        try:
            stripped = decoded[1:] if strips and decoded[:1] == b" " else decoded
            assert stripped.decode() == shown, (text, decoded, shown)
        except UnicodeDecodeError:
            assert "\ufffd" in shown
        if decoded != text.encode():
            row["decoded"] = decoded.hex()
        rows.append(row)
    eos = config.get("eos_token")
    eos = eos["content"] if isinstance(eos, dict) else eos
    return {"library": "tokenizers " + tokenizers.__version__, "prefix": full.encode("", add_special_tokens=True).ids,
            "eos": None if eos is None else full.token_to_id(eos), "cases": rows}


FALLBACK = (gemma, llama2, mistral, phi3, metaspace_split)


def write(path, text):
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)


def main():
    assert tokenizers.__version__ == "0.23.3", tokenizers.__version__
    only = sys.argv[1:]
    for seed, make in enumerate((gpt2, prefix_space, llama3, qwen2, added_tokens, lacking_bytes, *FALLBACK,
                                 ministral3, phi4_mini, granite, stages)):
        if only and make.__name__ not in only:
            continue
        doc, config = make()
        folder = os.path.join(OUT, make.__name__)
        os.makedirs(folder, exist_ok=True)
        write(os.path.join(folder, "tokenizer.json"), json.dumps(doc, ensure_ascii=False) + "\n")
        write(os.path.join(folder, "tokenizer_config.json"), json.dumps(config, indent=1) + "\n")
        result = cases_of(doc, config, seed)
        cases = ",\n".join(json.dumps(c) for c in result.pop("cases"))
        write(os.path.join(folder, "cases.json"), json.dumps(result)[:-1] + ', "cases": [\n' + cases + "\n]}\n")
        print(f"{make.__name__:16} {len(doc['model']['vocab'])} + {len(doc['added_tokens'])} tokens")


if __name__ == "__main__":
    main()
