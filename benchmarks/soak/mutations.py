"""Damaged bytes: what a bad disk, a cut transfer or a stranger makes of a good file."""

import random
import struct

EDGES = (0, 1, 2, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x10000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)


def damaged(content: bytes, chance: random.Random, others: list[bytes]) -> bytes:
    """The content with one to four kinds of damage; ``others`` are files from which pieces are taken."""
    data = bytearray(content)
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        chance.choice(KINDS)(data, chance, others)
    return bytes(data)


def _flip(data: bytearray, chance: random.Random, others: list[bytes]) -> None:
    for _ in range(chance.choice((1, 1, 2, 8, 64))):
        if data:
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)


def _flip_head(data: bytearray, chance: random.Random, others: list[bytes]) -> None:
    """Near the beginning, where headers are."""
    for _ in range(chance.choice((1, 1, 2, 4))):
        if data:
            data[chance.randrange(min(len(data), 64))] = chance.randrange(256)


def _cut(data: bytearray, chance: random.Random, others: list[bytes]) -> None:
    del data[chance.randrange(len(data) + 1) :]


def _take_out(data: bytearray, chance: random.Random, others: list[bytes]) -> None:
    start = chance.randrange(len(data) + 1)
    del data[start : start + chance.choice((1, 2, 4, 16, 256))]


def _put_in(data: bytearray, chance: random.Random, others: list[bytes]) -> None:
    start = chance.randrange(len(data) + 1)
    data[start:start] = chance.randbytes(chance.choice((1, 2, 4, 16, 256)))


def _number(data: bytearray, chance: random.Random, others: list[bytes]) -> None:
    """A two- or four-byte number of either order becomes an edge: sizes, counts and offsets live in such places."""
    width, order = chance.choice((2, 4)), chance.choice("<>")
    if len(data) >= width:
        start = chance.randrange(len(data) - width + 1)
        value = chance.choice(EDGES) & (2 ** (8 * width) - 1)
        data[start : start + width] = struct.pack(order + {2: "H", 4: "I"}[width], value)


def _splice(data: bytearray, chance: random.Random, others: list[bytes]) -> None:
    """A piece of another file over a piece of this one."""
    other = chance.choice(others)
    size = chance.choice((4, 32, 512))
    taken = chance.randrange(len(other) + 1)
    start = chance.randrange(len(data) + 1)
    data[start : start + size] = other[taken : taken + size]


def _repeat(data: bytearray, chance: random.Random, others: list[bytes]) -> None:
    start = chance.randrange(len(data) + 1)
    piece = bytes(data[start : start + chance.choice((8, 64, 512))])
    data[start:start] = piece * chance.choice((1, 3, 50))


KINDS = (_flip, _flip, _flip_head, _flip_head, _cut, _take_out, _put_in, _number, _number, _splice, _repeat)
