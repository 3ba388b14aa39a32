#include "optim/lanes.h"

#include <criterion/criterion.h>

static const struct optim_layout fp32 = {{OPTIM_FP32, OPTIM_FP32}};
static const struct optim_layout bytes = {{OPTIM_8BIT, OPTIM_8BIT}};
static const struct optim_layout mini = {{OPTIM_8BIT, OPTIM_BLOCKS}};
static const struct optim_layout lion = {{OPTIM_BF16, OPTIM_NONE}};

Test(lanes, a_record_has_each_lane_followed_by_its_scales)
{
    struct optim_record r = optim_record_of(&bytes, 1000, 64);
    cr_expect(r.values[OPTIM_M] == 0 && r.scales[OPTIM_M] == 1024);
    cr_expect_eq(r.values[OPTIM_V], 1088);
    cr_expect_eq(r.scales[OPTIM_V], 2112);
    cr_expect_eq(r.lane[OPTIM_LANES], 2176);
    r = optim_record_of(&bytes, 1000, 4096);
    cr_expect(r.lane[OPTIM_V] == 4096 && r.lane[OPTIM_LANES] == 8192);
    cr_expect_eq(r.scales[OPTIM_V], 4096 + 1024);
    r = optim_record_of(&mini, 1000, 4096);
    cr_expect(r.lane[OPTIM_V] == 4096 && r.lane[OPTIM_LANES] == 4096);
}

Test(lanes, pointers_are_those_of_the_record)
{
    static char data[16384] __attribute__((aligned(64)));
    struct optim_record r = optim_record_of(&bytes, 5000, 64);
    struct optim_lanes l = optim_lanes_in_record(&bytes, &r, data);
    cr_expect_eq(l.state[OPTIM_V], data + r.values[OPTIM_V]);
    cr_expect_eq((char *)l.scale[OPTIM_V], data + r.scales[OPTIM_V]);
    l = optim_lanes_in_record(&fp32, &r, data);
    cr_expect(!l.scale[OPTIM_M] && !l.scale[OPTIM_V]);
    l = optim_lanes_in_record(&mini, &r, data);
    cr_expect(l.state[OPTIM_M] && !l.state[OPTIM_V] && !l.scale[OPTIM_V]);
    l = optim_lanes_in_record(&lion, &r, data);
    cr_expect(l.state[OPTIM_M] == data && !l.scale[OPTIM_M]);
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
