/* [optim]: names of optimizers, what follows from them, and what does not fit
 * together. */
#include "tests/daemon/job/job_case.h"

#include <criterion/criterion.h>

struct named {
    const char *name, *canonical; /* NULL: the same */
    enum optim_name optimizer;
    enum optim_state_type state_type;
    bool paged;
};

static const struct named names[] = {
        {"adamw", NULL, OPTIM_ADAMW, OPTIM_STATE_FP32, false},
        {"adamw_torch", "adamw", OPTIM_ADAMW, OPTIM_STATE_FP32, false},
        {"AdamW_Torch_Fused", "adamw", OPTIM_ADAMW, OPTIM_STATE_FP32, false},
        {"adamw_hf", "adamw", OPTIM_ADAMW, OPTIM_STATE_FP32, false},
        {"adamw_8bit", NULL, OPTIM_ADAMW, OPTIM_STATE_8BIT, false},
        {"adamw_bnb_8bit", "adamw_8bit", OPTIM_ADAMW, OPTIM_STATE_8BIT, false},
        {"paged_adamw", "paged_adamw_32bit", OPTIM_ADAMW, OPTIM_STATE_FP32,
         true},
        {"paged_adamw_32bit", NULL, OPTIM_ADAMW, OPTIM_STATE_FP32, true},
        {"paged_adamw_8bit", NULL, OPTIM_ADAMW, OPTIM_STATE_8BIT, true},
        {"adam_mini", NULL, OPTIM_ADAM_MINI, OPTIM_STATE_FP32, false},
        {"adam_mini_8bit", NULL, OPTIM_ADAM_MINI, OPTIM_STATE_8BIT, false},
        {"lion", NULL, OPTIM_LION, OPTIM_STATE_FP32, false},
        {"lion_32bit", "lion", OPTIM_LION, OPTIM_STATE_FP32, false},
        {"lion_8bit", NULL, OPTIM_LION, OPTIM_STATE_8BIT, false},
        {"paged_lion_32bit", NULL, OPTIM_LION, OPTIM_STATE_FP32, true},
        {"paged_lion_8bit", NULL, OPTIM_LION, OPTIM_STATE_8BIT, true},
        {"sgd", NULL, OPTIM_SGD, OPTIM_STATE_FP32, false},
};

/* The line of a key in the printed job, without its line end. The caller frees
 * it. */
static char *printed_line(const struct job *job, const char *key)
{
    char *text = NULL, *line = NULL, begin[64];
    size_t bytes;
    FILE *stream = open_memstream(&text, &bytes);
    job_print(job, stream);
    fclose(stream);
    char *section = strstr(text, "\n[optim]\n");
    for (int comment = 0; comment < 2 && section && !line; comment++) {
        snprintf(begin, sizeof begin, "\n%s%s ", comment ? "# " : "", key);
        char *at = strstr(section, begin);
        if (at)
            line = strndup(at + 1, strcspn(at + 1, "\n"));
    }
    free(text);
    return line ? line : strdup("");
}

static void expect_line(
        const struct job *job, const char *key, const char *what)
{
    char *line = printed_line(job, key);
    cr_expect(strstr(line, what), "`%s` is not in `%s`", what, line);
    free(line);
}

Test(optim_names, each_is_an_optimizer_and_its_states)
{
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const struct named *n = &names[i];
        char text[128], value[128];
        struct job_case c;
        snprintf(text, sizeof text, "[optim]\nname = \"%s\"\n", n->name);
        job_case_init(&c, text);
        const struct optim_options *o = &job_options(c.job)->optim;
        cr_expect_eq(c.status, ZD_OK, "%s", n->name);
        cr_expect(
                o->name == n->optimizer && o->state_type == n->state_type &&
                        o->paged == n->paged,
                "%s", n->name);
        snprintf(
                value, sizeof value, "name = \"%s\"",
                n->canonical ? n->canonical : n->name);
        expect_line(c.job, "name", value);
        job_case_fini(&c);
    }
}

Test(optim_names, the_printed_job_of_each_reads_back_as_itself)
{
    static const char *const more[] = {
            "", "learning_rate = 0.5\n", "stable_embedding = false\n"};
    for (size_t i = 0; i < 3 * sizeof names / sizeof names[0]; i++) {
        char head[192], *text = NULL;
        size_t bytes;
        struct job_case c, again = {0};
        snprintf(
                head, sizeof head, "[optim]\nname = \"%s\"\n%s",
                names[i / 3].name, more[i % 3]);
        job_case_init(&c, head);
        FILE *stream = open_memstream(&text, &bytes);
        job_print(c.job, stream);
        fclose(stream);
        scratch_init(&again.scratch);
        job_case_load(&again, "job.toml", text, NULL, 0, 0);
        cr_expect_eq(again.status, ZD_OK, "%s", head);
        cr_expect_str_eq(
                job_options(again.job)->digest, job_options(c.job)->digest);
        free(text);
        job_case_fini(&again);
        job_case_fini(&c);
    }
}

Test(optim_names, values_say_where_they_come_from)
{
    struct job_case c;
    job_case_init(&c, "[optim]\nname = \"lion_8bit\"\n");
    cr_expect_eq(job_options(c.job)->optim.adam_beta1, 0.9);
    cr_expect_eq(job_options(c.job)->optim.adam_beta2, 0.99);
    expect_line(c.job, "name", "job.toml:2");
    expect_line(c.job, "state_dtype", "\"8bit\"");
    expect_line(c.job, "state_dtype", "# from optim.name");
    expect_line(c.job, "adam_beta1", "# default");
    expect_line(c.job, "adam_beta2", "# from optim.name");
    expect_line(c.job, "adam_epsilon", "not used by lion");
    expect_line(c.job, "momentum", "not used by lion");
    job_case_fini(&c);
    job_case_init(&c, "[optim]\nname = \"lion\"\nbetas = [0.95, 0.98]\n");
    cr_expect_eq(job_options(c.job)->optim.adam_beta2, 0.98);
    job_case_fini(&c);
    job_case_init(&c, "[optim]\nname = \"sgd\"\nmomentum = 0.9\n");
    cr_expect_eq(job_options(c.job)->optim.momentum, 0.9);
    expect_line(c.job, "momentum", "job.toml:3");
    expect_line(c.job, "adam_beta2", "not used by sgd");
    job_case_fini(&c);
    job_case_init(&c, "");
    cr_expect_eq(job_options(c.job)->optim.adam_beta2, 0.95);
    cr_expect_eq(job_options(c.job)->optim.momentum, 0);
    expect_line(c.job, "state_dtype", "# default");
    job_case_fini(&c);
}

Test(optim_names, bf16_states_and_no_masters)
{
    /* in either order of the keys */
    static const char *const texts[] = {
            "[optim]\nname = \"adamw\"\nstate_dtype = \"bf16\"\n",
            "[optim]\nstate_dtype = \"BFloat16\"\nname = \"adamw_torch\"\n",
            "[optim]\nstate_dtype = \"bf16\"\n"};
    struct job_case c;
    for (int i = 0; i < 3; i++) {
        job_case_init(&c, texts[i]);
        cr_expect_eq(c.status, ZD_OK, "%s", texts[i]);
        cr_expect_eq(job_options(c.job)->optim.state_type, OPTIM_STATE_BF16);
        expect_line(c.job, "name", "\"adamw\"");
        expect_line(c.job, "state_dtype", "\"bf16\"");
        job_case_fini(&c);
    }
    job_case_init(&c, "[optim]\nmaster = \"none\"\n");
    cr_expect_eq(c.status, ZD_OK, "the compute type is bf16");
    cr_expect_eq(job_options(c.job)->optim.master, OPTIM_MASTER_NONE);
    job_case_fini(&c);
}

/* --- what does not fit together ------------------------------------------- */

struct wrong {
    const char *text;
    int line;
    const char *says, *help; /* NULL: no help */
};

static const struct wrong wrongs[] = {
        {"name = \"adamw_8bit\"\nstate_dtype = \"fp32\"\n", 3, "8-bit",
         "remove one"},
        {"state_dtype = \"bf16\"\nname = \"paged_adamw_8bit\"\n", 2, "8-bit",
         "remove one"},
        {"state_dtype = \"8bit\"\n", 2, "8-bit", "\"adamw_8bit\""},
        {"name = \"paged_lion_32bit\"\nstate_dtype = \"8bit\"\n", 3, "8-bit",
         "\"paged_lion_8bit\""},
        {"name = \"sgd\"\nstate_dtype = \"8bit\"\n", 3, "8-bit", NULL},
        {"name = \"lion\"\nstate_dtype = \"bf16\"\n", 3, "adamw", NULL},
        {"name = \"adam_mini\"\nstate_dtype = \"bf16\"\n", 3, "adamw", NULL},
        {"name = \"sgd\"\nstate_dtype = \"bf16\"\n", 3, "adamw", NULL},
        {"name = \"paged_adamw_32bit\"\nstate_dtype = \"bf16\"\n", 3, "adamw",
         NULL},
        {"momentum = 0.9\n", 2, "\"adamw\"", "remove"},
        {"name = \"lion_8bit\"\nmomentum = 0.9\n", 3, "\"lion\"", "remove"},
        {"name = \"sgd\"\nadam_beta1 = 0.9\n", 3, "adam_beta1", "remove"},
        {"name = \"sgd\"\nadam_beta2 = 0.9\n", 3, "adam_beta2", "remove"},
        {"name = \"sgd\"\nadam_epsilon = 1e-6\n", 3, "adam_epsilon", "remove"},
        {"name = \"lion\"\nadam_epsilon = 1e-6\n", 3, "adam_epsilon", "remove"},
        {"master = \"none\"\n[train]\ndtype = \"fp32\"\n", 2, "fp32",
         "already"},
};

Test(optim_names, contradictions_are_told)
{
    for (size_t i = 0; i < sizeof wrongs / sizeof wrongs[0]; i++) {
        const struct wrong *w = &wrongs[i];
        char text[256];
        struct job_case c;
        snprintf(text, sizeof text, "[optim]\n%s", w->text);
        job_case_init(&c, text);
        cr_expect_eq(c.status, ZD_ERR_CONFIG, "%s", text);
        cr_assert_eq(c.problems->count, 1, "%s", text);
        const struct problem *got = &c.problems->items[0];
        cr_expect_str_eq(got->code, "E0213", "%s", text);
        cr_expect_eq(got->place.line, w->line, "%s", text);
        cr_expect(strstr(got->what, w->says), "%s: %s", text, got->what);
        cr_expect(
                w->help ? got->help && strstr(got->help, w->help) : !got->help,
                "%s: %s", text, got->help);
        job_case_fini(&c);
    }
}
