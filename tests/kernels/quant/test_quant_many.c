/* test_quant_many.c - codes and scales of 1e8 random and adversarial weights
 * against bitsandbytes' Python definition, said once more here as it stands
 * there (backends/default/ops.py of 0.50: quantize_4bit, quantize_blockwise,
 * int8_vectorwise_quant): whole arrays, step by step, with the borders
 * computed. tests/reference/check_quantized.py holds the program against
 * bitsandbytes itself.
 *
 *     test_quant_many [WEIGHTS] */
#include "base/number/rng.h"
#include "kernels/quant/quant.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 1 << 20, BLOCK = 64, NESTED = 256, COLUMNS = 1000 };

/* functional.py, get_4bit_type. */
static const float nf4[16] = {
        -1.0F,
        -0.6961928009986877F,
        -0.5250730514526367F,
        -0.39491748809814453F,
        -0.28444138169288635F,
        -0.18477343022823334F,
        -0.09105003625154495F,
        0.0F,
        0.07958029955625534F,
        0.16093020141124725F,
        0.24611230194568634F,
        0.33791524171829224F,
        0.44070982933044434F,
        0.5626170039176941F,
        0.7229568362236023F,
        1.0F};
static const float fp4[16] = {
        0.0F,
        0.0052083334885537624F,
        0.6666666865348816F,
        1.0F,
        0.3333333432674408F,
        0.5F,
        0.1666666716337204F,
        0.25F,
        0.0F,
        -0.0052083334885537624F,
        -0.6666666865348816F,
        -1.0F,
        -0.3333333432674408F,
        -0.5F,
        -0.1666666716337204F,
        -0.25F};

/* --- the definition ------------------------------------------------------- */

struct borders {
    float of[255];
    int order[256], count; /* codes; of them one more than borders */
};

static struct borders borders_of(const float *code, int count)
{
    struct borders b = {.count = count - 1};
    for (int i = 0; i < count; i++) { /* argsort, of equals the first first */
        int below = 0;
        for (int j = 0; j < count; j++)
            below += code[j] < code[i] || (code[j] == code[i] && j < i);
        b.order[below] = i;
    }
    for (int i = 0; i + 1 < count; i++)
        b.of[i] = (code[b.order[i]] + code[b.order[i + 1]]) / 2;
    return b;
}

/* torch.bucketize: the first border that is not below x. */
static int bucket_of(const struct borders *b, float x)
{
    int i = 0;
    while (i < b->count && b->of[i] < x)
        i++;
    return b->order[i];
}

static float most_of(const float *x, size_t count)
{
    float most = 0;
    for (size_t i = 0; i < count; i++)
        most = fmaxf(most, fabsf(x[i]));
    return most;
}

static float within_one(float x)
{
    return fminf(fmaxf(x, -1), 1);
}

/* absmax, and x as parts of it. */
static void scale_blocks(
        const float *x, size_t count, size_t block, float *absmax,
        float *scaled)
{
    size_t whole = count / block * block;
    for (size_t at = 0; at < whole; at += block) {
        float most = most_of(x + at, block);
        float by = 1.0F / fmaxf(most, 1e-38F);
        absmax[at / block] = most;
        for (size_t i = at; i < at + block; i++)
            scaled[i] = within_one(x[i] * by);
    }
    if (whole == count)
        return;
    float most = fmaxf(most_of(x + whole, count - whole), 1e-38F);
    absmax[whole / block] = most;
    for (size_t i = whole; i < count; i++)
        scaled[i] = within_one(x[i] / most);
}

static void define4(
        const float *x, size_t count, const struct borders *b, uint8_t *codes,
        float *absmax, float *scaled)
{
    scale_blocks(x, count, BLOCK, absmax, scaled);
    scaled[count] = 0; /* padded */
    for (size_t i = 0; i < count; i += 2)
        codes[i / 2] =
                (uint8_t)(bucket_of(b, scaled[i]) << 4 | bucket_of(b, scaled[i + 1]));
}

/* torch.round goes to even; 127.0 / t is t.reciprocal() * 127.0. */
static float define8(const float *x, size_t count, int8_t *codes)
{
    float most = most_of(x, count), by = 1.0F / most * 127.0F;
    for (size_t i = 0; i < count; i++)
        codes[i] = (int8_t)nearbyintf(x[i] * by);
    return most;
}

/* --- the weights ---------------------------------------------------------- */

struct drawn {
    uint64_t stream, at;
};

static double draw(struct drawn *d)
{
    return rng_uniform(17, d->stream, d->at++);
}

static float sign_of(struct drawn *d)
{
    return draw(d) < 0.5 ? -1.0F : 1.0F;
}

/* What lies on a border of the block's parts, or beside it. */
static float near_border(struct drawn *d, const struct borders *b, float most)
{
    float x = b->of[(int)(draw(d) * b->count)] * most;
    int beside = (int)(draw(d) * 5) - 2;
    for (; beside < 0; beside++)
        x = nextafterf(x, -INFINITY);
    for (; beside > 0; beside--)
        x = nextafterf(x, INFINITY);
    return x;
}

/* Half way between two codes of int8. */
static float near_half(struct drawn *d, float most)
{
    float x = most * ((float)(int)(draw(d) * 127) + 0.5F) / 127;
    return sign_of(d) * (draw(d) < 0.5 ? x : nextafterf(x, 0));
}

static float huge(struct drawn *d)
{
    return 3e38F * (float)draw(d);
}

static void fill_block(struct drawn *d, const struct borders *b, float *x)
{
    enum { PLAIN, SMALL, BORDERS, HALVES, ZEROS, HUGE, DENORMAL, EQUAL, KINDS };
    int kind = (int)(draw(d) * 2 * KINDS); /* one half is plain */
    float most = expf(40 * (float)draw(d) - 30);
    for (int i = 0; i < BLOCK; i++) {
        float u = 2 * (float)draw(d) - 1;
        switch (kind) {
        case SMALL:
            x[i] = most * u * u * u * u * u;
            break;
        case BORDERS:
            x[i] = near_border(d, b, most);
            break;
        case HALVES:
            x[i] = near_half(d, most);
            break;
        case ZEROS:
            x[i] = 0 * u;
            break;
        case DENORMAL:
            x[i] = 1e-38F * u * (float)draw(d);
            break;
        case EQUAL:
            x[i] = sign_of(d) * most;
            break;
        default:
            x[i] = most * u;
        }
    }
    if (kind == BORDERS || kind == HALVES)
        x[(int)(draw(d) * BLOCK)] = sign_of(d) * most;
    if (kind == HUGE)
        x[(int)(draw(d) * BLOCK)] = sign_of(d) * huge(d);
}

/* --- held against each other ---------------------------------------------- */

struct room {
    float *x, *scaled, *absmax, *our_absmax;
    uint8_t *codes, *our_codes;
};

static uint64_t wrong; /* arrays that differ */

static void same(
        const char *what, size_t at, const void *want, const void *got,
        size_t bytes)
{
    if (memcmp(want, got, bytes) == 0)
        return;
    if (wrong++ < 10)
        printf("# %s of the chunk at %zu differ\n", what, at);
}

static void compare4(
        const struct room *r, const float *x, size_t count, size_t at,
        enum quant_format format, const struct borders *b)
{
    size_t blocks = quant_parts(count, BLOCK), bytes = quant_parts(count, 2);
    define4(x, count, b, r->codes, r->absmax, r->scaled);
    quant_encode4(r->our_codes, r->our_absmax, x, format, count, BLOCK);
    same(quant_format_name(format), at, r->codes, r->our_codes, bytes);
    same("absmax", at, r->absmax, r->our_absmax, blocks * sizeof *r->absmax);
}

/* Of the scales at hand. */
static void compare_nested(
        const struct room *r, size_t count, size_t at, const struct borders *b)
{
    float *scales = r->scaled + CHUNK / 2, *ours = scales + CHUNK / NESTED;
    float offset = quant_nested_offset(r->absmax, count);
    for (size_t i = 0; i < count; i++)
        r->x[i] = r->absmax[i] - offset;
    scale_blocks(r->x, count, NESTED, scales, r->scaled);
    for (size_t i = 0; i < count; i++)
        r->codes[i] = (uint8_t)bucket_of(b, r->scaled[i]);
    quant_nest(r->our_codes, ours, r->absmax, offset, count);
    same("nested codes", at, r->codes, r->our_codes, count);
    same("nested scales", at, scales, ours,
         quant_parts(count, NESTED) * sizeof *ours);
}

static void compare8(const struct room *r, size_t count, size_t at)
{
    for (size_t row = 0; row + COLUMNS <= count; row += COLUMNS) {
        const float *x = r->x + row;
        float least = most_of(x, COLUMNS);
        if (least < 1e-36F) /* 1 / scb is infinite: Python has no codes */
            continue;
        float scb = define8(x, COLUMNS, (int8_t *)r->codes);
        float ours = quant_encode8((int8_t *)r->our_codes, x, COLUMNS);
        same("int8", at + row, r->codes, r->our_codes, COLUMNS);
        same("SCB", at + row, &scb, &ours, sizeof scb);
    }
}

static void *take(size_t bytes)
{
    void *memory = malloc(bytes);
    if (!memory)
        abort();
    return memory;
}

int main(int argc, char **argv)
{
    size_t weights = argc > 1 ? strtoull(argv[1], NULL, 10) : 100000000;
    float map[256];
    quant_dynamic_map(map);
    struct borders of_nf4 = borders_of(nf4, 16), of_fp4 = borders_of(fp4, 16);
    struct borders of_map = borders_of(map, 256);
    struct room r = {
            .x = take((CHUNK + BLOCK) * sizeof(float)),
            .scaled = take((CHUNK + BLOCK) * sizeof(float)),
            .absmax = take(CHUNK / BLOCK * sizeof(float) + 64),
            .our_absmax = take(CHUNK / BLOCK * sizeof(float) + 64),
            .codes = take(CHUNK + 1),
            .our_codes = take(CHUNK + 1)};
    size_t done = 0;
    for (uint64_t chunk = 0; done < weights; chunk++) {
        struct drawn d = {.stream = chunk};
        /* the last block is short, and whole once in a while */
        size_t count = CHUNK - (chunk % 8 ? (size_t)(draw(&d) * BLOCK) : 0);
        for (size_t at = 0; at < CHUNK; at += BLOCK)
            fill_block(&d, chunk % 2 ? &of_nf4 : &of_fp4, r.x + at);
        compare8(&r, count, done);
        compare4(&r, r.x, count, done, QUANT_FP4, &of_fp4);
        compare4(&r, r.x, count, done, QUANT_NF4, &of_nf4);
        compare_nested(&r, quant_parts(count, BLOCK), done, &of_map);
        done += count;
    }
    printf("%sok 1 - %zu weights: codes and scales of nf4, fp4, nested and "
           "int8 "
           "are the definition's\n1..1\n",
           wrong ? "not " : "", done);
    free(r.x);
    free(r.scaled);
    free(r.absmax);
    free(r.our_absmax);
    free(r.codes);
    free(r.our_codes);
    return wrong > 0;
}
