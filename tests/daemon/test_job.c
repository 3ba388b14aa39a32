#include "tests/daemon/job_case.h"

#include <criterion/criterion.h>
#include <math.h>
#include <unistd.h>

/* --- problems, one at a time --- */

#define SIXTEEN "abcdefghijklmnop"

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
        {"[lora]\nenabled = true\n", "E0208", 2, 1, "not available"},
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
        {"[control]\nrelease_to = \"swap\"\n", "E0207", 2, 14, "disk"},
        {"[control]\nrelease_to = \"host\"\n[device]\nbackend = \"cpu\"\n",
         "E0213", 2, 1, "nothing back"},
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
};

static bool says(const struct problem *problem, const char *text)
{
    return strstr(problem->what, text) ||
           (problem->label && strstr(problem->label, text)) ||
           (problem->help && strstr(problem->help, text));
}

Test(job, each_mistake_is_told_with_its_place)
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

Test(job, all_mistakes_are_told_in_one_run_in_their_order)
{
    struct job_case c;
    char *text = NULL;
    size_t bytes;
    job_case_init(
            &c, "[train]\nmax_steps = \"x\"\n[optim]\nlearning_rat = 1\n"
                "adam_beta1 = 2\n[zero]\nstage = 7\n[nope]\n");
    cr_assert_eq(c.problems->count, 5);
    for (int i = 1; i < 5; i++)
        cr_expect(
                c.problems->items[i].place.line >
                c.problems->items[i - 1].place.line);
    FILE *stream = open_memstream(&text, &bytes);
    problems_print(c.problems, stream);
    fclose(stream);
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

Test(job, control_characters_do_not_reach_the_terminal)
{
    struct job_case c;
    char *text = NULL;
    size_t bytes;
    job_case_init(&c, "[train]\n\"\\u001b[31mred\" = 1\n");
    FILE *stream = open_memstream(&text, &bytes);
    problems_print(c.problems, stream);
    fclose(stream);
    cr_expect_null(strchr(text, 0x1b));
    free(text);
    job_case_fini(&c);
}

Test(job, a_key_of_the_model_is_found_in_its_table)
{
    struct job_case c = {0};
    scratch_init(&c.scratch);
    job_case_load(
            &c, "job.toml",
            "[model.config]\nmodel_type = \"llama\"\nhidden_size = 64\n"
            "num_hidden_layers = 2\nnum_attention_heads = 4\n"
            "intermediate_size = 128\nvocab_size = -3\n"
            "[[data.train]]\npath = \"/dev/null\"\n",
            NULL, 0, 0);
    cr_expect_eq(c.status, ZD_ERR_CONFIG);
    cr_assert_eq(c.problems->count, 1);
    cr_expect_eq(
            c.problems->items[0].place.line, 7, "%s",
            c.problems->items[0].what);
    job_case_fini(&c);
}

Test(job, what_is_missing_is_told)
{
    struct job_case c = {0};
    scratch_init(&c.scratch);
    job_case_load(&c, "job.toml", "", NULL, 0, 0);
    cr_expect_eq(c.status, ZD_ERR_CONFIG);
    cr_assert_eq(c.problems->count, 2);
    cr_expect_str_eq(c.problems->items[0].code, "E0210");
    cr_expect_str_eq(c.problems->items[1].code, "E0210");
    job_case_fini(&c);
}

Test(job, what_does_not_exist_is_66_when_all_else_is_right)
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

Test(job, a_file_over_a_mebibyte_or_missing_is_refused)
{
    struct job_case c = {0};
    size_t bytes = TOML_MAX_BYTES + 1;
    char *text = malloc(bytes + 1);
    memset(text, '\n', bytes);
    text[bytes] = '\0';
    scratch_init(&c.scratch);
    job_case_load(&c, "job.toml", text, NULL, 0, 0);
    cr_expect_eq(c.status, ZD_ERR_CONFIG);
    cr_expect_eq(c.problems->count, 1);
    job_free(c.job);
    struct job_request request = {.path = "/nonexistent/job.toml"};
    cr_expect_eq(job_load(&request, &c.job), ZD_ERR_NO_INPUT);
    cr_expect_eq(job_problems(c.job)->count, 1);
    job_case_fini(&c);
    free(text);
}

/* --- values --- */

Test(job, values_are_read_in_every_way_they_may_be_written)
{
    struct job_case c;
    job_case_init(
            &c,
            "\xef\xbb\xbf[job]\nseed = 7\n"
            "[device]\nmemory_limit = \"1.5GiB\"\nhost_memory_limit = \"90%\"\n"
            "cpu_threads = \"AUTO\"\n"
            "[train]\nmax_steps = 1e3\ndtype = \"FP32\"\n"
            "gradient_checkpointing = \"Every:3\"\nfreeze = [\"*embed*\", "
            "\"layers.0\"]\n"
            "[optim]\nname = \"AdamW_torch\"\nbetas = [0.5, 0.75]\n"
            "warmup_ratio = 0.25\nlr_scheduler_type = "
            "\"constant_with_warmup\"\n"
            "learning_rate = 1\n"
            "[zero]\nreduce_bucket_size = 5e8\nprefetch_bucket_size = "
            "\"auto\"\n"
            "[checkpoint]\nsave_every = \"1h30m\"\nmax_shard_size = \"5GB\"\n"
            "save_steps = 0.1\n[run]\nresume = \"some/where\"\n"
            "[log]\nformat = \"json\"\n[model]\ndtype = \"fp16\"\n");
    const struct train_job *job = job_options(c.job);
    cr_expect_eq(c.status, ZD_ERR_NO_INPUT); /* some/where */
    cr_expect_eq(c.problems->count, 1);
    cr_expect_eq(job->job.data_seed, 7);
    cr_expect_eq(job->device.memory_limit, 1610612736u);
    cr_expect_eq(job->device.memory_limit_fraction, 0);
    cr_expect_eq(job->device.host_memory_limit_fraction, 0.9);
    cr_expect_eq(job->device.cpu_threads, 0);
    cr_expect_eq(job->train.max_steps, 1000);
    cr_expect_eq(job->train.dtype, DTYPE_FP32);
    cr_expect_eq(job->train.gradient_checkpointing.every, 3);
    cr_assert_eq(job->train.freeze_count, 2);
    cr_expect_str_eq(job->train.freeze[0], "*embed*");
    cr_expect_eq(job->optim.adam_beta1, 0.5);
    cr_expect_eq(job->optim.adam_beta2, 0.75);
    cr_expect_eq(job->optim.warmup_steps, 0.25);
    cr_expect_eq(job->optim.lr_scheduler_type, LR_CONSTANT);
    cr_expect_eq(job->optim.learning_rate, 1);
    cr_expect_eq(job->zero.reduce_bucket_size, 500000000);
    cr_expect_eq(job->zero.prefetch_bucket_size, 0);
    cr_expect_eq(job->checkpoint.save_every_seconds, 5400);
    cr_expect_eq(job->checkpoint.max_shard_bytes, 5000000000u);
    cr_expect_eq(job->checkpoint.save_steps, 0.1);
    cr_expect_eq(job->run.resume, RESUME_PATH);
    cr_expect_str_eq(job->run.resume_path, "some/where");
    cr_expect(job->log.json);
    cr_expect(!job->model.dtype_auto && job->model.dtype == DTYPE_FP16);
    job_case_fini(&c);
}

Test(job, a_deadline_is_a_moment_or_a_time_from_the_start)
{
    static const struct {
        const char *text;
        double at, after, margin;
    } cases[] = {
            {"", 0, 0, 0},
            {"[run]\ndeadline = \"\"\ndeadline_margin = \"auto\"\n", 0, 0, 0},
            {"[run]\ndeadline = \"23h50m\"\n", 0, 85800, 0},
            {"[run]\ndeadline = \"2026-11-22T09:00:00+01:00\"\n", 1795334400, 0,
             0},
            {"[run]\ndeadline = 2026-11-22T08:00:00Z\n", 1795334400, 0, 0},
            {"[run]\ndeadline = 2026-11-22 03:30:00-04:30\n", 1795334400, 0, 0},
            {"[run]\ndeadline_margin = \"5m\"\n", 0, 0, 300},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct job_case c;
        job_case_init(&c, cases[i].text);
        const struct run_options *run = &job_options(c.job)->run;
        cr_expect_eq(c.status, ZD_OK, "%s", cases[i].text);
        cr_expect_eq(run->deadline, cases[i].at, "%s", cases[i].text);
        cr_expect_eq(run->deadline_after, cases[i].after, "%s", cases[i].text);
        cr_expect_eq(run->deadline_margin, cases[i].margin);
        job_case_fini(&c);
    }
}

Test(job, what_is_not_given_follows_from_the_rest)
{
    struct job_case c;
    job_case_init(&c, "");
    const struct train_job *job = job_options(c.job);
    cr_assert_eq(c.status, ZD_OK);
    cr_expect_str_eq(job->job.name, "job");
    cr_expect_str_eq(job->job.output_dir, "out/job");
    cr_expect_str_eq(job->job.run_name, "");
    cr_expect_eq(job->job.data_seed, job->job.seed);
    cr_expect_eq(job->model.init, MODEL_RANDOM);
    cr_expect_eq(job->train.per_device_train_batch_size, 0);
    cr_expect_eq(job->zero.reduce_bucket_size, 0);
    cr_assert_eq(job->data.train_count, 1);
    cr_expect_str_eq(job->data.train[0].field, "text");
    cr_expect_eq(
            json_integer_value(
                    json_object_get(job->model.config, "hidden_size")),
            64);
    cr_expect_eq(strlen(job->digest), 32);
    job_case_fini(&c);
}

Test(job, a_word_that_is_a_boolean_may_be_written_as_one)
{
    static const struct {
        const char *text;
        enum offload_pin pin;
    } cases[] = {
            {"[offload]\noptimizer = \"cpu\"\npin_memory = true\n",
             OFFLOAD_PIN_YES},
            {"[offload]\noptimizer = \"cpu\"\npin_memory = \"false\"\n",
             OFFLOAD_PIN_NO},
            {"[offload]\noptimizer = \"cpu\"\npin_memory = \"auto\"\n",
             OFFLOAD_PIN_AUTO},
    };
    for (int i = 0; i < 3; i++) {
        struct job_case c;
        job_case_init(&c, cases[i].text);
        cr_assert_eq(c.status, ZD_OK);
        cr_expect_eq(job_options(c.job)->offload.pin_memory, cases[i].pin);
        job_case_fini(&c);
    }
    struct job_case c;
    job_case_init(&c, "[aio]\nbackend = true\n");
    cr_expect_eq(c.status, ZD_ERR_CONFIG);
    cr_expect_str_eq(c.problems->items[0].code, "E0205");
    job_case_fini(&c);
}

Test(job, off_values_of_unavailable_keys_are_accepted)
{
    struct job_case c;
    job_case_init(
            &c,
            "[train]\ndeterministic = false\nneftune_noise_alpha = 0.0\n"
            "[lora]\nenabled = false\n[offload]\noptimizer = \"none\"\n"
            "nvme_path = \"\"\n[checkpoint]\nasync_save = false\n"
            "[control]\nsocket = \"none\"\nstatus_gid = -1\n[model]\nattn = "
            "\"auto\"\n");
    cr_expect_eq(c.status, ZD_OK);
    cr_expect_eq(c.problems->count, 0);
    job_case_fini(&c);
}

Test(job, tf32_is_off_until_it_is_asked_for)
{
    struct job_case c;
    job_case_init(&c, "[train]\ntf32 = true\n");
    cr_expect_eq(c.status, ZD_OK);
    cr_expect(job_options(c.job)->train.tf32);
    job_case_fini(&c);
    job_case_init(&c, "");
    cr_expect_eq(c.status, ZD_OK);
    cr_expect_not(job_options(c.job)->train.tf32);
    job_case_fini(&c);
}

Test(job, sockets_addresses_and_groups_are_taken)
{
    char *text = NULL;
    struct job_case c;
    job_case_init(&c, "[control]\nreadonly = true\n");
    const struct control_options *control = &job_options(c.job)->control;
    cr_expect_eq(control->socket, CONTROL_AUTO);
    cr_expect_null(control->socket_path);
    cr_expect_null(control->metrics_listen);
    cr_expect_eq(control->status_gid, -1);
    cr_expect(control->readonly);
    cr_expect(job_options(c.job)->report.tensorboard);
    job_case_fini(&c);
    cr_assert_gt(
            asprintf(
                    &text,
                    "[control]\nsocket = \"/" SIXTEEN SIXTEEN SIXTEEN SIXTEEN
                            SIXTEEN SIXTEEN "1234567890\"\nstatus_gid = %d\n"
                    "metrics_listen = \"[::1]:9479\"\nrelease_to = \"disk\"\n"
                    "[report]\nhtml = false\nprometheus_textfile = \"p\"\n",
                    (int)getegid()),
            0);
    job_case_init(&c, text);
    control = &job_options(c.job)->control;
    cr_expect_eq(c.status, ZD_OK);
    cr_expect_eq(control->socket, CONTROL_PATH);
    cr_expect_eq(strlen(control->socket_path), 107);
    cr_expect_eq(control->status_gid, (int)getegid());
    cr_expect_eq(control->release_to, RELEASE_DISK);
    cr_expect_not(job_options(c.job)->report.html);
    job_case_fini(&c);
    free(text);
}

/* --- overrides --- */

Test(job, overrides_win_and_are_told_by_their_name)
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

/* --- extends --- */

static void put(struct job_case *c, const char *name, const char *text)
{
    scratch_file(&c->scratch, name, text, strlen(text));
}

Test(job, a_base_is_overridden_key_by_key)
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

Test(job, a_mistake_in_a_base_is_told_there)
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

Test(job, a_circle_is_78_and_a_missing_base_66)
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

/* --- what is printed --- */

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

Test(job, the_printed_job_reads_back_as_itself)
{
    check_printed("[job]\nname = \"x\"\nrun_name = \"say \\\"hi\\\"\\n\"\n"
                  "[optim]\nlearning_rate = 3.3e-5\n[sample]\nprompts = "
                  "[\"\\u00e9\"]\n"
                  "[device]\nmemory_limit = \"90%\"\n");
    check_printed(
            "[train]\ndtype = \"fp16\"\n[train.fp16]\nloss_scale = 0.5\n");
}

Test(job, json_says_value_origin_and_availability)
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

Test(job, only_what_ranks_share_is_in_the_digest)
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

Test(job, a_batch_that_does_not_divide_names_the_nearest)
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

Test(job, gpus_are_numbers)
{
    const char *good[] = {"auto", "0", "2,0"}, *bad[] = {"", "all", "0 1"};
    struct job_case c;
    char text[64];
    for (int i = 0; i < 3; i++) {
        snprintf(text, sizeof text, "[device]\ngpus = \"%s\"\n", good[i]);
        job_case_init(&c, text);
        cr_assert_eq(c.status, ZD_OK);
        cr_expect_str_eq(job_options(c.job)->device.gpus, good[i]);
        job_case_fini(&c);
        snprintf(text, sizeof text, "[device]\ngpus = \"%s\"\n", bad[i]);
        job_case_init(&c, text);
        cr_expect_eq(c.status, ZD_ERR_CONFIG);
        cr_expect_str_eq(c.problems->items[0].code, "E0206");
        job_case_fini(&c);
    }
}
