/* adapter.h - the arithmetic of low-rank adapters.
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
 * keep is dropout of the adapter's input, including the factor 1 / (1 - p); the
 * base's matmul has no dropout. Results are added to y and dx directly in fp32
 * and on a GPU, else through scratch; so is dropout of dx.
 *
 * Source: Hu et al. 2021, arXiv:2106.09685, section 4.1; Liu et al. 2024,
 *         arXiv:2402.09353. */
#pragma once

#include "kernels/kernels.h"
#include "model/params.h"

/* An adapter of a linear: it changes columns first .. first + out - 1 of the
 * output. */
struct adapter_view {
    const void *a, *b; /* (r, in), (out, r) */
    float *da, *db;    /* NULL: frozen */
    int r, first, out;
    float scale;
    int columns, before; /* of the input, as in struct dropout */
    void *u;             /* (N, r) */
    uint64_t stream;     /* rng_stream of the weight's name */
    /* DoRA; change NULL: not DoRA */
    const void *change;    /* (out) of the magnitudes */
    float *dmagnitude;     /* NULL: frozen */
    float *gain, *inverse; /* (out), kept for backward */
};

/* Scratch that adapters use one after the other (activations.h). */
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
    /* maxima over layers: sum of r, the same for attention only, floats of
     * gains */
    size_t low, attention_low, gains;
    size_t head_low, head_gains; /* the head's adapter */
    size_t most_r, cross;        /* DoRA: cross: of W A^T */
    size_t widest[BRANCHES];     /* maximum of in and out, without the head */
    size_t most_in[BRANCHES];
    size_t columns[BRANCHES]; /* of the widest matmul of a layer */
};
struct adapter_sizes adapter_sizes_of(
        const struct param_table *table, unsigned joined);

struct linear;

/* Computes only what backward reads: u, and with DoRA the gains. `weight`: for
 * DoRA the base's whole weight; NULL if an earlier pass has computed the gains.
 */
enum zd_status adapter_keep(
        const struct linear *linear, const struct adapter_view *view,
        const void *weight, const void *x);
enum zd_status adapter_forward(
        const struct linear *linear, const struct adapter_view *view,
        const void *weight, void *y, const void *x);
/* Computes the gradient of the magnitudes. On entry the view's columns of z
 * hold x W^T; on return gain dy, which replaces dy from then on. */
enum zd_status adapter_magnitude_backward(
        const struct linear *linear, const struct adapter_view *view, void *z,
        const void *dy);
/* dx may be NULL: not computed. */
enum zd_status adapter_backward(
        const struct linear *linear, const struct adapter_view *view, void *dx,
        const void *dy, const void *x);
