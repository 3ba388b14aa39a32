#!/usr/bin/env python3
"""One linear in FP8, forward and backward, by torch's own types, for tests/model/test_fp8.c.

    python tests/reference/fp8_linear.py             writes tests/fixtures/fp8/linear.f32

Made with torch 2.15.0 on a CPU; the build and the tests need none. y = x W^T, dx = dy W and dW = dy^T x of 150 tokens, 144
inputs and 272 outputs in bf16, operands through float8_e4m3fn and (gradients, tensorwise) float8_e5m2; sums in fp32. Blocks are
1 x 128 along what is summed over, of W 128 x 128. Tokens are more than one block and no multiple of 16.

Numbers come from `draw`, which test_fp8.c has too, bit for bit; each row and column of a matrix has a size of its own.
linear.f32: for tensorwise, then blockwise: y u, dx v and dW v with u(272), v(144) by `draw`.
"""

import pathlib

import numpy as np
import torch

N, IN, OUT = 150, 144, 272


def draw(seed, rows, columns):
    state = (np.arange(rows * columns, dtype=np.uint64) + np.uint64(seed * 1000003)) * np.uint64(6364136223846793005)
    state ^= state >> np.uint64(29)
    state *= np.uint64(11400714819323198485)
    unit = ((state >> np.uint64(40)).astype(np.float32) - np.float32(2**23)) / np.float32(2**23)
    size = 2.0 ** -(np.arange(rows)[:, None] % 5 + np.arange(columns)[None, :] % 7)
    return torch.from_numpy(unit.reshape(rows, columns) * size.astype(np.float32)).bfloat16().float()


def cast(x, blocks, to, most):
    """x as its codes decode; blocks (rows, columns) of a scale, None: one."""
    out = torch.empty_like(x)
    rows, columns = blocks or x.shape
    for r in range(0, x.shape[0], rows):
        for c in range(0, x.shape[1], columns):
            part = x[r:r + rows, c:c + columns]
            amax = part.abs().max()
            out[r:r + rows, c:c + columns] = (part * (most / amax)).to(to).float() * (amax / most)
    return out


def linear(x, w, dy, blockwise):
    e4m3, e5m2 = (torch.float8_e4m3fn, torch.tensor(448.0)), (torch.float8_e5m2, torch.tensor(57344.0))
    tokens, tiles, grads = ((1, 128), (128, 128), e4m3) if blockwise else (None, None, e5m2)
    wq = cast(w, tiles, *e4m3)
    y = cast(x, tokens, *e4m3) @ wq.T
    dx = cast(dy, tokens, *grads) @ wq
    dw = cast(dy.T.contiguous(), tokens, *grads) @ cast(x.T.contiguous(), tokens, *e4m3).T
    return y, dx, dw


def main():
    x, w, dy = draw(1, N, IN), draw(2, OUT, IN), draw(3, N, OUT)
    u, v = draw(4, 1, OUT)[0], draw(5, 1, IN)[0]
    out = []
    for blockwise in (False, True):
        y, dx, dw = linear(x, w, dy, blockwise)
        out += [y.bfloat16().float() @ u, dx.bfloat16().float() @ v, dw @ v]
    path = pathlib.Path(__file__).parent.parent / "fixtures/fp8/linear.f32"
    path.parent.mkdir(exist_ok=True)
    torch.cat(out).numpy().astype("<f4").tofile(path)


if __name__ == "__main__":
    main()
