/* test_job_origins.c - where a value comes from: the file, a base that it
 * extends, the command line. */
#include "tests/daemon/job/job_case.h"

#include <criterion/criterion.h>

Test(job_origins, overrides_win_and_are_told_by_their_name)
{
    static const struct {
        struct job_override set;
        enum zd_status status;
        const char *where;
    } cases[] = {
            {{"train.max_steps", "7", "--set"}, ZD_OK, NULL},
            {{"optim.lr", "1e-4", "--set"}, ZD_OK, NULL},
            {{"job.run_name", "two words", "--set"}, ZD_OK, NULL},
            {{"run.resume", "never", "--resume", true}, ZD_OK, NULL},
            {{"model.config.vocab_size", "512", "--set"}, ZD_OK, NULL},
            {{"train.max_steps", "x", "--set"},
             ZD_ERR_CONFIG,
             "--set train.max_steps=x"},
            {{"train.max_step", "7", "--set"},
             ZD_ERR_CONFIG,
             "--set train.max_step=7"},
            {{"max_steps", "7", "--set"}, ZD_ERR_CONFIG, "--set max_steps=7"},
            {{"", "7", "--set"}, ZD_ERR_CONFIG, "--set =7"},
            {{"...........", "7", "--set"},
             ZD_ERR_CONFIG,
             "--set ...........=7"},
            {{"train.max_steps", "7\nx = 1", "--set"},
             ZD_ERR_CONFIG,
             "--set train.max_steps=7\nx = 1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct job_case c = {0};
        scratch_init(&c.scratch);
        job_case_load(
                &c, "job.toml", "[train]\nmax_steps = 3\n" JOB_REST,
                &cases[i].set, 1, 0);
        cr_expect_eq(c.status, cases[i].status, "case %zu", i);
        cr_expect_eq(
                c.problems->count, cases[i].status != ZD_OK, "case %zu", i);
        if (cases[i].where && c.problems->count)
            cr_expect_str_eq(
                    c.problems->items[0].place.source->name, cases[i].where);
        if (i == 0)
            cr_expect_eq(job_options(c.job)->train.max_steps, 7);
        if (i == 2)
            cr_expect_str_eq(job_options(c.job)->job.run_name, "two words");
        if (i == 3)
            cr_expect_eq(job_options(c.job)->run.resume, RESUME_NEVER);
        job_case_fini(&c);
    }
}

static void put(struct job_case *c, const char *name, const char *text)
{
    scratch_file(&c->scratch, name, text, strlen(text));
}

Test(job_origins, a_base_is_overridden_key_by_key)
{
    struct job_case c = {0};
    scratch_init(&c.scratch);
    cr_assert_eq(fs_make_dirs(scratch_path(&c.scratch, "sub")), ZD_OK);
    put(&c, "sub/base.toml",
        "extends = \"root.toml\"\n[optim]\nlr = 1\nweight_decay = 0.5\n"
        "[[data.train]]\npath = \"one\"\n[[data.train]]\npath = \"two\"\n");
    put(&c, "sub/root.toml", "[zero]\nstage = 1\n");
    job_case_load(
            &c, "job.toml",
            "extends = \"sub/base.toml\"\n[optim]\nlearning_rate = "
            "2\n" JOB_REST,
            NULL, 0, 0);
    cr_expect_eq(c.status, ZD_OK);
    const struct train_job *job = job_options(c.job);
    cr_expect_eq(job->optim.learning_rate, 2);
    cr_expect_eq(job->optim.weight_decay, 0.5);
    cr_expect_eq(job->zero.stage, 1);
    cr_expect_eq(job->data.train_count, 1);
    job_case_fini(&c);
}

Test(job_origins, an_adapter_or_a_pattern_replaces_that_of_the_base)
{
    struct job_case c = {0};
    scratch_init(&c.scratch);
    put(&c, "base.toml",
        "[lora]\nenabled = true\nr = 8\nlora_dropout = 0.5\n"
        "quantize_base = \"nf4\"\nrank_pattern = { q_proj = 4 }\n");
    job_case_load(
            &c, "job.toml",
            "extends = \"base.toml\"\n[lora]\nrank_pattern = { v_proj = 2 "
            "}\n" JOB_REST,
            NULL, 0, 0);
    const json_t *given = job_options(c.job)->lora.given;
    const json_t *pattern = json_object_get(given, "rank_pattern");
    cr_expect_eq(json_object_size(pattern), 1);
    cr_expect(json_object_get(pattern, "v_proj"));
    cr_expect(json_object_get(given, "r"));
    job_free(c.job);
    job_case_load(
            &c, "job.toml",
            "extends = \"base.toml\"\n[lora]\npath = \"other\"\n" JOB_REST,
            NULL, 0, 0);
    cr_expect_eq(json_object_size(job_options(c.job)->lora.given), 0);
    cr_expect(job_options(c.job)->lora.gives_quantize_base);
    job_case_fini(&c);
}

Test(job_origins, a_mistake_in_a_base_is_told_there)
{
    struct job_case c = {0};
    scratch_init(&c.scratch);
    put(&c, "base.toml", "\n[zero]\nstage = 9\n");
    job_case_load(
            &c, "job.toml", "extends = \"base.toml\"\n" JOB_REST, NULL, 0, 0);
    cr_assert_eq(c.problems->count, 1);
    cr_expect(strstr(c.problems->items[0].place.source->name, "base.toml"));
    cr_expect_eq(c.problems->items[0].place.line, 3);
    job_case_fini(&c);
}

Test(job_origins, a_circle_is_78_and_a_missing_base_66)
{
    struct job_case c = {0};
    scratch_init(&c.scratch);
    put(&c, "a.toml", "extends = \"./job.toml\"\n");
    job_case_load(
            &c, "job.toml", "extends = \"a.toml\"\n" JOB_REST, NULL, 0, 0);
    cr_expect_eq(c.status, ZD_ERR_CONFIG);
    cr_expect_eq(c.problems->count, 1);
    job_free(c.job);
    job_case_load(
            &c, "job.toml", "extends = \"job.toml\"\n" JOB_REST, NULL, 0, 0);
    cr_expect_eq(c.status, ZD_ERR_CONFIG);
    cr_expect_eq(c.problems->count, 1);
    job_free(c.job);
    job_case_load(&c, "job.toml", "extends = \"none.toml\"\n", NULL, 0, 0);
    cr_expect_eq(c.status, ZD_ERR_NO_INPUT);
    cr_expect_eq(c.problems->count, 1);
    job_case_fini(&c);
}
