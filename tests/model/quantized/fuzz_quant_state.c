/* fuzz_quant_state.c - bytes as a file may hold them where a quant_state
 * belongs.
 *
 *   fuzz_quant_state SECONDS [SEED]     mutations of three sound ones
 *   fuzz_quant_state FILE..             inputs again
 *
 * Beside what the sanitizers see: what is taken is in its bounds, and is the
 * same after it was written and read again; what is not taken is ZD_ERR_DATA
 * with a code.
 *
 * With clang's own fuzzer, which then takes the place of main:
 *   CC=clang meson setup FOLDER -Db_sanitize=address,undefined -Db_lundef=false
 *        -Dc_args='-fsanitize=fuzzer-no-link -DZD_LIBFUZZER'
 *        -Dc_link_args=-fsanitize=fuzzer */
#include "model/quantized/quant_state.h"

#include "base/clock.h"
#include "base/file/fs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void need(bool is_good, const char *what)
{
    if (is_good)
        return;
    fprintf(stderr, "fuzz_quant_state: %s\n", what);
    abort();
}

static bool are_equal(const struct quant_state *a, const struct quant_state *b)
{
    return a->format == b->format && a->dtype == b->dtype &&
           a->rows == b->rows && a->columns == b->columns &&
           a->block == b->block && a->is_nested == b->is_nested &&
           a->nested_block == b->nested_block &&
           a->nested_offset == b->nested_offset;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct quant_state state, again;
    enum zd_status status =
            quant_state_parse((const char *)data, bytes, "input", &state);
    if (status != ZD_OK) {
        need(status == ZD_ERR_DATA, "a status that is not ZD_ERR_DATA");
        need(zd_error_get()->code[0] == 'E', "a refusal without a code");
        zd_error_clear();
        return 0;
    }
    need(quant_block_is_legal((int64_t)state.block), "a block out of bounds");
    need(state.rows > 0 && state.columns > 0, "a shape out of bounds");
    need(!state.is_nested || quant_block_is_legal((int64_t)state.nested_block),
         "a nested block out of bounds");
    need(isfinite(state.nested_offset), "an offset that is no number");
    char *text = quant_state_text(&state);
    need(quant_state_parse(text, strlen(text), "again", &again) == ZD_OK &&
                 are_equal(&state, &again),
         "it reads otherwise when it was written");
    free(text);
    return 0;
}

#ifndef ZD_LIBFUZZER
static const char *const sound[] = {
        "{\"quant_type\": \"nf4\", \"blocksize\": 64, \"dtype\": \"bfloat16\","
        " \"shape\": [24, 150], \"nested_blocksize\": 256, \"nested_dtype\": "
        "\"float32\", \"nested_offset\": 0.0372}",
        "{\"quant_type\": \"fp4\", \"blocksize\": 4096, \"dtype\": \"float16\","
        " \"shape\": [1, 1]}",
        "{\"quant_type\": \"nf4\", \"blocksize\": 128, \"dtype\": \"float32\","
        " \"shape\": [11008, 4096]}"};

/* Bytes put, taken out, doubled, exchanged with what a parser may mind. */
static size_t mutate(uint8_t *data, size_t bytes, size_t max, uint64_t *state)
{
    static const char *const words[] = {
            "null", "-1",   "1e999", "0x40", "\\u0000",
            "[[",   "\"",   "1e-5",  "{}",   "9223372036854775808",
            "\xff", "shape"};
    uint64_t random = *state =
            *state * 6364136223846793005u + 1442695040888963407u;
    size_t at = bytes ? (size_t)(random >> 33) % bytes : 0;
    const char *word = words[(random >> 20) % 12];
    size_t length = strlen(word);
    switch ((random >> 60) % 4) {
    case 0:
        data[at] ^= (uint8_t)(1u << ((random >> 8) % 8));
        return bytes;
    case 1: {
        size_t cut = 1 + (size_t)((random >> 12) % 8);
        cut = cut < bytes - at ? cut : bytes - at;
        memmove(data + at, data + at + cut, bytes - at - cut);
        return bytes - cut;
    }
    case 2:
        if (bytes + length > max)
            return bytes;
        memmove(data + at + length, data + at, bytes - at);
        memcpy(data + at, word, length);
        return bytes + length;
    default:
        length = length < bytes - at ? length : bytes - at;
        memcpy(data + at, word, length);
        return bytes;
    }
}

static void mutations(double seconds, uint64_t seed)
{
    enum { MAX = 4096 };
    uint64_t state = seed, inputs = 0;
    double end = clock_seconds() + seconds;
    while (clock_seconds() < end)
        for (int i = 0; i < 1000; i++, inputs++) {
            uint8_t data[MAX];
            const char *text = sound[inputs % 3];
            size_t bytes = strlen(text);
            memcpy(data, text, bytes);
            for (uint64_t n = inputs / 3 % 6 + 1; n && bytes; n--)
                bytes = mutate(data, bytes, MAX, &state);
            LLVMFuzzerTestOneInput(data, bytes);
        }
    printf("1..1\nok 1 - %llu inputs, seed %llu\n", (unsigned long long)inputs,
           (unsigned long long)seed);
}

int main(int argc, char **argv)
{
    char *end = NULL;
    double seconds = argc > 1 ? strtod(argv[1], &end) : 1;
    if (argc < 2 || (end != argv[1] && *end == '\0')) {
        mutations(seconds, argc > 2 ? strtoull(argv[2], NULL, 10) : 1);
        return 0;
    }
    for (int i = 1; i < argc; i++) {
        char *data;
        size_t bytes;
        need(fs_read_file(argv[i], 1 << 20, &data, &bytes) == ZD_OK, argv[i]);
        LLVMFuzzerTestOneInput((const uint8_t *)data, bytes);
        free(data);
    }
    return 0;
}
#endif
