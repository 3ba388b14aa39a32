#!/usr/bin/env python3
"""50 steps of every optimizer by other people's code, for tests/optim/test_reference.c.

    python tests/reference/optim_steps.py            writes tests/fixtures/optim/NAME.f32 and NAME.u8

Made with torch 2.15.0, bitsandbytes 0.50.2, lion-pytorch 0.2.5, adam-mini 1.1.1; the build and the tests need none.

    adamw         torch.optim.AdamW
    sgd, sgd_momentum   torch.optim.SGD; weights shrink before the step, since torch adds the decay to the gradient
    lion          lion_pytorch.Lion
    adam_mini     adam_mini.Adam_mini
    *_8bit        the same updates written out below, with states that pass through the maps of
                  bitsandbytes.functional.create_dynamic_map after every step. (The native CPU kernel of bitsandbytes
                  looks codes up in a coarser table than its own map, so that it is no reference for nearest codes.)

Tensors, each with its own kind of block in Adam-mini: `q_proj` (64, 64), four heads of 16 rows; `mlp` (24, 180), rows;
`norm` (100), one block; `bias` (100), each element for itself. The first two decay; they have 8-bit states where the name
says so, in qblocks of 256 from the tensor's start.

Weights and gradients come from `draw`, which test_reference.c has too, bit for bit. The size of a gradient's element
spans nine decades; some elements never get one.

NAME.f32: the weights after the last step, tensor by tensor; then for each 8-bit tensor the scales of its 8-bit lanes
(m before v). NAME.u8: the codes of those lanes, in the same order.
"""

import pathlib

import numpy as np
import torch
from adam_mini import Adam_mini
from bitsandbytes.functional import create_dynamic_map
from lion_pytorch import Lion

STEPS, QBLOCK, DECAY, EPSILON = 50, 256, 0.1, 1e-8
SHAPES = {"q_proj": (64, 64), "mlp": (24, 180), "norm": (100,), "bias": (100,)}
HEADS = 4
OUT = pathlib.Path(__file__).parents[1] / "fixtures" / "optim"


def mix(x):
    """A 32-bit hash (the finaliser of MurmurHash3)."""
    x = x.astype(np.uint64) & 0xFFFFFFFF
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        x = ((x ^ (x >> shift)) * factor) & 0xFFFFFFFF
    return x ^ (x >> 16)


def draw(stream, count):
    """Multiples of 2^-23 from -1 to below 1."""
    h = mix(np.arange(count, dtype=np.uint64) + np.uint64(stream * 65536))
    return ((h & 0xFFFFFF).astype(np.int64) - 0x800000).astype(np.float32) * np.float32(2.0**-23)


def weights_of(tensor, count):
    return draw(1000 + tensor, count) * np.float32(2.0**-5)


def grad_of(tensor, step, count):
    element = np.arange(count)
    decade = mix(element // 8 + 65536 * (2000 + tensor)) % 31
    grad = draw(10 * step + tensor, count) * np.exp2(-decade.astype(np.float64)).astype(np.float32)
    grad[element % 97 == 5] = 0
    return grad.astype(np.float32)


# --- 8-bit states ---

MAPS = {lane: create_dynamic_map(signed=lane == "m").to(torch.float64).numpy() for lane in "mv"}


def encode(lane, x):
    """Scales and nearest codes of a flat array; a v above 0 does not become 0."""
    table = MAPS[lane]
    scales, codes = [], []
    for block in np.split(x, range(QBLOCK, len(x), QBLOCK)):
        scale = np.abs(block).max()
        y = block.astype(np.float64) / max(float(scale), 1e-300)
        code = np.abs(y[:, None] - table[None, :]).argmin(1)
        if lane == "v":
            code[(block > 0) & (code == 0)] = 1
        scales.append(scale)
        codes.append(code)
    return np.array(scales, np.float32), np.concatenate(codes).astype(np.uint8)


def decode(lane, scales, codes):
    table = MAPS[lane].astype(np.float32)
    return table[codes] * np.repeat(scales, QBLOCK)[: len(codes)]


class Lane:
    """A state that is kept in 8 bits between steps, or in fp32."""

    def __init__(self, lane, count, narrow):
        self.lane, self.narrow = lane, narrow
        self.put(torch.zeros(count))

    def put(self, x):
        self.stored = encode(self.lane, x.numpy()) if self.narrow else x.clone()

    def get(self):
        return torch.from_numpy(decode(self.lane, *self.stored)) if self.narrow else self.stored.clone()


def blocks_of(name, count):
    """Adam-mini: elements of one block."""
    return {"q_proj": count // HEADS, "mlp": SHAPES["mlp"][1], "norm": count, "bias": 1}[name]


def step_8bit(kind, name, p, g, m, v, t, lr, betas):
    decay = DECAY if name in ("q_proj", "mlp") else 0.0
    b1, b2 = betas
    p.mul_(1 - lr * decay)
    m1 = m.get()
    if kind == "lion":
        p.add_(torch.sign(b1 * m1 + (1 - b1) * g), alpha=-lr)
        m.put(b2 * m1 + (1 - b2) * g)
        return
    m1 = b1 * m1 + (1 - b1) * g
    square = g * g
    if kind == "adam_mini":
        block = blocks_of(name, len(p))
        square = square.view(-1, block).mean(1).repeat_interleave(block)
    v1 = b2 * v.get() + (1 - b2) * square
    denominator = v1.sqrt() / (1 - b2**t) ** 0.5 + EPSILON
    p.addcdiv_(m1, denominator, value=-lr / (1 - b1**t))
    m.put(m1)
    v.put(v1)


def run_8bit(kind, lr, betas):
    params, lanes = initial(), {}
    for name, p in params.items():
        narrow = p.numel() >= 4096
        lanes[name] = Lane("m", p.numel(), narrow), Lane("v", p.numel(), narrow and kind == "adamw")
    for t in range(1, STEPS + 1):
        for i, (name, p) in enumerate(params.items()):
            g = torch.from_numpy(grad_of(i, t, p.numel()))
            step_8bit(kind, name, p.view(-1), g, *lanes[name], t, lr, betas)
    write(f"{kind}_8bit", params, lanes)


# --- fp32 states: the packages ---


def initial():
    return {
        name: torch.from_numpy(weights_of(i, int(np.prod(shape)))).view(shape)
        for i, (name, shape) in enumerate(SHAPES.items())
    }


def run(label, make, shrink=None):
    params = {name: torch.nn.Parameter(p) for name, p in initial().items()}
    optimizer = make(params)
    for t in range(1, STEPS + 1):
        for i, (name, p) in enumerate(params.items()):
            p.grad = torch.from_numpy(grad_of(i, t, p.numel())).view(p.shape)
            if shrink and p.dim() == 2:
                p.data.mul_(shrink)
        optimizer.step()
    write(label, {name: p.detach() for name, p in params.items()}, {})


def groups(params):
    return [
        {"params": [p for p in params.values() if p.dim() == 2], "weight_decay": DECAY},
        {"params": [p for p in params.values() if p.dim() == 1], "weight_decay": 0.0},
    ]


def write(label, params, lanes):
    floats = [p.reshape(-1).numpy() for p in params.values()]
    codes = []
    for name in params:
        for lane in lanes.get(name, ()):
            if lane.narrow:
                floats.append(lane.stored[0])
                codes.append(lane.stored[1])
    np.concatenate(floats).astype("<f4").tofile(OUT / f"{label}.f32")
    if codes:
        np.concatenate(codes).tofile(OUT / f"{label}.u8")


def main():
    betas = (0.9, 0.95)
    run("adamw", lambda p: torch.optim.AdamW(groups(p), lr=1e-3, betas=betas, eps=EPSILON))
    run("lion", lambda p: Lion(groups(p), lr=1e-4))
    run(
        "adam_mini",
        lambda p: Adam_mini(
            list(p.items()), lr=1e-3, betas=betas, eps=EPSILON, weight_decay=DECAY, dim=64, n_heads=HEADS, verbose=False
        ),
    )
    run("sgd", lambda p: torch.optim.SGD(p.values(), lr=1e-2), shrink=1 - 1e-2 * DECAY)
    run("sgd_momentum", lambda p: torch.optim.SGD(p.values(), lr=1e-2, momentum=0.9), shrink=1 - 1e-2 * DECAY)
    run_8bit("adamw", 1e-3, betas)
    run_8bit("adam_mini", 1e-3, betas)
    run_8bit("lion", 1e-4, (0.9, 0.99))


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    main()
