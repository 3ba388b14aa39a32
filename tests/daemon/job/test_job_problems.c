/* test_job_problems.c - each mistake in a job file is told, with its place. */
#include "tests/daemon/job/job_case.h"

#include <criterion/criterion.h>

static bool says(const struct problem *problem, const char *text)
{
    return strstr(problem->what, text) ||
           (problem->label && strstr(problem->label, text)) ||
           (problem->help && strstr(problem->help, text));
}

/* To be freed. */
static char *printed(const struct problems *problems)
{
    char *text = NULL;
    size_t bytes;
    FILE *stream = open_memstream(&text, &bytes);
    problems_print(problems, stream);
    fclose(stream);
    return text;
}

Test(job_problems, all_mistakes_are_told_in_one_run_in_their_order)
{
    struct job_case c;
    job_case_init(
            &c, "[train]\nmax_steps = \"x\"\n[optim]\nlearning_rat = 1\n"
                "adam_beta1 = 2\n[zero]\nstage = 7\n[nope]\n");
    cr_assert_eq(c.problems->count, 5);
    for (int i = 1; i < 5; i++)
        cr_expect(
                c.problems->items[i].place.line >
                c.problems->items[i - 1].place.line);
    char *text = printed(c.problems);
    int errors = 0;
    for (const char *at = text; at; at = strchr(at, '\n')) {
        at += *at == '\n';
        errors += strncmp(at, "error", 5) == 0;
    }
    cr_expect_eq(errors, 5);
    cr_expect(strstr(text, "job.toml:4:1\n"));
    cr_expect(strstr(text, "4 | learning_rat = 1\n"));
    cr_expect(strstr(text, "| ^^^^^^^^^^^^ did you mean `learning_rate`?\n"));
    free(text);
    job_case_fini(&c);
}

Test(job_problems, control_characters_do_not_reach_the_terminal)
{
    struct job_case c;
    job_case_init(&c, "[train]\n\"\\u001b[31mred\" = 1\n");
    char *text = printed(c.problems);
    cr_expect_null(strchr(text, 0x1b));
    free(text);
    job_case_fini(&c);
}

Test(job_problems, a_key_of_the_model_is_found_in_its_table)
{
    struct job_case c;
    job_case_init_alone(
            &c, "[model.config]\nmodel_type = \"llama\"\nhidden_size = 64\n"
                "num_hidden_layers = 2\nnum_attention_heads = 4\n"
                "intermediate_size = 128\nvocab_size = -3\n"
                "[[data.train]]\npath = \"/dev/null\"\n");
    cr_expect_eq(c.status, ZD_ERR_CONFIG);
    cr_assert_eq(c.problems->count, 1);
    cr_expect_eq(
            c.problems->items[0].place.line, 7, "%s",
            c.problems->items[0].what);
    job_case_fini(&c);
}

/* Whichever of the keys it is that is there. */
Test(job_problems, the_width_of_a_head_names_its_key)
{
    static const struct {
        const char *keys, *says;
        int line;
    } rows[] = {
            {"head_dim = 7\nhidden_size = 64\nnum_attention_heads = 4\n",
             "`head_dim` is 7", 3},
            {"num_attention_heads = 4\nhead_dim = 1024\nhidden_size = 64\n",
             "`head_dim` must be an integer from 1 to 512", 4},
            {"hidden_size = 28\nnum_attention_heads = 4\nnum_hidden_layers = "
             "2\n",
             "`hidden_size` / `num_attention_heads` is 7", 4},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct job_case c;
        char *text = NULL;
        cr_assert(
                asprintf(
                        &text,
                        "[model.config]\nmodel_type = \"llama\"\n%s"
                        "intermediate_size = 128\nvocab_size = 300\n"
                        "[[data.train]]\npath = \"/dev/null\"\n",
                        rows[i].keys) > 0);
        job_case_init_alone(&c, text);
        cr_expect_eq(c.status, ZD_ERR_CONFIG);
        cr_assert_eq(c.problems->count, 1);
        cr_expect(
                says(&c.problems->items[0], rows[i].says), "%s",
                c.problems->items[0].what);
        cr_expect_eq(
                c.problems->items[0].place.line, rows[i].line, "told in %d: %s",
                c.problems->items[0].place.line, c.problems->items[0].what);
        job_case_fini(&c);
        free(text);
    }
}

/* It did nothing: what it names was never read. */
Test(job_problems, extends_is_no_override)
{
    static const struct job_override set = {
            "extends", "nowhere.toml", "--set", false};
    struct job_case c = {0};
    scratch_init(&c.scratch);
    job_case_load(&c, "job.toml", JOB_REST, &set, 1, 0);
    cr_expect_eq(c.status, ZD_ERR_CONFIG);
    cr_assert_eq(c.problems->count, 1);
    cr_expect_str_eq(c.problems->items[0].code, "E0203");
    cr_expect(says(&c.problems->items[0], "`extends`"));
    job_case_fini(&c);
}

Test(job_problems, what_is_missing_is_told)
{
    struct job_case c;
    job_case_init_alone(&c, "");
    cr_expect_eq(c.status, ZD_ERR_CONFIG);
    cr_assert_eq(c.problems->count, 2);
    cr_expect_str_eq(c.problems->items[0].code, "E0210");
    cr_expect_str_eq(c.problems->items[1].code, "E0210");
    job_case_fini(&c);
}

Test(job_problems, a_file_over_a_mebibyte_or_missing_is_refused)
{
    struct job_case c;
    size_t bytes = TOML_MAX_BYTES + 1;
    char *text = malloc(bytes + 1);
    memset(text, '\n', bytes);
    text[bytes] = '\0';
    job_case_init_alone(&c, text);
    cr_expect_eq(c.status, ZD_ERR_CONFIG);
    cr_expect_eq(c.problems->count, 1);
    job_free(c.job);
    struct job_request request = {.path = "/nonexistent/job.toml"};
    cr_expect_eq(job_load(&request, &c.job), ZD_ERR_NO_INPUT);
    cr_expect_eq(job_problems(c.job)->count, 1);
    job_case_fini(&c);
    free(text);
}

Test(job_problems, a_batch_that_does_not_divide_names_the_nearest)
{
    struct job_case c = {0};
    scratch_init(&c.scratch);
    job_case_load(
            &c, "job.toml", "[train]\nglobal_batch_size = 8\n" JOB_REST, NULL,
            0, 3);
    cr_expect_eq(c.status, ZD_ERR_CONFIG);
    cr_assert_eq(c.problems->count, 1);
    cr_expect_eq(c.problems->items[0].place.line, 2);
    cr_expect(says(&c.problems->items[0], "9"));
    job_case_fini(&c);
}
