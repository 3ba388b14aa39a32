"""Models as people bring them, for journey.py and tests/reference/make_journey.py: the small model of a fixture with a tokenizer
built as its family's and a chat template in the family's manner. All is made here, the same in every run."""

import collections
import json
import os
import shutil

SPACE = "\u2581"
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}DIGITS| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
TEKKEN = (rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|"
          r"\s*[\r\n]+|\s+(?!\S)|\s+")
DIGITS = {"type": "Digits", "individual_digits": True}
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}


def split(pattern, **how):
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False, **how}


CL100K, QWEN = split(WORDS.replace("DIGITS", "{1,3}")), split(WORDS.replace("DIGITS", ""))
REMOVED = {**CL100K, "behavior": "Removed", "invert": True}

# Each message in its marks. BEGIN: before the first; ASKS, SAYS, ENDS: in front of a question and an answer, and after an answer.
PLAIN = ("BEGIN{% for m in messages %}{% if m['role'] == 'user' %}{{ 'ASKS' + m['content'] + 'STOP' }}{% else %}"
         "{{ 'SAYS' + m['content'] + 'ENDS' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ 'SAYS' }}{% endif %}")
TAGGED = PLAIN.replace("{{ 'SAYS' + m['content'] + 'ENDS' }}", "{{ 'SAYS' }}{% generation %}{{ m['content'] + 'ENDS' }}{% endgeneration %}")


def template(form, begin="", asks="", stop="", says="", ends=""):
    marks = {"BEGIN": begin, "ASKS": asks, "STOP": stop, "SAYS": says, "ENDS": ends}
    for name, text in marks.items():
        form = form.replace(name, text.replace("\n", "\\n"))
    return form


GEMMA = template(PLAIN.replace("m['content']", "m['content'] | trim"), "{{ bos_token }}", "<start_of_turn>user\n", "<end_of_turn>\n",
                 "<start_of_turn>model\n", "<end_of_turn>\n")
CHATML = ("", "<|im_start|>user\n", "<|im_end|>\n", "<|im_start|>assistant\n", "<|im_end|>\n")
INST = ("<s>", "[INST] ", " [/INST]", "", "</s>")
HEADER = "<|start_header_id|>{}<|end_header_id|>\n\n"
GEMMA_TOKENS = ["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>"]

# Fixture: the pre-tokenizer (a string: of those with byte fallback), special tokens, those of bos and eos, the template.
FAMILIES = {
    "gemma": ("gemma", GEMMA_TOKENS, "<bos>", "<eos>", GEMMA),
    "gemma2": ("gemma", GEMMA_TOKENS, "<bos>", "<eos>", GEMMA),
    "gemma3_text": ("gemma", GEMMA_TOKENS, "<bos>", "<eos>", GEMMA),
    "gemma3": ("gemma", GEMMA_TOKENS, "<bos>", "<eos>", GEMMA),
    "mistral_window": ("metaspace", ["<unk>", "<s>", "</s>", "[INST]", "[/INST]"], "<s>", "</s>", template(PLAIN, *INST)),
    "phi3": ("prepend", ["<unk>", "<s>", "</s>", "<|endoftext|>", "<|user|>", "<|assistant|>", "<|end|>"], "<s>", "<|endoftext|>",
             template(PLAIN, "", "<|user|>\n", "<|end|>\n", "<|assistant|>\n", "<|end|>\n")),
    "ministral3": ([split(TEKKEN), BYTES], ["<unk>", "<s>", "</s>", "[INST]", "[/INST]"], "<s>", "</s>", template(PLAIN, *INST)),
    "granite": ([DIGITS, {**BYTES, "use_regex": True}], ["<|end_of_text|>", "<|start_of_role|>", "<|end_of_role|>"], "<|end_of_text|>", "<|end_of_text|>",
                template(PLAIN, "", "<|start_of_role|>user<|end_of_role|>", "<|end_of_text|>\n", "<|start_of_role|>assistant<|end_of_role|>",
                         "<|end_of_text|>\n")),
    "glm4": ([CL100K, BYTES], ["<|endoftext|>", "[gMASK]", "<sop>", "<|user|>", "<|assistant|>"], None, "<|endoftext|>",
             template(PLAIN, "[gMASK]<sop>", "<|user|>\n", "", "<|assistant|>\n", "<|user|>")),
    "olmo2": ([REMOVED, BYTES], ["<|endoftext|>"], "<|endoftext|>", "<|endoftext|>",
              template(PLAIN, "{{ bos_token }}", "<|user|>\n", "\n", "<|assistant|>\n", "<|endoftext|>")),
    "smollm3": ([CL100K, BYTES], ["<|end_of_text|>", "<|im_start|>", "<|im_end|>"], None, "<|im_end|>", template(TAGGED, *CHATML)),
    "llama": ([CL100K, BYTES], ["<|begin_of_text|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>"], "<|begin_of_text|>", "<|eot_id|>",
              template(PLAIN, "{{ bos_token }}", HEADER.format("user"), "<|eot_id|>", HEADER.format("assistant"), "<|eot_id|>")),
    "qwen2": ([QWEN, BYTES], ["<|endoftext|>", "<|im_start|>", "<|im_end|>"], None, "<|im_end|>",
              template(PLAIN, "<|im_start|>system\nBe of help.<|im_end|>\n", *CHATML[1:])),
    "qwen3_yarn": ([QWEN, BYTES], ["<|endoftext|>", "<|im_start|>", "<|im_end|>"], None, "<|im_end|>",
                   template(TAGGED, *CHATML[:3], "<|im_start|>assistant\n<think>\n\n</think>\n\n", CHATML[4])),
}
KINDS = ("messages", "sharegpt", "alpaca", "factory")  # folders of tests/fixtures/journey


def merges_of(words, count):
    """The `count` most frequent pairs one after the other; `words`: lists of symbols."""
    words, merges = [list(w) for w in words], []
    for _ in range(count):
        pairs = collections.Counter(pair for w in words for pair in zip(w, w[1:]))
        best = max(pairs, key=lambda pair: (pairs[pair], pair))
        merges.append(list(best))
        for w in words:
            for i in reversed(range(len(w) - 1)):
                if (w[i], w[i + 1]) == best:
                    w[i:i + 2] = ["".join(best)]
    return merges


def byte_fallback(kind, special, text):
    words = [SPACE + w for w in text.split()]
    symbols = special + ["<0x%02X>" % b for b in range(256)] + sorted(set(SPACE + text.replace(" ", "").replace("\n", "")) & set(map(chr, range(33, 0x2582))))[:80]
    merges = merges_of([[c for c in w if c in symbols] for w in words], 90)
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
    prepend = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": SPACE}, replace]}
    decoders = [{"type": "Replace", "pattern": {"String": SPACE}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}]
    strip = [{"type": "Strip", "content": " ", "start": 1, "stop": 0}]
    return symbols, merges, {
        "normalizer": {"gemma": replace, "prepend": prepend}.get(kind),
        "pre_tokenizer": {"gemma": {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False},
                          "metaspace": {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": "first", "split": False}}.get(kind),
        "decoder": {"type": "Sequence", "decoders": decoders + strip * (kind != "gemma")},
    }


def byte_level(parts, special, text):
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = iter(range(0x100, 0x200))
    table = {b: chr(b if b in printable else next(others)) for b in range(256)}
    words = [[table[b] for b in (" " + w).encode()] for w in text.split()]
    return special + list(table.values()), merges_of(words, 180), {
        "normalizer": {"type": "NFC"} if parts[0] is QWEN else None, "pre_tokenizer": {"type": "Sequence", "pretokenizers": parts}, "decoder": BYTES}


def tokenizer(family, text):
    """(tokenizer.json, tokenizer_config.json)"""
    kind, special, bos, eos, chat = FAMILIES[family]
    symbols, merges, pipeline = (byte_fallback if isinstance(kind, str) else byte_level)(kind, special, text)
    vocab = {t: i for i, t in enumerate(dict.fromkeys(symbols + ["".join(m) for m in merges]))}
    added = [{"id": vocab[t], "content": t, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True} for t in special]
    model = {"type": "BPE", "dropout": None, "unk_token": "<unk>" if isinstance(kind, str) else None, "continuing_subword_prefix": None,
             "end_of_word_suffix": None, "fuse_unk": isinstance(kind, str), "byte_fallback": isinstance(kind, str),
             "ignore_merges": family == "ministral3", "vocab": vocab, "merges": merges}
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": bos, "eos_token": eos, "chat_template": chat}
    return ({"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "post_processor": None, **pipeline, "model": model},
            {key: value for key, value in config.items() if value})


def make(family, source, folder):
    """The folder of a model: what the fixture has, with a tokenizer and a chat template of the family."""
    with open(os.path.join(source, "tests/reference/text.txt"), encoding="utf-8") as f:
        files = dict(zip(("tokenizer.json", "tokenizer_config.json"), tokenizer(family, f.read())))
    shutil.copytree(os.path.join(source, "tests/fixtures", family, "model"), folder)
    for name, content in files.items():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
            json.dump(content, f, ensure_ascii=False)
