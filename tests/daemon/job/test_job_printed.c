/* test_job_printed.c - a job that is told: as a file, as JSON, by its digest.
 */
#include "tests/daemon/job/job_case.h"

#include <criterion/criterion.h>

Test(job_printed, json_says_value_origin_and_availability)
{
    struct job_case c = {0};
    scratch_init(&c.scratch);
    job_case_load(
            &c, "job.toml",
            "[train]\nglobal_batch_size = 12\nmax_steps = 5\n" JOB_REST, NULL,
            0, 3);
    cr_assert_eq(c.status, ZD_OK);
    json_t *json = job_json(c.job);
    json_t *values = json_object_get(json, "values"), *row;
    row = json_object_get(values, "train.max_steps");
    cr_expect_eq(json_integer_value(json_object_get(row, "value")), 5);
    cr_expect(strstr(
            json_string_value(json_object_get(row, "origin")), "job.toml:3"));
    row = json_object_get(values, "train.per_device_train_batch_size");
    cr_expect_eq(json_integer_value(json_object_get(row, "value")), 4);
    row = json_object_get(values, "train.deterministic");
    cr_expect(json_is_false(json_object_get(row, "available")));
    row = json_object_get(values, "optim.weight_decay");
    cr_expect_str_eq(
            json_string_value(json_object_get(row, "origin")), "default");
    json_decref(json);
    job_case_fini(&c);
}

Test(job_printed, only_what_ranks_share_is_in_the_digest)
{
    static const struct {
        const char *text;
        bool differs;
    } cases[] = {
            {"[device]\ncpu_threads = 3\n", false},
            {"[data]\ncache_dir = \"/tmp/x\"\n", false},
            {"[optim]\nlearning_rate = 2.0e-5\n", false},
            {"[optim]\nlearning_rate = 2.1e-5\n", true},
            {"[data]\nshuffle = false\n", true},
            {"[job]\noutput_dir = \"elsewhere\"\n", true},
    };
    struct job_case base, c;
    job_case_init(&base, "");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        job_case_init(&c, cases[i].text);
        cr_expect_eq(
                strcmp(job_options(c.job)->digest,
                       job_options(base.job)->digest) != 0,
                cases[i].differs, "%s", cases[i].text);
        job_case_fini(&c);
    }
    job_case_fini(&base);
}
