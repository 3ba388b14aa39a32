/* test_job_printed.c - a job that is told: as a file, as JSON, by its digest.
 */
#include "tests/daemon/job/job_case.h"

#include <criterion/criterion.h>

static void check_printed(const char *job_text)
{
    struct job_case c, again = {0};
    char *text = NULL;
    size_t bytes;
    job_case_init(&c, job_text);
    cr_assert_eq(c.status, ZD_OK);
    FILE *stream = open_memstream(&text, &bytes);
    job_print(c.job, stream);
    fclose(stream);
    scratch_init(&again.scratch);
    job_case_load(&again, "other.toml", text, NULL, 0, 0);
    cr_expect_eq(again.status, ZD_OK);
    if (again.problems->count)
        problems_print(again.problems, stderr);
    cr_expect_str_eq(
            job_options(again.job)->digest, job_options(c.job)->digest);
    free(text);
    job_case_fini(&again);
    job_case_fini(&c);
}

Test(job_printed, the_printed_job_reads_back_as_itself)
{
    check_printed("[job]\nname = \"x\"\nrun_name = \"say \\\"hi\\\"\\n\"\n"
                  "[optim]\nlearning_rate = 3.3e-5\n[sample]\nprompts = "
                  "[\"\\u00e9\"]\n"
                  "[device]\nmemory_limit = \"90%\"\n");
    check_printed(
            "[train]\ndtype = \"fp16\"\n[train.fp16]\nloss_scale = 0.5\n");
}

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
