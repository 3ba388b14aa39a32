#include "optim/lanes.h"

#include <criterion/criterion.h>

static const struct optim_layout fp32 = {{OPTIM_FP32, OPTIM_FP32}};
static const struct optim_layout bytes = {{OPTIM_8BIT, OPTIM_8BIT}};
static const struct optim_layout mini = {{OPTIM_8BIT, OPTIM_BLOCKS}};
static const struct optim_layout lion = {{OPTIM_BF16, OPTIM_NONE}};

struct shelves {
    size_t bytes[OPTIM_ARRAYS];
    size_t *ends[OPTIM_ARRAYS];
};

static void shelves_init(struct shelves *shelves)
{
    for (int i = 0; i < OPTIM_ARRAYS; i++) {
        shelves->bytes[i] = 0;
        shelves->ends[i] = &shelves->bytes[i];
    }
}

Test(lanes, runs_are_contiguous_in_the_arrays_of_their_formats)
{
    struct shelves s;
    shelves_init(&s);
    struct optim_place a = optim_place_in_arrays(&fp32, 100, 64, s.ends);
    struct optim_place b = optim_place_in_arrays(&bytes, 5000, 64, s.ends);
    struct optim_place c = optim_place_in_arrays(&mini, 300, 64, s.ends);
    struct optim_place d = optim_place_in_arrays(&lion, 10, 64, s.ends);
    struct optim_place e = optim_place_in_arrays(&fp32, 16, 64, s.ends);
    cr_expect(a.values[OPTIM_M] == 0 && a.values[OPTIM_V] == 0);
    cr_expect(b.values[OPTIM_M] == 0 && b.values[OPTIM_V] == 5056);
    cr_expect(b.scales[OPTIM_M] == 0 && b.scales[OPTIM_V] == 128);
    cr_expect(c.values[OPTIM_M] == 2 * 5056 && c.scales[OPTIM_M] == 256);
    cr_expect(d.values[OPTIM_M] == 0);
    cr_expect(e.values[OPTIM_M] == 448 && e.values[OPTIM_V] == 448);
    cr_expect_eq(s.bytes[OPTIM_ARRAY_M], 512);
    cr_expect_eq(s.bytes[OPTIM_ARRAY_V], 512);
    cr_expect_eq(s.bytes[OPTIM_ARRAY_8BIT], 2 * 5056 + 320);
    cr_expect_eq(s.bytes[OPTIM_ARRAY_SCALES], 256 + 64);
    cr_expect_eq(s.bytes[OPTIM_ARRAY_BF16], 64);
}

Test(lanes, arrays_that_share_an_end_share_their_memory)
{
    struct shelves s;
    shelves_init(&s);
    s.ends[OPTIM_ARRAY_V] = s.ends[OPTIM_ARRAY_M];
    struct optim_place a = optim_place_in_arrays(&fp32, 100, 1, s.ends);
    cr_expect(a.values[OPTIM_M] == 0 && a.values[OPTIM_V] == 400);
    cr_expect(s.bytes[OPTIM_ARRAY_M] == 800 && s.bytes[OPTIM_ARRAY_V] == 0);
}

Test(lanes, a_record_has_each_lane_followed_by_its_scales)
{
    struct optim_record r = optim_record_of(&bytes, 1000, 64);
    cr_expect(r.place.values[OPTIM_M] == 0 && r.place.scales[OPTIM_M] == 1024);
    cr_expect_eq(r.place.values[OPTIM_V], 1088);
    cr_expect_eq(r.place.scales[OPTIM_V], 2112);
    cr_expect_eq(r.lane[OPTIM_LANES], 2176);
    r = optim_record_of(&bytes, 1000, 4096);
    cr_expect(r.lane[OPTIM_V] == 4096 && r.lane[OPTIM_LANES] == 8192);
    cr_expect_eq(r.place.scales[OPTIM_V], 4096 + 1024);
    r = optim_record_of(&mini, 1000, 4096);
    cr_expect(r.lane[OPTIM_V] == 4096 && r.lane[OPTIM_LANES] == 4096);
}

Test(lanes, pointers_are_those_of_the_place_and_of_the_element)
{
    static char memory[OPTIM_ARRAYS][8192] __attribute__((aligned(64)));
    char *arrays[OPTIM_ARRAYS];
    for (int i = 0; i < OPTIM_ARRAYS; i++)
        arrays[i] = memory[i];
    struct optim_place place = {{4000, 5000}, {600, 700}};
    struct optim_lanes l = optim_lanes_at(&bytes, &place, arrays, 512);
    cr_expect_eq(l.state[OPTIM_V], arrays[OPTIM_ARRAY_8BIT] + 5000 + 512);
    cr_expect_eq(
            (char *)l.scale[OPTIM_V],
            arrays[OPTIM_ARRAY_SCALES] + 700 + 2 * sizeof(float));
    l = optim_lanes_at(&fp32, &place, arrays, 512);
    cr_expect_eq(l.state[OPTIM_M], arrays[OPTIM_ARRAY_M] + 4000 + 2048);
    cr_expect_eq(l.state[OPTIM_V], arrays[OPTIM_ARRAY_V] + 5000 + 2048);
    cr_expect(!l.scale[OPTIM_M] && !l.scale[OPTIM_V]);
    l = optim_lanes_at(&mini, &place, arrays, 0);
    cr_expect(l.state[OPTIM_M] && !l.state[OPTIM_V] && !l.scale[OPTIM_V]);
    l = optim_lanes_at(&lion, &place, arrays, 256);
    cr_expect_eq(l.state[OPTIM_M], arrays[OPTIM_ARRAY_BF16] + 4000 + 512);
}

Test(lanes, copying_and_clearing_touch_only_the_lanes)
{
    enum { COUNT = 700 };
    static unsigned char from[4096], to[4096];
    struct optim_record r = optim_record_of(&bytes, COUNT, 64);
    struct optim_lanes a = optim_lanes_in_record(&bytes, &r, (char *)from);
    struct optim_lanes b = optim_lanes_in_record(&bytes, &r, (char *)to);
    memset(from, 0xa5, sizeof from);
    optim_lanes_copy(&bytes, &b, &a, COUNT, copy_in_cache);
    size_t copied = 0;
    for (size_t i = 0; i < sizeof to; i++)
        copied += to[i] == 0xa5;
    cr_expect_eq(copied, 2 * COUNT + 2 * 3 * sizeof(float));
    optim_lanes_clear(&bytes, &b, COUNT);
    float values[COUNT];
    for (int lane = 0; lane < OPTIM_LANES; lane++) {
        optim_lane_read(
                (enum optim_lane)lane, OPTIM_8BIT, b.state[lane], b.scale[lane],
                COUNT, values);
        for (int i = 0; i < COUNT; i++)
            cr_assert_eq(values[i], 0);
    }
    struct optim_lanes c = optim_lanes_from(&bytes, &b, 512);
    cr_expect_eq(c.state[OPTIM_M], (char *)b.state[OPTIM_M] + 512);
    cr_expect_eq(c.scale[OPTIM_V], b.scale[OPTIM_V] + 2);
}
