/* adapter.h - low-rank adapters: all their arithmetic.
 *
 *   u = scale keep(x) A^T      (N, r), kept for backward
 *   y += u B^T                 beside y = x W^T
 *
 *   dB += dy^T u      du = scale dy B      dA += du^T keep(x)
 *   dx += keep(du A)
 *
 * DoRA gives each row of W + scale B A its own norm
 * (kernels/elementwise/magnitudes.h): with z = x W^T + u B^T, which backward
 * recomputes, and bias b
 *
 *   y = b + gain (y - b)     dm += sum of rows of dy z / |W + scale B A|
 *   dy = gain dy             in all of the above and in dy W
 *
 * keep is the dropout of the adapter's input, 1 / (1 - p) with the scale; the
 * base's own matmul does not have it. Results are added to y and dx directly
 * in fp32 and on a GPU, else through scratch; so is what is dropped from dx.
 *
 * Source: Hu et al. 2021, arXiv:2106.09685, section 4.1; Liu et al. 2024,
 *         arXiv:2402.09353. */
#pragma once

#include "kernels/kernels.h"
#include "model/params.h"

/* What of a linear an adapter changes: columns first .. first + out - 1 of its
 * output. */
struct adapter_view {
    const void *a, *b; /* (r, in), (out, r) */
    float *da, *db;    /* NULL: frozen */
    int r, first, out;
    float scale;
    int columns, before; /* of the input, as `dropout` has them */
    void *u;             /* (N, r) */
    uint64_t stream;     /* rng_stream of the weight's name */
    /* DoRA; change NULL: not so */
    const void *change;    /* (out) of the magnitudes */
    float *dmagnitude;     /* NULL: frozen */
    float *gain, *inverse; /* (out), kept for backward */
};

/* Arrays that adapters share, one after the other (activations.h). */
struct adapter_scratch {
    void *wide;          /* (N, most in or out); NULL: not needed */
    void *dropped;       /* (N, most in); NULL: no dropout */
    void *du;            /* (N, most r) */
    float *cross, *gram; /* (most out r), (most r, r): DoRA */
    void *scaled;        /* (N, most columns): DoRA's z, then dy */
};

/* What the adapters of a model need, in elements, of each branch of a layer;
 * `joined` as in model_shape. */
enum branch { BRANCH_ATTENTION, BRANCH_MLP, BRANCHES };
struct adapter_sizes {
    /* the most of a layer: sum of r, of attention's alone, floats of gains */
    size_t low, attention_low, gains;
    size_t head_low, head_gains; /* of the head's own adapter */
    size_t most_r, cross;        /* DoRA: cross of W A^T, .. */
    size_t widest[BRANCHES];     /* the most of in and out; without the head */
    size_t most_in[BRANCHES];
    size_t columns[BRANCHES]; /* .. and of the widest matmul of a layer */
};
struct adapter_sizes adapter_sizes_of(
        const struct param_table *table, unsigned joined);

struct linear;

/* u alone: what backward reads of a forward whose y no one wants. With DoRA
 * also the gains; `weight` is the base's then, whole, NULL where a pass before
 * has made them. */
enum zd_status adapter_keep(
        const struct linear *linear, const struct adapter_view *view,
        const void *weight, const void *x);
enum zd_status adapter_forward(
        const struct linear *linear, const struct adapter_view *view,
        const void *weight, void *y, const void *x);
/* z of the view's columns holds x W^T and becomes gain dy, which takes the
 * place of dy from there on; with the gradient of the magnitudes. */
enum zd_status adapter_magnitude_backward(
        const struct linear *linear, const struct adapter_view *view, void *z,
        const void *dy);
/* dx may be NULL: not computed. */
enum zd_status adapter_backward(
        const struct linear *linear, const struct adapter_view *view, void *dx,
        const void *dy, const void *x);
