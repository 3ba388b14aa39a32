/* The whole engine for the thread sanitizer: streams that are threads, workers,
 * the uploader, both strategies, parameters on both sides. Prints TAP. */
#include "tests/offload/engine_case.h"

#include <stdio.h>

int main(void)
{
    static const uint64_t chunk_bytes[] = {1024, 12000, 0};
    int test = 0, failures = 0;
    printf("1..%d\n", 2 * 3 * 2 * 3 + 3 * 3 * 3);
    for (int tier = HOST_DEVICE; tier < ENGINE_TIERS; tier++)
        for (int m = 0; m < 3; m++)
            for (int undo = 0; undo < 2; undo++)
                for (int chunk = 0; chunk < 3; chunk++) {
                    if (undo && tier >= NVME_DEVICE)
                        continue;
                    struct engine_setting setting = {
                            /* Adam-mini has a pass of its own */
                            .variant = &engine_variants[undo ? 1 : 5],
                            .dtype = DTYPE_BF16,
                            .tier = (enum engine_tier)tier,
                            .micros = m == 2 ? 3 : m,
                            .clipping = undo ? OFFLOAD_CLIP_UNDO
                                             : OFFLOAD_CLIP_WAIT,
                            .threads = 4 - chunk,
                            .chunk_bytes = chunk_bytes[chunk],
                            .streams = STREAMS_THREAD,
                    };
                    char text[256];
                    const char *wrong = engine_case_run(&setting);
                    engine_setting_print(&setting, text, sizeof text);
                    printf("%s %d - %s%s%s\n", wrong ? "not ok" : "ok", ++test,
                           text, wrong ? ": " : "", wrong ? wrong : "");
                    failures += wrong != NULL;
                }
    return failures ? 1 : 0;
}
