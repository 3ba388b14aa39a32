/* problem.h - attention of one shape on the device beside the plain definition,
 * for tests of our own kernels and of cuDNN's. */
#pragma once

#include "kernels/attention/attention.h"

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

/* Each an array of the host and its twin on the device. */
struct both {
    void *host, *device;
    size_t bytes;
};

struct arrays {
    struct both in, dout, out, lse, grads, starts, firsts; /* in: q, k, v */
    void *scratch;
    size_t scratch_bytes, k_at, v_at; /* bytes into `in` and `grads` */
    struct attention_shape shape;
};

struct both both_of(void *host, size_t bytes);
void both_free(struct both x);
struct arrays arrays_of(struct problem p);
void arrays_free(struct arrays *a);
void run_forward(struct arrays *a, const struct ops *ops);
void run_backward(struct arrays *a, const struct ops *ops);
void expect_near(
        const char *what, struct problem p, struct both x, enum dtype dtype);
/* out, the log-sum-exp and all gradients, by `ops`. */
void check_by(const struct ops *ops, struct problem p);
