"""read_events.py DIR: what is in a folder of TensorBoard's event files, as lines: "scalar TAG STEP VALUE" and
"text TAG STEP TEXT", where a newline is |. Written from the formats of records and protobuf alone; what a process that went on
has undone is left out, as TensorBoard does."""
import pathlib
import struct
import sys

TABLE = []
for byte in range(256):
    for _ in range(8):
        byte = byte >> 1 ^ 0x82F63B78 if byte & 1 else byte >> 1
    TABLE.append(byte)


def checksum(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ TABLE[(crc ^ byte) & 255]
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def fields(data):
    """A message of protobuf: number, and what is there; numbers of 4 and 8 bytes are floats."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            value |= (data[at] & 127) << shift
            shift += 7
            at += 1
            if data[at - 1] < 128:
                return value

    while at < len(data):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
            continue
        size = {1: 8, 5: 4}.get(key & 7) or varint()
        part = data[at : at + size]
        assert len(part) == size, "cut short"
        at += size
        yield key >> 3, struct.unpack("<d" if size == 8 else "<f", part)[0] if key & 7 != 2 else part


def records(data):
    while data:
        size, crc = struct.unpack_from("<QI", data)
        record = data[12 : 12 + size]
        assert crc == checksum(data[:8]) and struct.unpack_from("<I", data, 12 + size)[0] == checksum(record), "a wrong checksum"
        yield dict_of(record)
        data = data[16 + size :]


def dict_of(data):
    message = {}
    for number, value in fields(data):
        message.setdefault(number, []).append(value)
    return message


assert checksum(b"123456789") == ((0xE3069283 >> 15 | 0xE3069283 << 17) + 0xA282EAD8) & 0xFFFFFFFF
points = []
for file in sorted(pathlib.Path(sys.argv[1]).glob("events.out.tfevents.*")):
    first, *events = records(file.read_bytes())
    assert first[3] == [b"brain.Event:2"] and first[1][0] > 1e9, first
    for event in events:
        step = event[2][0]
        if 7 in event:  # a session starts
            assert dict_of(event[7][0]) == {1: [1]}
            points = [point for point in points if point[2] < step]
        for value in [dict_of(each) for summary in event.get(5, []) for each in dict_of(summary)[1]]:
            tag = value[1][0].decode()
            if 2 in value:
                points.append(("scalar", tag, step, "%.9g" % value[2][0]))
                continue
            tensor, plugin = dict_of(value[8][0]), dict_of(dict_of(value[9][0])[1][0])
            assert tensor[1] == [7] and plugin[1] == [b"text"], "no tensor of strings for the plugin"
            assert dict_of(dict_of(tensor[2][0])[2][0]) == {1: [1]}
            points.append(("text", tag, step, tensor[8][0].decode().replace("\n", "|")))
for point in points:
    print(*point)
