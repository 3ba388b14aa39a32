#include "tests/offload/engine_case.h"

#include <criterion/criterion.h>

static void run_case(const struct engine_setting *setting)
{
    char text[256];
    const char *wrong = engine_case_run(setting);
    engine_setting_print(setting, text, sizeof text);
    if (wrong)
        zd_error_print(stderr, zd_error_get());
    cr_assert(!wrong, "%s: %s", text, wrong);
}

static const uint64_t chunk_bytes[] = {1024, 0, 12000, 5 * 1024, 1 << 30};
enum { CHUNKS = sizeof chunk_bytes / sizeof chunk_bytes[0] };

/* Every optimizer, type, place and strategy; threads, chunks and streams go
 * round beside them. */
static void run_variant(const struct engine_variant *variant)
{
    static const int micros[] = {0, 1, 3};
    int turn = (int)(variant - engine_variants);
    for (int dtype = DTYPE_FP32; dtype <= DTYPE_FP16; dtype++)
        for (int tier = HOST_DEVICE; tier <= HOST_HOST; tier++)
            for (int m = 0; m < 3; m++)
                for (int undo = 0; undo < 2; undo++, turn++) {
                    struct engine_setting setting = {
                            .variant = variant,
                            .dtype = (enum dtype)dtype,
                            .tier = (enum engine_tier)tier,
                            .micros = micros[m],
                            .clipping = undo ? OFFLOAD_CLIP_UNDO
                                             : OFFLOAD_CLIP_WAIT,
                            .threads = 1 + turn % 4,
                            .chunk_bytes = chunk_bytes[turn % CHUNKS],
                            .streams = (enum engine_streams)(turn / 2 % 3),
                    };
                    if (undo && variant->name == OPTIM_ADAM_MINI)
                        continue;
                    run_case(&setting);
                }
}

Test(offload_engine, gives_the_bits_of_a_plain_update_for_every_optimizer)
{
    for (int i = 0; i < engine_variant_count; i++)
        run_variant(&engine_variants[i]);
}

Test(offload_engine, gives_the_same_bits_for_all_threads_chunks_and_streams)
{
    for (int threads = 1; threads <= 4; threads++)
        for (int chunk = 0; chunk < CHUNKS; chunk++)
            for (int streams = 0; streams < 3; streams++)
                for (int undo = 0; undo < 2; undo++) {
                    struct engine_setting setting = {
                            .variant = &engine_variants[1],
                            .dtype = DTYPE_BF16,
                            .micros = 3 * (chunk & 1),
                            .clipping = undo ? OFFLOAD_CLIP_UNDO
                                             : OFFLOAD_CLIP_WAIT,
                            .threads = threads,
                            .chunk_bytes = chunk_bytes[chunk],
                            .streams = (enum engine_streams)streams,
                    };
                    run_case(&setting);
                }
}

Test(offload_engine, gives_the_same_bits_from_a_file)
{
    int turn = 0;
    for (int i = 0; i < engine_variant_count; i++)
        for (int tier = NVME_DEVICE; tier <= NVME_NVME; tier++)
            for (int micros = 0; micros < 4; micros += 3, turn++) {
                struct engine_setting setting = {
                        .variant = &engine_variants[i],
                        .dtype = (enum dtype)(turn % 3),
                        .tier = (enum engine_tier)tier,
                        .micros = micros,
                        .threads = 1 + turn % 4,
                        .chunk_bytes = chunk_bytes[turn % CHUNKS],
                        .streams = (enum engine_streams)(turn / 2 % 3),
                };
                run_case(&setting);
            }
}
