/* test_job_problems.c - each mistake in a job file is told, with its place. */
#include "tests/daemon/job/job_case.h"

#include <criterion/criterion.h>

struct bad_case {
    const char *text;
    const char *code;
    int line, column; /* column 0: any, the library says */
    const char *says; /* in the sentence, the label or the help */
};

static const struct bad_case bad_cases[] = {
        /* not TOML at all */
        {"[train]\nmax_steps = \n", "E0201", 2, 0, "TOML"},
        {"[train]\nmax_steps = 1\nmax_steps = 2\n", "E0201", 3, 0, "TOML"},
        /* unknown sections and keys */
        {"[trian]\nmax_steps = 1\n", "E0202", 1, 2, "[train]"},
        {"[qqqqqq]\n", "E0202", 1, 2, "[qqqqqq]"},
        {"[optim]\nlearning_rat = 1\n", "E0203", 2, 1, "`learning_rate`"},
        {"[control]\nhttp = \":80\"\n", "E0203", 2, 1, "http"},
        {"[train]\n\"max\\nsteps\" = 1\n", "E0203", 2, 1, "max"},
        {"[train]\noverlap_comm = true\n", "E0204", 2, 1, "[zero]"},
        {"[train]\nlr = 1\n", "E0204", 2, 1, "[optim]"},
        {"learning_rate = 1\n", "E0204", 1, 1, "[optim]"},
        {"[data]\nmessages_field = \"m\"\n", "E0204", 2, 1, "[data.train]"},
        /* types */
        {"[train]\nmax_steps = \"10\"\n", "E0205", 2, 13, "an integer"},
        {"[train]\nmax_steps = 1.5\n", "E0205", 2, 13, "an integer"},
        {"[data]\npacking = 1\n", "E0205", 2, 11, "true | false"},
        {"[optim]\nlearning_rate = true\n", "E0205", 2, 17, "a number"},
        {"[job]\nrun_name = 1979-05-27\n", "E0205", 2, 12, "a string"},
        {"[sample]\nprompts = \"x\"\n", "E0205", 2, 11, "array"},
        {"[sample]\nprompts = [\"x\", 1]\n", "E0205", 2, 17, "array"},
        {"train = 1\n", "E0205", 1, 9, "section"},
        {"[optim]\nbetas = [0.9]\n", "E0205", 2, 9, "two numbers"},
        {"[checkpoint]\nsave_every = 1800\n", "E0205", 2, 14, "30m"},
        /* ranges */
        {"[zero]\nstage = 4\n", "E0206", 2, 9, "from 0 to 3"},
        {"[zero]\nstage = -1\n", "E0206", 2, 9, "from 0 to 3"},
        {"[optim]\nlearning_rate = 1e7\n", "E0206", 2, 17, "to 1000000"},
        {"[train]\nmax_steps = 0\n", "E0206", 2, 13, "not 0"},
        {"[train]\nnum_train_epochs = 0\n", "E0206", 2, 20, "above 0"},
        {"[optim]\nlearning_rate = nan\n", "E0206", 2, 17, "number"},
        {"[optim]\nlearning_rate = inf\n", "E0206", 2, 17, "number"},
        {"[optim]\nadam_beta2 = 1\n", "E0206", 2, 14, "below 1"},
        {"[optim]\nwarmup_steps = 1.5\n", "E0206", 2, 16, "fraction"},
        {"[optim]\nwarmup_ratio = 1\n", "E0206", 2, 16, "fraction"},
        {"[data]\ncutoff_len = 0\n", "E0206", 2, 14, "integer"},
        {"[data]\ncutoff_len = 5e18\n", "E0205", 2, 14, "integer"},
        {"[job]\nname = \"a/b\"\n", "E0206", 2, 8, "letters"},
        {"[job]\nname = \"..\"\n", "E0206", 2, 8, "letters"},
        {"[device]\nmemory_limit = \"101%\"\n", "E0206", 2, 16, "90%"},
        {"[train]\ngradient_checkpointing = \"every:0\"\n", "E0206", 2, 26,
         "every:N"},
        {"[train]\ndtype = \"fp16\"\n[train.fp16]\nloss_scale = -1\n", "E0206",
         4, 14, "at least 0"},
        {"[train]\ndtype = \"fp16\"\n[train.fp16]\ninitial_scale_power = 33\n",
         "E0206", 4, 23, "from 0 to 32"},
        {"[train]\ndtype = \"fp16\"\n[train.fp16]\nloss_scale_window = 0\n",
         "E0206", 4, 21, "at least 1"},
        {"[train]\ndtype = \"fp16\"\n[train.fp16]\nhysteresis = 0\n", "E0206",
         4, 14, "from 1"},
        {"[train]\ndtype = \"fp16\"\n[train.fp16]\nmin_loss_scale = 0\n",
         "E0206", 4, 18, "above 0"},
        /* words */
        {"[train]\ndtype = \"int8\"\n", "E0207", 2, 9, "bf16 | fp32 | fp16"},
        {"[device]\nbackend = \"gpu\"\n", "E0207", 2, 11, "\"cuda\"?"},
        {"[checkpoint]\nsave_strategy = \"yes\"\n", "E0207", 2, 17, "steps"},
        {"[device]\nmemory_limit = \"many\"\n", "E0207", 2, 16, "12GiB"},
        {"[checkpoint]\nsave_every = \"30\"\n", "E0207", 2, 14, "1h30m"},
        {"[checkpoint]\nsave_every = \"1m2h\"\n", "E0207", 2, 14, "1h30m"},
        {"[run]\ndeadline = 3600\n", "E0205", 2, 12, "23h50m"},
        {"[run]\ndeadline = 2026-11-22\n", "E0205", 2, 12, "23h50m"},
        {"[run]\ndeadline = \"soon\"\n", "E0207", 2, 12, "23h50m"},
        {"[run]\ndeadline = \"2026-11-22T08:00:00\"\n", "E0207", 2, 12,
         "08:00:00Z"},
        {"[run]\ndeadline = 2026-11-22T08:00:00\n", "E0207", 2, 12,
         "08:00:00Z"},
        {"[run]\ndeadline = \"0s\"\n", "E0206", 2, 12, "23h50m"},
        {"[run]\ndeadline_margin = \"none\"\n", "E0207", 2, 19, "auto"},
        {"[run]\ndeadline_margin = \"0s\"\n", "E0206", 2, 19, "auto"},
        /* not in this version */
        {"[data]\nchat_template = \"mistral\"\n", "E0208", 2, 17, "chatml"},
        {"[train]\ndeterministic = true\n", "E0208", 2, 1, "switch it off"},
        {"[report]\nmetrics_jsonl = true\n", "E0208", 2, 1, "not available"},
        {"[guard]\nloss_spike_zscore = 3.0\n", "E0208", 2, 1, "not available"},
        /* control */
        {"[control]\nsocket = \"off\"\n", "E0207", 2, 10, "none"},
        {"[control]\nsocket = \"\"\n", "E0207", 2, 10, "none"},
        {"[control]\nsocket = true\n", "E0205", 2, 10, "none"},
        {"[control]\nsocket = \"/" SIXTEEN SIXTEEN SIXTEEN SIXTEEN SIXTEEN
                 SIXTEEN "12345678901\"\n",
         "E0206", 2, 1, "107"},
        {"[control]\nmetrics_listen = \"9479\"\n", "E0206", 2, 1, "HOST:PORT"},
        {"[control]\nmetrics_listen = \"a:0\"\n", "E0206", 2, 1, "HOST:PORT"},
        {"[control]\nmetrics_listen = \"a:65536\"\n", "E0206", 2, 1,
         "HOST:PORT"},
        {"[control]\nmetrics_listen = \"::1:80\"\n", "E0206", 2, 1,
         "HOST:PORT"},
        {"[control]\nmetrics_listen = \"http://a:80\"\n", "E0206", 2, 1,
         "HOST:PORT"},
        {"[control]\nstatus_gid = -2\n", "E0206", 2, 14, "at least -1"},
        {"[control]\nstatus_gid = 2147480001\n", "E0206", 2, 1,
         "no such group"},
        {"[control]\nrelease_to = \"auto\"\n", "E0208", 2, 1,
         "stop the job"},
        /* two names of one setting */
        {"[optim]\nlr = 1\nlearning_rate = 1\n", "E0209", 2, 1, "twice"},
        {"[optim]\nadam_beta2 = 0.9\nbetas = [0.9, 0.99]\n", "E0209", 3, 1,
         "adam_beta2"},
        {"[train]\nbatch_size = 1\nmicro_batch_size = 1\n", "E0209", 3, 1,
         "twice"},
        /* contradictions */
        {"[train]\nper_device_train_batch_size = 4\n"
         "gradient_accumulation_steps = 3\nglobal_batch_size = 32\n",
         "E0211", 4, 1, "24"},
        {"[model]\npath = \"x\"\n", "E0213", 4, 8, "model.path"},
        {"[model]\ninit = \"pretrained\"\n", "E0213", 2, 1, "weights"},
        {"[train]\nmax_steps = 10\n[optim]\nwarmup_steps = 11\n", "E0214", 4, 1,
         "11 steps"},
        {"[train]\nmax_steps = 10\n[optim]\nlr_scheduler_type = \"wsd\"\n"
         "warmup_steps = 5\nwsd_decay_steps = 6\n",
         "E0214", 6, 1, "5 + 6"},
        {"[train]\ngradient_checkpointing = \"none\"\n[offload]\n"
         "activations = \"cpu\"\n",
         "E0213", 4, 1, "\"full\""},
        {"[offload]\noptimizer = \"nvme\"\n", "E0655", 2, 1, "a folder"},
        {"[offload]\noptimizer = \"nvme\"\nnvme_path = \"\"\n", "E0655", 2, 1,
         "a folder"},
        {"[offload]\noptimizer = \"cpu\"\nparams = \"nvme\"\n", "E0651", 3, 1,
         "not on NVMe"},
        {"[train.fp16]\nloss_scale = 0.0\n", "E0213", 2, 1, "bf16"},
        {"[train]\ndtype = \"fp32\"\n[train.fp16]\nhysteresis = 2\n", "E0213",
         4, 1, "dtype = \"fp16\""},
        {"[train]\ndtype = \"fp16\"\n[train.fp16]\ninitial_scale_power = 3\n"
         "min_loss_scale = 9.5\n",
         "E0213", 5, 1, "2^3"},
        {"[data]\ncutoff_len = 4097\n", "E0215", 2, 1, "4096"},
        {"[checkpoint]\nsave_strategy = \"best\"\n", "E0213", 2, 1,
         "eval_loss"},
        {"schema = 2\n", "E0218", 1, 10, "schema = 1"},
        {"extends = 1\n", "E0205", 1, 11, "string"},
        {"extends = \"\"\n", "E0206", 1, 11, "is empty"},
        /* more than a double holds exactly */
        {"[job]\nseed = 9007199254740993\n", "E0206", 2, 8,
         "at most 9000000000000000"},
        {"[job]\ndata_seed = -1\n", "E0206", 2, 13, "at least 0"},
        {"[run]\nstop_after = 9007199254740993\n", "E0206", 2, 14,
         "at most 9000000000000000"},
        /* names of other trainers */
        {"[train]\nbf16 = true\n", "E0203", 2, 1, "`dtype = \"bf16\"`?"},
        {"fp16 = true\n", "E0203", 1, 1, "`dtype = \"fp16\"` in [train]?"},
        {"[data]\ndataset = \"a\"\n", "E0203", 2, 1,
         "`path` in [[data.train]]?"},
        {"[data]\ncutoff = 9\n", "E0203", 2, 1, "`cutoff_len`?"},
        {"[model]\nname_or_path = \"a\"\n", "E0203", 2, 1, "`path`?"},
        {"model_name_or_path = \"a\"\n", "E0203", 1, 1, "`path` in [model]?"},
        {"[train]\nworld_size = 8\n", "E0203", 2, 1, "mpirun -np"},
        {"[training]\nsteps = 8\n", "E0202", 1, 2, "[train]?"},
        {"[dataset]\npath = 8\n", "E0202", 1, 2, "[[data.train]]?"},
};

static bool says(const struct problem *problem, const char *text)
{
    return strstr(problem->what, text) ||
           (problem->label && strstr(problem->label, text)) ||
           (problem->help && strstr(problem->help, text));
}

Test(job_problems, each_mistake_is_told_with_its_place)
{
    for (size_t i = 0; i < sizeof bad_cases / sizeof bad_cases[0]; i++) {
        const struct bad_case *want = &bad_cases[i];
        struct job_case c;
        job_case_init(&c, want->text);
        cr_expect_eq(c.status, ZD_ERR_CONFIG, "%s", want->text);
        cr_expect_eq(
                c.problems->count, 1, "%d problems: %s", c.problems->count,
                want->text);
        if (c.problems->count) {
            const struct problem *got = &c.problems->items[0];
            cr_expect_str_eq(
                    got->code, want->code, "%s: %s", want->text, got->what);
            cr_expect(
                    got->place.line == want->line &&
                            (!want->column ||
                             got->place.column == want->column),
                    "%s: told at %d:%d", want->text, got->place.line,
                    got->place.column);
            cr_expect(
                    says(got, want->says), "%s: %s, %s", want->text, got->what,
                    got->label);
        }
        job_case_fini(&c);
    }
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

Test(job_problems, what_does_not_exist_is_66_when_all_else_is_right)
{
    struct job_case c;
    job_case_init(&c, "[model]\ntokenizer = \"/nonexistent/tokenizer.json\"\n");
    cr_expect_eq(c.status, ZD_ERR_NO_INPUT);
    cr_expect_eq(c.problems->count, 1);
    job_case_fini(&c);
    job_case_init(&c, "[run]\nresume = \"/nonexistent/checkpoint-1\"\n");
    cr_expect_eq(c.status, ZD_ERR_NO_INPUT);
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
