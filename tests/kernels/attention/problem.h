/* problem.h - attention of one shape on the device against the plain
 * definition, for tests of our own kernels and cuDNN's. */
#pragma once

#include "tests/kernels/pair.h"

struct ops {
    attention_forward_fn *forward;
    attention_backward_fn *backward;
    attention_decode_fn *decode;
};
/* By type. */
struct ops own_attention(enum dtype dtype);

struct problem {
    enum dtype dtype;
    int B, T, H, KV, D;
    bool fused;   /* q, k, v in one array */
    int document; /* tokens; 0: one document */
    bool by_cudnn;
    int window;
    float softcap;
};

/* of[0]: on the thread's device; of[1]: for the definition. Valid until the
 * next arrays_of. */
struct arrays {
    struct pair in, dout, out, lse, grads, starts, firsts; /* in: q, k, v */
    struct pair scratch;
    size_t k_at, v_at; /* bytes into `in` and `grads` */
    struct attention_shape shape;
};

struct arrays arrays_of(struct problem p);
void run_forward(struct arrays *a, const struct ops *ops);
void run_backward(struct arrays *a, const struct ops *ops);
/* Compares out, the log-sum-exp and all gradients of `ops`. */
void check_by(const struct ops *ops, struct problem p);
