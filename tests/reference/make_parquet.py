#!/usr/bin/env python3
"""Parquet files by pyarrow, with their rows as JSON.

    python tests/reference/make_parquet.py                    writes tests/fixtures/parquet/

Needs pyarrow; the build and the tests do not. NAME.parquet holds what rows.jsonl says, in one choice of codec, encodings,
page and file version; old.parquet is written here byte by byte, since no writer of today makes lists of two levels, and is
compared with pyarrow's reading of it.
"""
import io
import json
import math
import random
import struct
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

HERE = Path(__file__).resolve().parents[1] / "fixtures" / "parquet"

# name: how it is written
CHOICES = {
    "plain": dict(compression="none", use_dictionary=False, version="1.0"),
    "plain-v2": dict(compression="none", use_dictionary=False, data_page_version="2.0"),
    "snappy": dict(compression="snappy"),
    "snappy-v2": dict(compression="snappy", data_page_version="2.0"),
    "zstd": dict(compression="zstd", version="1.0", row_group_size=5),
    "gzip-v2": dict(compression="gzip", data_page_version="2.0", row_group_size=7),
    "delta": dict(compression="none", use_dictionary=False, column_encoding="DELTA"),
    "delta-v2": dict(compression="zstd", use_dictionary=False, column_encoding="DELTA", data_page_version="2.0",
                     write_page_checksum=True),
    "delta-length": dict(compression="snappy", use_dictionary=False, column_encoding="LENGTH"),
    "pages": dict(compression="none", use_dictionary=True, data_page_size=64, write_batch_size=2,
                  dictionary_pagesize_limit=64),
}


def encodings(schema, kind):
    """{leaf: encoding} for the kinds of column_encoding above."""
    result = {}

    def walk(type_, path):
        if pa.types.is_struct(type_):
            for field in type_:
                walk(field.type, f"{path}.{field.name}")
        elif pa.types.is_list(type_):
            walk(type_.value_type, f"{path}.list.element")
        elif pa.types.is_string(type_):
            result[path] = "DELTA_BYTE_ARRAY" if kind == "DELTA" else "DELTA_LENGTH_BYTE_ARRAY"
        elif pa.types.is_integer(type_):
            result[path] = "DELTA_BINARY_PACKED"
        elif pa.types.is_boolean(type_):
            result[path] = "RLE"

    for field in schema:
        walk(field.type, field.name)
    return result


def write(table, target, choice):
    choice = dict(choice)
    kind = choice.pop("column_encoding", None)
    if kind:
        choice["column_encoding"] = encodings(table.schema, kind)
    pq.write_table(table, target, **choice)


def plain(value):
    """As JSON has it: NaN and infinities are null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, list):
        return [plain(v) for v in value]
    return value


def lines(table):
    return "".join(json.dumps(plain(row), ensure_ascii=False) + "\n" for row in table.to_pylist())


# --- the fixture ---

WORDS = ["", "a", "user", "assistant", "Grüße", "line\nfeed", "\"quoted\\\"", "\x00\x1f", "東京", "the the the"]


def random_value(rng, type_, nullable):
    if nullable and rng.random() < 0.15:
        return None
    if pa.types.is_list(type_):
        return [random_value(rng, type_.value_type, True) for _ in range(rng.choice([0, 1, 1, 2, 5]))]
    if pa.types.is_struct(type_):
        return {f.name: random_value(rng, f.type, f.nullable) for f in type_}
    if pa.types.is_string(type_):
        return rng.choice(WORDS) * rng.choice([1, 1, 1, 3, 40])
    if pa.types.is_boolean(type_):
        return rng.random() < 0.5
    if pa.types.is_floating(type_):
        value = rng.choice([0.0, 1.0, -2.5, rng.uniform(-1, 1), 1e300, math.inf, 1e-310])
        return struct.unpack("f", struct.pack("f", value))[0] if type_ == pa.float32() and abs(value) < 1e30 else \
            (1.5 if type_ == pa.float32() else value)
    low, high = {pa.int8(): (-128, 127), pa.int32(): (-2**31, 2**31 - 1), pa.int64(): (-2**63, 2**63 - 1),
                 pa.uint32(): (0, 2**32 - 1), pa.uint64(): (0, 2**64 - 1)}[type_]
    return rng.choice([0, 1, low, high, rng.randint(low, high), rng.randint(0, 100)])


def fixture_table():
    message = pa.struct([("role", pa.string()), ("content", pa.string()), ("weight", pa.int32())])
    schema = pa.schema([
        ("messages", pa.list_(message)), ("id", pa.int64()), ("small", pa.uint32()), ("score", pa.float64()),
        ("half", pa.float32()), ("good", pa.bool_()), ("grid", pa.list_(pa.list_(pa.int64()))),
        ("deep", pa.struct([("a", pa.struct([("b", pa.list_(pa.struct([("c", pa.list_(pa.string())), ("d", pa.float64())])))]))])),
        pa.field("must", pa.string(), nullable=False), ("nothing", pa.null())])
    rng = random.Random(3)
    rows = [{f.name: None if pa.types.is_null(f.type) else random_value(rng, f.type, f.nullable) for f in schema}
            for _ in range(16)]
    rows[0]["messages"] = [{"role": "user", "content": "What is 2 + 2?", "weight": None},
                           {"role": "assistant", "content": "4", "weight": 1}]
    return pa.Table.from_pylist(rows, schema)


class Old:
    """A file with lists of two levels, one uncompressed PLAIN page a column: thrift's compact protocol by hand."""

    def __init__(self):
        self.out = io.BytesIO()
        self.out.write(b"PAR1")
        self.chunks = []

    @staticmethod
    def varint(n):
        out = b""
        while n > 127:
            out += bytes([n & 127 | 128])
            n >>= 7
        return out + bytes([n])

    @classmethod
    def integer(cls, n):
        return cls.varint(n << 1 if n >= 0 else (-n << 1) - 1)

    @classmethod
    def string(cls, text):
        return cls.varint(len(text)) + text.encode()

    @classmethod
    def record(cls, *fields):
        """(id, type, bytes), in the order of their ids."""
        out, last = b"", 0
        for number, type_, data in fields:
            out += bytes([number - last << 4 | type_]) + data
            last = number
        return out + b"\0"

    @classmethod
    def many(cls, type_, items):
        head = bytes([len(items) << 4 | type_]) if len(items) < 15 else bytes([15 << 4 | type_]) + cls.varint(len(items))
        return head + b"".join(items)

    @staticmethod
    def levels(values, most):
        if most == 0:
            return b""
        runs = b"".join(bytes([2, v]) for v in values)
        return struct.pack("<I", len(runs)) + runs

    @classmethod
    def page(cls, body, entries, encoding=0, kind=0, packed=None):
        """kind 0: of values; 2: a dictionary."""
        packed = body if packed is None else packed
        facts = cls.record((1, 5, cls.integer(entries)), (2, 5, cls.integer(encoding)), (3, 5, cls.integer(3)), (4, 5, cls.integer(3)))
        return cls.record((1, 5, cls.integer(kind)), (2, 5, cls.integer(len(body))), (3, 5, cls.integer(len(packed))),
                          (7 if kind else 5, 12, facts)) + packed

    def chunk(self, path, type_, pages, entries, codec=0):
        at = self.out.tell()
        self.out.write(pages)
        size = self.out.tell() - at
        facts = self.record((1, 5, self.integer(type_)), (2, 9, self.many(5, [self.integer(0)])),
                            (3, 9, self.many(8, [self.string(p) for p in path])), (4, 5, self.integer(codec)),
                            (5, 6, self.integer(entries)), (6, 6, self.integer(size)), (7, 6, self.integer(size)),
                            (9, 6, self.integer(at)))
        self.chunks.append((self.record((2, 6, self.integer(at)), (3, 12, facts)), size))

    def column(self, path, type_, reps, defs, values, max_rep, max_def):
        body = self.levels(reps, max_rep) + self.levels(defs, max_def) + values
        self.chunk(path, type_, self.page(body, len(defs)), len(defs))

    def element(self, name, type_=None, repetition=0, children=None, converted=None):
        fields = []
        if type_ is not None:
            fields.append((1, 5, self.integer(type_)))
        fields.append((3, 5, self.integer(repetition)))
        fields.append((4, 8, self.string(name)))
        if children is not None:
            fields.append((5, 5, self.integer(children)))
        if converted is not None:
            fields.append((6, 5, self.integer(converted)))
        return self.record(*fields)

    def finish(self, elements, rows):
        size = sum(s for _, s in self.chunks)
        group = self.record((1, 9, self.many(12, [c for c, _ in self.chunks])), (2, 6, self.integer(size)),
                            (3, 6, self.integer(rows)))
        footer = self.record((1, 5, self.integer(1)), (2, 9, self.many(12, elements)), (3, 6, self.integer(rows)),
                             (4, 9, self.many(12, [group])))
        self.out.write(footer + struct.pack("<I", len(footer)) + b"PAR1")
        return self.out.getvalue()


def old_file():
    """rows: {"tags": LIST of repeated strings, "turns": LIST of a repeated group "array" {from, value},
    "bare": a repeated int32 outside of any list}"""
    file = Old()

    def strings(*texts):
        return b"".join(struct.pack("<I", len(t)) + t.encode() for t in texts)

    file.column(["tags", "array"], 6, [0, 1, 0, 0], [2, 2, 1, 0], strings("a", "b"), 1, 2)
    file.column(["turns", "array", "from"], 6, [0, 0, 1, 0], [1, 2, 2, 2], strings("human", "gpt", "human"), 1, 2)
    file.column(["turns", "array", "value"], 6, [0, 0, 1, 0], [1, 3, 2, 3], strings("Hi", "Bye"), 1, 3)
    file.column(["bare"], 1, [0, 0, 1, 1, 0], [0, 1, 1, 1, 1], struct.pack("<4i", 1, -2, 3, 4), 1, 1)
    e = file.element
    return file.finish([e("schema", children=3),
                        e("tags", repetition=1, children=1, converted=3), e("array", 6, 2, converted=0),
                        e("turns", repetition=1, children=1, converted=3), e("array", repetition=2, children=2),
                        e("from", 6, 0, converted=0), e("value", 6, 1, converted=0),
                        e("bare", 1, 2)], 3)


def one_text(pages, codec=0):
    """A column `text` of one row."""
    file = Old()
    file.chunk(["text"], 6, pages, 1, codec)
    return file.finish([file.element("schema", children=1), file.element("text", 6, 0, converted=0)], 1)


# Files that say what no writer says.
A, LENGTHS = struct.pack("<I", 1) + b"a", Old.varint(1 << 20) + Old.varint(1) + Old.varint(1 << 40) + b"\0" + b"\0\0" * (1 << 20)
LYING = {
    # 2^40 lengths of no bits, a million of them in two bytes
    "lengths": one_text(Old.page(LENGTHS, 1, 6, packed=pa.compress(LENGTHS, "zstd", asbytes=True)), codec=6),
    "dictionaries": one_text(Old.page(A, 1, kind=2) * 2 + Old.page(A, 1)),
}

# What zerod refuses by its name.
REFUSED = {
    "brotli": (pa.string(), "a", dict(compression="brotli")),
    "lz4": (pa.string(), "a", dict(compression="lz4")),
    "split": (pa.float64(), 0.5, dict(use_byte_stream_split=True, use_dictionary=False)),
    "decimal": (pa.decimal128(5, 2), 1, dict(store_decimal_as_integer=True)),
    "fixed": (pa.binary(3), b"abc", dict()),
    "map": (pa.map_(pa.string(), pa.string()), [("a", "b")], dict()),
}


def main():
    HERE.mkdir(parents=True, exist_ok=True)
    table = fixture_table()
    (HERE / "rows.jsonl").write_text(lines(table))
    for name, choice in CHOICES.items():
        write(table, HERE / f"{name}.parquet", choice)
        assert lines(pq.read_table(HERE / f"{name}.parquet")) == lines(table), name
    for name, choice in {"empty": "snappy", "empty-plain": "plain"}.items():
        write(table.slice(0, 0), HERE / f"{name}.parquet", CHOICES[choice])
    for name, (type_, value, choice) in REFUSED.items():
        pq.write_table(pa.table({"text": pa.array([value], type_)}), HERE / f"refused-{name}.parquet", store_schema=False, **choice)
    for name, content in LYING.items():
        (HERE / f"lying-{name}.parquet").write_bytes(content)
    (HERE / "old.parquet").write_bytes(old_file())
    (HERE / "old.jsonl").write_text(lines(pq.read_table(HERE / "old.parquet")))


main()
