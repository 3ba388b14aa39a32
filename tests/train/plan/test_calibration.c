/* test_calibration.c - a calibration is kept and found again; a file of another
 * machine or version is not used. */
#include "train/plan/machine.h"

#include "base/file/fs.h"
#include "base/must.h"
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static char folder[PATH_MAX];

static void begin(void)
{
    ZD_PRINT(folder, "%s", "/tmp/zerod-calibration-XXXXXX");
    cr_assert(mkdtemp(folder));
    setenv("XDG_CACHE_HOME", folder, 1);
}

static void end(void)
{
    fs_remove_tree(folder);
}

TestSuite(calibration, .init = begin, .fini = end);

static struct plan_calibration made(int ranks, double update)
{
    struct plan_calibration made = {
            .ranks = ranks,
            .threads = 12,
            .backend = DEVICE_CPU,
            .machine = *plan_machine_find("cpu"),
            .what = "of a test"};
    made.machine.update[0] = update;
    made.machine.products[0] = update / 3;
    made.machine.wire_is_measured = ranks > 1;
    return made;
}

static void keep(const struct plan_calibration *made, char path[PATH_MAX])
{
    cr_assert_eq(
            calibration_keep(made, path), ZD_OK, "%s", zd_error_get()->what);
}

Test(calibration, the_last_of_a_backend_is_read_back_exactly)
{
    char path[PATH_MAX], why[400];
    struct plan_calibration one = made(1, 1.1e9), two = made(2, 1.2e9), found;
    cr_expect_not(calibration_find(DEVICE_CPU, &found, why));
    cr_expect_str_empty(why); /* no file is nothing to tell */
    keep(&one, path);
    keep(&two, path);
    cr_assert(calibration_find(DEVICE_CPU, &found, why));
    cr_expect_eq(found.ranks, 2);
    cr_expect_eq(found.threads, 12);
    cr_expect_eq(found.machine.update[0], 1.2e9);
    cr_expect_eq(found.machine.products[0], 1.2e9 / 3);
    cr_expect(found.machine.wire_is_measured);
    cr_expect_str_eq(found.what, "of a test");
    cr_expect_not(calibration_find(DEVICE_CUDA, &found, why));
    cr_expect_str_empty(why);
    const struct plan_machine *machine =
            calibration_find(DEVICE_CPU, &found, why);
    cr_assert(machine);
    cr_expect(machine->is_measured && machine->shares_cores);
    cr_expect_str_eq(machine->name, "here");
}

static void spoil(const char *path, const char *from, const char *to)
{
    ZD_FREED char *text = NULL;
    size_t bytes;
    cr_assert_eq(fs_read_file(path, 1 << 20, &text, &bytes), ZD_OK);
    char *at = strstr(text, from);
    cr_assert(at, "no %s in the file", from);
    memcpy(at, to, strlen(to));
    cr_assert_eq(fs_write_file(path, text, bytes), ZD_OK);
}

/* What a time is divided by is never 0, and no number is beyond all machines.
 */
Test(calibration, a_file_of_elsewhere_or_broken_is_named_and_replaced)
{
#define NUMBER(field, value)                                                   \
    {                                                                          \
        NULL, NULL, "broken", offsetof(struct plan_calibration, field), value  \
    }
    static const struct {
        const char *from, *to, *why;
        size_t offset;
        double value;
    } cases[] = {
            {"\"cpus\": ", "\"cpus\": 9", "of another machine", 0, 0},
            {"\"program\": \"", "\"program\": \"9", "of another version", 0, 0},
            {"\"format\": 11", "\"format\": 12", "of another build", 0, 0},
            {"\"threads\"", "\"treads\"", "broken", 0, 0},
            {"{", "[", "broken", 0, 0},
            NUMBER(machine.memory, 0),
            NUMBER(machine.inside, 0),
            NUMBER(machine.between, 0),
            NUMBER(machine.disk, 0),
            NUMBER(machine.latency, 1e308),
            NUMBER(machine.products[1], 0)};
#undef NUMBER
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char path[PATH_MAX], why[400];
        struct plan_calibration sound = made(1, 1e9), table = sound, found;
        if (!cases[i].from)
            memcpy((char *)&table + cases[i].offset, &cases[i].value,
                   sizeof cases[i].value);
        fs_remove_tree(folder);
        keep(&table, path);
        if (cases[i].from)
            spoil(path, cases[i].from, cases[i].to);
        cr_expect_not(calibration_find(DEVICE_CPU, &found, why), "%zu", i);
        cr_expect(strstr(why, cases[i].why), "%zu: %s", i, why);
        cr_expect(strstr(why, path), "the file is named: %s", why);
        cr_expect_eq(zd_error_get()->status, ZD_OK);
        keep(&sound, path);
        cr_expect(calibration_find(DEVICE_CPU, &found, why));
    }
}

Test(calibration, a_short_one_measures_everything)
{
    struct comm *comm;
    struct plan_calibration measured;
    struct comm_options options = {0};
    cr_assert_eq(comm_local_create(1, &options, &comm), ZD_OK);
    cr_assert_eq(
            calibration_measure(comm, 0.2, 1, &measured), ZD_OK, "%s",
            zd_error_get()->what);
    comm_destroy(comm);
    for (int type = 0; type < 2; type++) {
        cr_expect_gt(measured.machine.products[type], 0);
        cr_expect_geq(measured.machine.half[type], 0);
    }
    for (int kind = 0; kind < PLAN_UPDATES; kind++) {
        cr_expect_gt(measured.machine.update[kind], 0);
        cr_expect_gt(measured.machine.host[kind], 0);
    }
    for (int mode = 0; mode < 2; mode++)
        cr_expect_gt(measured.machine.fp8[mode], 0);
    cr_expect_gt(measured.machine.disk, 0);
    cr_expect_gt(measured.machine.memory, 0);
    cr_expect_not(measured.machine.wire_is_measured);
}
